"""Runs in worker processes: one failure or kill does not end the others, Ctrl-C leaves checkpoints and no process."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import fake_runs
import pytest
from commands import start, until
from fake_runs import EXITS, FAILS, KILLED, LASTS, TAKEN

from ntl.launch import workers
from ntl.launch.plan import Run
from ntl.launch.workers import run_all, sweep_all
from ntl.system.machine import available_cores

Planned = Callable[..., list[Run]]


@pytest.mark.usefixtures("faked")
def test_failures_and_kills_do_not_stop_the_others(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.01)  # before the first run ends, however fast the machine
    runs, lines = planned(1, FAILS, KILLED, EXITS, TAKEN), list[str]()
    assert run_all(runs, workers=1, say=lines.append) == [
        "",
        "RuntimeError: no such",
        "its worker process was killed: from outside, or out of memory",
        "written to descriptor 2",  # the last line of its log
        "another process is at this run",
    ]
    assert lines[0] == "5 runs in 1 worker process."
    assert lines[1] == f"  running: {runs[0].id} 0/{runs[0].steps}"
    ended = [line for line in lines[1:] if not line.startswith("  running: ")]
    assert [line[:5] for line in ended] == [f"[{n}/5]" for n in range(1, 6)]
    assert ended[1].startswith(f"[2/5] {runs[1].id}: FAILED after ")
    assert (runs[0].folder / "environment").read_text().split()[1] == str(available_cores())  # it has all cores
    assert runs[0].log.read_text() == "printed by the run\nwritten to descriptor 2\n"
    assert runs[1].log.read_text().endswith("RuntimeError: no such\n thing\n")
    assert "Traceback" not in runs[4].log.read_text()


SCRIPT = """
import sys
from pathlib import Path
from ntl.config.cli import report
from ntl.launch import workers
from ntl.launch.plan import Run

workers.TRAIN = Path({program!r})
runs = [Run.of(["dataset=noisy_numbers", "loss=ce", f"seed={{seed}}"]) for seed in ({lasts}, 1)]
sys.exit(report(lambda: len(workers.run_all(runs, workers=1))))
"""


@pytest.fixture
def started(faked: Path, tmp_path: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A command of two runs in one process, and the folder of the run that it is in the middle of."""
    process = start(tmp_path, "-c", SCRIPT.format(lasts=LASTS, program=str(faked)))
    return process, until(lambda: next(tmp_path.glob("outputs/*/started"), None)).parent


def process_of(folder: Path) -> Path:
    return Path("/proc", (folder / "environment").read_text().split()[0])


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_killed_parent_leaves_no_worker_behind(started: tuple["subprocess.Popen[str]", Path]) -> None:
    process, folder = started
    process.kill()
    process.wait()
    until((folder / "checkpoint").exists)
    until(lambda: not process_of(folder).exists())


@pytest.mark.slow
def test_a_launcher_of_hydra_goes_on_past_failures(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntl.training.train.train", fake_runs.run)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runs = planned(FAILS, 1, TAKEN, 2)
    errors = sweep_all(runs, "basic", say=lambda line: None)
    assert errors == ["RuntimeError: no such", "", "another process is at this run", ""]
    assert runs[0].log.read_text().startswith("printed by the run\nTraceback ")
    assert runs[0].log.read_text().endswith("RuntimeError: no such\n thing\n\n")
    assert "Traceback" not in runs[2].log.read_text()
