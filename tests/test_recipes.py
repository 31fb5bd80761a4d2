"""The recipes of docs/extending.md, followed to the letter in a copy of the tree: what each adds trains."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STEP = re.compile(r"^`(?P<path>[\w./]+)`:\n\n```\w+\n(?P<code>.*?)^```$", re.M | re.S)
SMALL = ["trainer.max_steps=2", "trainer.logging_steps=1", "tracking=none", "device=cpu"]
RUNS = {
    "loss": ["loss=ntl_relative", "dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=8"],
    "objective": ["objective=numbers_only", "dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=8"],
    "data set": ["dataset=doubling", "dataset.train_rows=64"],
    "model": ["model=mistral_tiny", "dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=8"],
    "decoding": ["decoding=longer", "dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=8"],
}
# A line that a recipe adds to a file, after the line that it shows before it.
ADDED = re.compile(r"^`(?P<path>[\w./]+)`, in `\w+`:\n\n```diff\n (?P<before>.*)\n\+(?P<line>.*)\n```$", re.M)
FOLLOW = """
import sys
from ntl.config import compose, run_id
from ntl.results import build_table, read_record
from ntl.training import run
for line in sys.stdin.read().splitlines():
    config = compose(line.split())
    record = read_record(run(config))
    print("RECORD", record.id, record.steps, record.curves["loss"][0][1] > 0, config.decoding.name)
    assert all(record.has(f"{split}/far") for split in record.correct)
print("TABLE", len(build_table("weights", [], "tiny").commands))
"""
# The settings of the recipe's data set are typed, limited, stored and restored like those of any other.
KNOWN = """
import sys
from ntl.config import UserError, compose
from ntl.config.identity import plain
from ntl.config.composition import from_values
from ntl.data import dataset_named
config = compose(["dataset=doubling", "dataset.train_rows=64"])
restored = from_values(plain(config), "config.yaml")
defaults = dataset_named("doubling").config
print(type(config.dataset).__name__, config.dataset.train_rows, restored == config, defaults.train_rows)
try:
    compose(["dataset=doubling", "dataset.train_rows=9001"])
except UserError as error:
    print(error)
print(sorted({"torch", "transformers", "datasets"} & set(sys.modules)))
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    tree = tmp_path_factory.mktemp("copy")
    for name in ("src", "config"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    written = []
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for step in STEP.finditer(text):
        path = tree / step["path"]
        assert not path.exists(), f"{step['path']} exists already: the recipe shows nothing new"
        path.write_text(step["code"])
        written.append(path)
    assert len(written) == 10
    added = list(ADDED.finditer(text))
    assert len(added) == 2
    for step in added:
        path = tree / step["path"]
        code = path.read_text()
        assert code.count(f"{step['before']}\n") == 1
        path.write_text(code.replace(step["before"], f"{step['before']}\n{step['line']}"))
    return tree, written


def _python(tree: Path, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {"PYTHONPATH": str(tree / "src"), "PATH": "", "HOME": str(tree), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, *words], input=text, capture_output=True, text=True, cwd=tree, env=environment
    )


def test_a_data_set_is_known_by_its_two_files(followed: tuple[Path, list[Path]]) -> None:
    done = _python(followed[0], "-c", KNOWN)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "DoublingConfig 64 True 5000\ndataset.train_rows=9001: must be at most 9000.\n[]\n"


# The recipe's metric, by its name alone: scored, chosen by, and printed in a table with its direction and format.
SCORED = """
from ntl.config import compose
from ntl.evaluation import number_metrics
from ntl.results.spec import ColumnSpec
from ntl.training.best import best_of
print(number_metrics(["1", "5", "none"], ["2", "2", "2"])["far"])
print(compose(["dataset=noisy_numbers", "trainer.best=far", "trainer.eval_steps=1"]).trainer.best)
print(best_of([{"step": 1, "eval_loss": 1.0, "eval_far": 0.5}, {"step": 2, "eval_loss": 1.0, "eval_far": 0.2}], "far"))
column = ColumnSpec("test/far@paper")
print(column.better.name, column.format)
"""


def test_a_metric_is_known_by_its_two_lines(followed: tuple[Path, list[Path]]) -> None:
    done = _python(followed[0], "-c", SCORED)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["0.6666666666666666", "far", "Best(step=2, value=0.2, since=0)", "lower .1%"]


@pytest.mark.slow
def test_every_recipe_trains(followed: tuple[Path, list[Path]]) -> None:
    tree, _ = followed
    lines = [" ".join([*overrides, *SMALL]) for overrides in RUNS.values()]
    done = _python(tree, "-c", FOLLOW, text="\n".join(lines))
    assert done.returncode == 0, done.stderr[-2000:]
    records = [line.split() for line in done.stdout.splitlines() if line.startswith("RECORD")]
    assert [(steps, learned) for _, _, steps, learned, _ in records] == [("2", "True")] * 5
    names = ["gpt2_tiny-ntl_relative", "noisy_numbers-gpt2_tiny", "doubling-gpt2_tiny", "mistral_tiny", "noisy_numbers"]
    assert all(name in record[1] for name, record in zip(names, records, strict=True))
    assert [decoding for *_, decoding in records] == [*["greedy"] * 4, "longer"]
    assert "TABLE 4" in done.stdout.splitlines()


# The recipe's data set, with numbers from a file in place of drawn ones.
DRAWN = "numbers = random.Random(self.config.seed).sample(range(10_000), 10_000)"
FROM_A_FILE = 'numbers = [int(word) for word in (data_dir / "numbers.txt").read_text().split()]'


@pytest.mark.slow
def test_a_data_set_that_reads_a_file_never_gives_what_the_file_was_before(
    followed: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    """Nothing is declared: the class opens the file, and the commands are typed as before."""
    tree = tmp_path / "tree"
    for name in ("src", "config"):
        shutil.copytree(followed[0] / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    source = tree / "src" / "ntl" / "data" / "sets" / "doubling.py"
    assert DRAWN in source.read_text()
    source.write_text(source.read_text().replace(DRAWN, FROM_A_FILE).replace('": 500', '": 20'))
    shutil.copy(ROOT / "train.py", tree)
    file = tree / "data" / "numbers.txt"
    file.parent.mkdir()

    def train() -> "subprocess.CompletedProcess[str]":
        return _python(tree, "train.py", *RUNS["data set"], *SMALL)

    def data() -> dict[str, str]:
        (path,) = tree.glob("outputs/*/record.json")
        return json.loads(path.read_text())["data"]["files"]

    contents = ["\n".join(str(number) for number in range(start, start + 104)) for start in (0, 1)]
    file.write_text(contents[0])
    assert train().returncode == 0
    first = data()
    assert "finished already" in train().stdout
    file.write_text(contents[1])
    refused = train()
    assert refused.returncode == 2
    line = rf"error: outputs/\S+/record\.json: this run is finished, but the data has changed: {file} has other .*\.\n"
    assert re.fullmatch(line, refused.stderr)
    assert data() == first
    shutil.move(tree / "outputs", tree / "before")
    again = train()
    assert again.returncode == 0
    assert "numbers.txt has changed since it was prepared: preparing it anew" in again.stdout
    assert not set(data().values()) & set(first.values())
    prepared = sorted(tree.glob("data/doubling-*/train.jsonl"))
    assert [json.loads(path.read_text().splitlines()[0])["answer"] for path in prepared] == ["0", "2"]
    file.write_text(contents[0])
    shutil.rmtree(tree / "outputs")
    shutil.move(tree / "before", tree / "outputs")
    assert "finished already" in train().stdout
    # And the class is part of what decides the rows.
    source.write_text(source.read_text().replace("str(2 * n)", "str(2 * n + 1)"))
    shutil.rmtree(tree / "outputs")
    assert train().returncode == 0
    assert not set(data().values()) & set(first.values())


def test_what_the_recipes_wrote_passes_the_linter(followed: tuple[Path, list[Path]]) -> None:
    python = sorted({path for path in followed[1] if path.suffix == ".py"})
    command = [sys.executable, "-m", "ruff", "check", "--config", ROOT / "pyproject.toml", *python]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
