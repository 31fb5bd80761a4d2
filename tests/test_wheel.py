"""Installed from a wheel: in an environment of its own and an empty folder, without the clone and without a network."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROWS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(200)]
# A data set of the user's own file; without dataset=file one that is computed.
FILE = ["dataset=file", "dataset.path=sums.jsonl"] if (ROOT / "config" / "dataset" / "file.yaml").is_file() else None
NUMBERS = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"]
SHORT = ["trainer.max_steps=2", "device=cpu"]
# 1 at every number label, whatever the logits.
LOSS = """
from ntl.losses.rows import number_rows, reduce

def one(logits, labels, number_vocab, *, ignore_index=-100, reduction="mean"):
    rows = number_rows(logits, labels, number_vocab, ignore_index)
    return reduce(rows.logits_NK.sum(dim=-1) * 0 + 1, rows, labels, reduction)
"""
CONFIG = "defaults:\n  - /schema/loss/base@_here_\nname: my_loss\nweight: 0.3\nnumber:\n  _target_: my_module.one\n"


def ran(command: list[str], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment of its own that has the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "venv", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    ran([*pip, "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)])
    (wheel,) = folder.glob("ntl-*.whl")
    new = ["--python", str(folder / "venv" / "bin" / "python")]
    wanted = ["-c", str(ROOT / "constraints.txt"), "torch==2.13.0", f"{wheel}[train]"]
    # Compiled as it is imported: most of torch never is.
    ran([*pip, *new, "install", "-q", "--no-compile", *wanted])
    return folder / "venv" / "bin"


@pytest.fixture
def environment(programs: Path) -> dict[str, str]:
    """No settings of this process, no network, and the programs of the wheel first."""
    ours = ("PYTHON", "NTL_", "COV_", "WANDB")
    settings = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{programs}{os.pathsep}{os.defpath}"
    return settings | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PATH": path}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_works_in_an_empty_folder(tmp_path: Path, programs: Path, environment: dict[str, str]) -> None:
    folder = tmp_path

    def ntl(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [str(programs / "ntl"), *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)

    def well(*words: str) -> str:
        done = ntl(*words)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    assert "ntl train -m" in well("train", "--help")
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    well("train", *(FILE or NUMBERS), *SHORT)
    (run,) = folder.glob("outputs/*")
    record = json.loads((run / "record.json").read_text())
    metrics = json.loads(well("predict", f"outputs/{run.name}", "--json"))
    assert metrics["test/accuracy"] == record["metrics"]["test/accuracy"]
    assert json.loads(well("evaluate", f"outputs/{run.name}", "--json")) == metrics
    # What the clone calls scripts/predict.py has the name of a command that is there.
    prepare = well("prepare", "--help")
    assert "ntl prepare multiplication" in prepare
    assert "--config-dir DIR" in prepare
    (run / "predictions.jsonl").rename(folder / "kept.jsonl")
    assert ntl("evaluate", f"outputs/{run.name}").stderr.endswith("decode it with ntl predict\n")
    (folder / "kept.jsonl").rename(run / "predictions.jsonl")
    well("publish", f"outputs/{run.name}", "--dirty")
    well("tables", "quickstart")
    assert {path.name for path in folder.iterdir()} <= {"sums.jsonl", "data", "outputs", "results"}
    assert [path.stem for path in folder.glob("results/runs/*")] == [run.name]
    # A loss of the user's own, in the working directory, with its own config folder.
    (folder / "my_module.py").write_text(LOSS)
    (folder / "conf" / "loss").mkdir(parents=True)
    (folder / "conf" / "loss" / "my_loss.yaml").write_text(CONFIG)
    mine = ["--config-dir", "conf"]
    well("train", *NUMBERS, *SHORT, "loss=my_loss", *mine)
    (own,) = folder.glob("outputs/*-my_loss-*")
    refused = ntl("predict", f"outputs/{own.name}")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "loss.number._target_=my_module.one: not in ntl.losses" in refused.stderr
    well("predict", f"outputs/{own.name}", *mine)
    (folder / "my_module.py").write_text(LOSS.replace("* 0 + 1", "* 0 + 2"))
    changed = ntl("predict", f"outputs/{own.name}", *mine)
    assert changed.stderr.endswith("my_module.py changed since this run was trained; put it back as it was.\n")
    well("train", *NUMBERS, *SHORT, "loss=my_loss", *mine)
    assert len([*folder.glob("outputs/*-my_loss-*")]) == 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_walk_through_of_the_page_runs_as_typed(
    tmp_path: Path, programs: Path, environment: dict[str, str]
) -> None:
    text = (ROOT / "docs" / "your_own_data.md").read_text(encoding="utf-8")
    section = text.partition("\n## A walk-through\n")[2].partition("\n## ")[0]
    blocks = dict(enumerate(re.findall(r"^```(python|bash)\n(.*?)^```$", section, re.M | re.S)))
    assert [language for language, _ in blocks.values()] == ["python", "bash", "bash", "bash"]
    printed = {}
    for number, (language, code) in blocks.items():
        program = [str(programs / "python"), "-c"] if language == "python" else ["bash", "-e", "-c"]
        printed[number] = ran([*program, code], cwd=tmp_path, env=environment)
    records = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("outputs/*/record.json")}
    assert len((tmp_path / "units.csv").read_text().splitlines()) == 5001
    assert "Convert 87.4 yards to metres  →  79.9" in printed[1]
    tuned = [record for name, record in records.items() if name.startswith("file-gpt2_small-")]
    assert sorted((each["config"]["loss"]["name"], each["seed"]) for each in tuned) == [
        (loss, seed) for loss in ("ce", "ntl_was") for seed in (1, 2, 3)
    ]
    assert len(records) == 7
    for each in records.values():
        assert each["metrics"]["test/mae"] < 0.75 * each["metrics"]["test/mae:median"]
    comparison = printed[2][printed[2].rindex("Record: ") :]
    assert all(word in comparison for word in ("ce", "ntl_was", "mae"))
    assert re.match(r"Convert 12\.5 yards to metres\n  -?[\d.]+ \[-?[\d.]+, -?[\d.]+\]\n", printed[3])
    assert "the worst" in printed[3]
    assert {path.name for path in tmp_path.iterdir()} == {"units.csv", "start", "data", "outputs"}
