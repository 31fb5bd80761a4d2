"""The README's recipes, followed to the letter in a copy of the tree: each new loss, data set and model trains."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
STEP = re.compile(
    r"^`(?P<path>[\w./]+)`(?P<place>, at its end|, in `SCHEMAS`)?:\n\n```\w+\n(?P<code>.*?)^```$", re.M | re.S
)
SMALL = ["trainer.max_steps=2", "trainer.logging_steps=1", "tracking=none", "device=cpu"]
RUNS = {
    "loss": ["loss=ntl_relative", "dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=8"],
    "data set": ["dataset=doubling", "dataset.train_rows=64"],
    "model": ["model=mistral_tiny", "dataset=noisy_numbers", "dataset.train_rows=64", "dataset.test_rows=8"],
}
FOLLOW = """
import sys
from ntl.config import compose, run_id
from ntl.results import read_record
from ntl.training import run
for line in sys.stdin.read().splitlines():
    config = compose(line.split())
    record = read_record(run(config))
    print("RECORD", record.id, record.steps, record.curves["loss"][0][1] > 0)
"""


def _follow(text: str, tree: Path) -> list[Path]:
    steps = list(STEP.finditer(text))
    for step in steps:
        path, code = tree / step["path"], step["code"]
        if step["place"] == ", at its end":
            path.write_text(path.read_text() + "\n\n" + code)
        elif step["place"]:
            path.write_text(path.read_text().replace("SCHEMAS = {\n", f"SCHEMAS = {{\n{code}"))
        else:
            assert not path.exists(), f"{step['path']} exists already: the recipe shows nothing new"
            path.write_text(code)
    return [tree / step["path"] for step in steps]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    tree = tmp_path_factory.mktemp("copy")
    for name in ("src", "config"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    changed = _follow((ROOT / "README.md").read_text(encoding="utf-8"), tree)
    assert len(changed) == 7
    return tree, changed


@pytest.mark.slow
def test_every_recipe_trains(followed: tuple[Path, list[Path]]) -> None:
    tree, _ = followed
    lines = [" ".join([*overrides, *SMALL]) for overrides in RUNS.values()]
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=tree,
        env={"PYTHONPATH": str(tree / "src"), "PATH": "", "HOME": str(tree), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    records = [line.split() for line in done.stdout.splitlines() if line.startswith("RECORD")]
    assert [(steps, learned) for _, _, steps, learned in records] == [("2", "True")] * 3
    names = ["gpt2_tiny-ntl_relative", "doubling-gpt2_tiny", "mistral_tiny"]
    assert all(name in record[1] for name, record in zip(names, records, strict=True))


def test_what_the_recipes_wrote_passes_the_linter(followed: tuple[Path, list[Path]]) -> None:
    python = sorted({path for path in followed[1] if path.suffix == ".py"})
    command = [sys.executable, "-m", "ruff", "check", "--config", ROOT / "pyproject.toml", *python]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
