"""Installed from a wheel: in an environment of its own and an empty folder, without the clone and without a network."""

import json
import os
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


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_works_in_an_empty_folder(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    ran([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)])
    (wheel,) = tmp_path.glob("ntl-*.whl")
    new = ["--python", str(tmp_path / "venv" / "bin" / "python")]
    wanted = ["-c", str(ROOT / "constraints.txt"), "torch==2.13.0", f"{wheel}[train]"]
    # Compiled as it is imported: most of torch never is.
    ran([*pip, *new, "install", "-q", "--no-compile", *wanted])
    folder = tmp_path / "empty"
    folder.mkdir()
    settings = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NTL_", "COV_", "WANDB"))
    }
    environment = settings | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def ntl(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [str(tmp_path / "venv" / "bin" / "ntl"), *words]
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
    # What the clone has and the wheel has not is said in one line; what was made is in the working directory.
    report = ntl("report")
    assert (report.returncode, report.stderr.count("\n")) == (2, 1)
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
