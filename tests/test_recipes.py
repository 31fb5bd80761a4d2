"""The recipes of docs/extending.md, followed to the letter in a copy of the tree: it passes make check, and trains.

``python tests/test_recipes.py FOLDER`` writes their new modules into a folder, where `make types` checks them.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
STEP = re.compile(r"^`(?P<path>[\w./]+)`:\n\n```\w+\n(?P<code>.*?)^```$", re.M | re.S)
SMALL = ["trainer.max_steps=2", "trainer.logging_steps=1", "tracking=none", "device=cpu"]
NOISY = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"]
RUNS = {
    "loss": ["loss=ntl_relative", *NOISY],
    "objective": ["objective=numbers_only", *NOISY],
    "data set": ["dataset=doubling", "dataset.train_rows=64"],
    "model": ["model=mistral_tiny", *NOISY],
    "decoding": ["decoding=longer", *NOISY],
}
# A line that a recipe adds to a file, after the line that it shows before it.
ADDED = re.compile(r"^`(?P<path>[\w./]+)`, in `\w+`:\n\n```diff\n (?P<before>.*)\n\+(?P<line>.*)\n```$", re.M)
FOLLOW = """
import sys
from ntl.config import compose, run_id
from ntl.config.composition import read_config
from ntl.results import build_table, read_record
from ntl.training.train import train
for line in sys.stdin.read().splitlines():
    config = compose(line.split())
    path = train(config)
    record = read_record(path)
    assert run_id(read_config(path.parent)) == record.id == path.parent.name
    print("RECORD", record.id, record.steps, record.curves["loss"][0][1] > 0, config.decoding.name)
    assert all(record.has(f"{split}/far") for split in record.correct)
print("TABLE", sum(len(block.rows) for block in build_table("weights", [], "tiny").blocks))
"""
# The recipe's data set has settings that are typed, limited, stored and restored like those of any other; its metric is
# scored, chosen by, and printed in a table with its direction and format.
KNOWN = """
import sys
from ntl.config import UserError, compose
from ntl.config.identity import plain
from ntl.config.composition import from_values
from ntl.data import dataset_named
from ntl.evaluation import number_metrics
from ntl.results.spec import ColumnSpec
config = compose(["dataset=doubling", "dataset.train_rows=64", "trainer.best=far", "trainer.eval_steps=1"])
restored = from_values(plain(config), "config.yaml")
defaults = dataset_named("doubling")
print(type(config.dataset).__name__, config.dataset.train_rows, restored == config, defaults.train_rows)
try:
    compose(["dataset=doubling", "dataset.train_rows=9001"])
except UserError as error:
    print(error)
column = ColumnSpec("test/far@paper")
print(number_metrics(["1", "5", "none"], ["2", "2", "2"])["far"], column.better.name, column.format)
print(sorted({"torch", "transformers", "datasets"} & set(sys.modules)))
"""
TOLD = """Doubling 64 True 5000
dataset.train_rows=9001: must be at most 9000.
0.6666666666666666 lower .1%
[]
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository without its results, with what the recipes wrote or changed there."""
    tree = tmp_path_factory.mktemp("copy")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", ":!results"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    written = list(STEP.finditer(PAGE))
    assert len(written) == 10
    for step in written:
        path = tree / step["path"]
        assert not path.exists(), f"{step['path']} exists already: the recipe shows nothing new"
        path.write_text(step["code"])
    added = list(ADDED.finditer(PAGE))
    assert len(added) == 1
    for step in added:
        path = tree / step["path"]
        code = path.read_text()
        assert code.count(f"{step['before']}\n") == 1
        path.write_text(code.replace(step["before"], f"{step['before']}\n{step['line']}"))
    return tree


def _python(tree: Path, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {"PYTHONPATH": str(tree / "src"), "PATH": os.defpath, "HOME": str(tree), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, *words], input=text, capture_output=True, text=True, cwd=tree, env=environment
    )


@pytest.mark.slow
def test_a_data_set_and_a_metric_are_known_by_their_files(followed: Path) -> None:
    done = _python(followed, "-c", KNOWN)
    assert (done.returncode, done.stdout) == (0, TOLD), done.stderr[-2000:]


@pytest.mark.slow
def test_every_recipe_trains(followed: Path) -> None:
    lines = [" ".join([*overrides, *SMALL]) for overrides in RUNS.values()]
    done = _python(followed, "-c", FOLLOW, text="\n".join(lines))
    assert done.returncode == 0, done.stderr[-2000:]
    records = [line.split() for line in done.stdout.splitlines() if line.startswith("RECORD")]
    assert [(steps, learned) for _, _, steps, learned, _ in records] == [("2", "True")] * 5
    names = ["gpt2_tiny-ntl_relative", "noisy_numbers-gpt2_tiny", "doubling-gpt2_tiny", "mistral_tiny", "noisy_numbers"]
    assert all(name in record[1] for name, record in zip(names, records, strict=True))
    assert [decoding for *_, decoding in records] == [*["greedy"] * 4, "longer"]
    assert "TABLE 4" in done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_project.py", "-k", "not lazy"],
    ],
    ids=["ruff check", "ruff format", "lint-imports", "test_project"],
)
def test_make_check_passes_with_every_recipe(part: list[str], followed: Path) -> None:
    """Its parts, in the copy; `make types` itself checks the types of what the recipes write."""
    done = _python(followed, *part)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    for step in STEP.finditer(PAGE):
        if step["path"].endswith(".py"):
            path = Path(sys.argv[1]) / step["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step["code"])
