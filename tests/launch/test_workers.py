"""Runs in worker processes: one failure or kill does not end the others, Ctrl-C leaves checkpoints and no process."""

import io
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import start, until
from fake_runs import EXITS, FAILS, KILLED, LASTS, NO_RECORD, TAKEN
from rich.console import Console

from ntl.config import UserError
from ntl.launch import workers
from ntl.launch.plan import Run
from ntl.launch.sweep import sweep_all
from ntl.launch.workers import duration, run_all
from ntl.system.machine import available_cores

Planned = Callable[..., list[Run]]


def test_failures_and_kills_do_not_stop_the_others(
    planned: Planned, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "BUSY_SECONDS", 0.2)
    out = io.StringIO()
    runs = planned(TAKEN, 1, FAILS, KILLED, NO_RECORD, EXITS, 2)
    report = run_all(runs, workers=1, target=target, console=Console(file=out))
    assert [run.config.seed for run in report.done][:1] == [1]  # the others go on while one is taken
    assert {run.config.seed for run in report.done} == {1, 2, TAKEN}
    errors = {ended.run.config.seed: ended.error for ended in report.failed}
    assert errors == {
        FAILS: "RuntimeError: no such thing",
        KILLED: "its worker process was killed: from outside, or out of memory",
        NO_RECORD: f"it ended without {runs[4].record}",
        EXITS: "SystemExit: 3",
    }
    assert report.exit_code == 1
    lines = out.getvalue().splitlines()
    assert lines[0] == "7 runs in 1 worker process."
    assert lines.count(f"{runs[0].id}: another process is working on it; waiting for that one.") == 1
    assert [line[:5] for line in lines if line.startswith("[")] == [f"[{n}/7]" for n in range(1, 8)]
    # One process made them all, until it was killed; it has all cores.
    before, after = ({(run.folder / "environment").read_text() for run in part} for part in (runs[1:4], runs[4:]))
    assert len(before) == len(after) == 1
    assert before != after
    assert before.pop().split()[1] == str(available_cores())

    assert report.done[0].log.read_text() == "printed by the run\nwritten to descriptor 2\n"
    assert runs[2].log.read_text().endswith("RuntimeError: no such\n thing\n")
    assert "Traceback" not in runs[0].log.read_text()


def test_without_workers_and_without_runs() -> None:
    with pytest.raises(UserError, match="workers=0: at least 1"):
        run_all([], workers=0)
    assert run_all([]).exit_code == 0


def test_progress_is_one_line_without_markup(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(workers.time, "monotonic", lambda: now[0])
    runs = planned(1, 2, overrides=["trainer.max_steps=400"])
    progress = workers._Progress(runs, Console(file=out, width=20))
    runs[0].folder.mkdir(parents=True)
    (runs[0].folder / "metrics.jsonl").write_text('{"step": 100}\n{"note": 1}\n{"ste')
    now[0] = 20.0
    progress.tick(runs[:1])
    now[0] = 39.0
    progress.tick(runs[:1])  # quiet for 19 s only
    progress.ended(workers.Ended(runs[0], 38.0, "boom [b]"))
    # 700 of 800 steps were left after 20 s, 400 after 39 s.
    assert out.getvalue().splitlines() == [
        f"  running: {runs[0].id} 100/400 (about 2 min 20 s left)",
        f"[1/2] {runs[0].id}: FAILED after 38.0 s: boom [b] (about 39 s left)",
    ]


@pytest.mark.parametrize(("seconds", "text"), [(8.4, "8 s"), (59.6, "1 min 00 s"), (7500, "2 h 05 min")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


SCRIPT = """
import sys
from pathlib import Path
from ntl.config.cli import report
from ntl.launch import plan_runs, run_all

runs = [["dataset=noisy_numbers", "loss=ce", f"seed={{seed}}"] for seed in ({lasts}, 1)]
sys.exit(report(lambda: run_all(plan_runs(runs, Path("outputs"))[0], workers=1, target="fake_runs.run").exit_code))
"""


@pytest.fixture
def started(target: str, tmp_path: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A command of two runs in one process, and the folder of the run that it is in the middle of."""
    process = start(tmp_path, "-c", SCRIPT.format(lasts=LASTS))
    return process, until(lambda: next(tmp_path.glob("outputs/*/started"), None)).parent


def process_of(folder: Path) -> Path:
    return Path("/proc", (folder / "environment").read_text().split()[0])


def test_ctrl_c_interrupts_the_runs_and_starts_no_other(started: tuple["subprocess.Popen[str]", Path]) -> None:
    process, folder = started
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopping: each run leaves a checkpoint." in said
    assert "Traceback" not in said
    assert (folder / "checkpoint").exists()
    assert not process_of(folder).exists()
    assert list(folder.parent.iterdir()) == [folder]


def test_a_killed_parent_leaves_no_worker_behind(started: tuple["subprocess.Popen[str]", Path]) -> None:
    process, folder = started
    process.kill()
    process.wait()
    until((folder / "checkpoint").exists)
    until(lambda: not process_of(folder).exists())


def test_a_launcher_of_hydra_goes_on_past_failures(
    planned: Planned, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import fake_runs

    monkeypatch.setattr("ntl.training.train.train", fake_runs.run)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = planned(FAILS, 1, NO_RECORD, 2)
    with capfd.disabled():  # what is printed must reach the descriptors
        report = sweep_all(runs, "basic")
    assert [run.config.seed for run in report.done] == [1, 2]
    assert [ended.error for ended in report.failed] == [
        "RuntimeError: no such thing",
        f"it ended without {runs[2].record}",
    ]
    assert runs[0].log.read_text().startswith("printed by the run\nwritten to descriptor 2\n")
    assert runs[0].log.read_text().endswith("RuntimeError: no such\n thing\n")
