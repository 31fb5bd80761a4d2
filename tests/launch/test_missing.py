import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_runs import FAILS, KILLED, LASTS, NO_RECORD, TAKEN
from rich.console import Console

from ntl.config import UserError
from ntl.launch import missing, run_missing
from ntl.launch.pool import worker_environment


def overrides(*seeds: int) -> list[list[str]]:
    return [["dataset=noisy_numbers", "loss=ce", f"seed={seed}"] for seed in seeds]


def test_what_has_a_record_is_not_run_again(target: str, tmp_path: Path) -> None:
    out = io.StringIO()
    first = run_missing(overrides(1), root=tmp_path, target=target, console=Console(file=out))
    assert [run.label for run in first.done] == ["noisy_numbers ce seed 1"]
    environment = (first.done[0].folder / "environment").read_text()
    second = run_missing(overrides(1, 2), root=tmp_path, target=target, console=Console(file=out))
    assert [run.label for run in second.done] == ["noisy_numbers ce seed 2"]
    assert [run.label for run in second.skipped] == ["noisy_numbers ce seed 1"]
    assert (first.done[0].folder / "environment").read_text() == environment
    third = run_missing(overrides(1, 2), root=tmp_path, target="no.such.target", console=Console(file=out))
    assert (third.done, third.failed, len(third.skipped), third.exit_code) == ((), (), 2, 0)
    assert "1 runs in 1 worker process, 1 more have a record already." in out.getvalue()


def test_failed_and_killed_runs_do_not_stop_the_others(target: str, tmp_path: Path) -> None:
    out = io.StringIO()
    seeds = (FAILS, KILLED, NO_RECORD, 1, 2)
    report = run_missing(overrides(*seeds), workers=2, root=tmp_path, target=target, console=Console(file=out))
    assert {run.label for run in report.done} == {"noisy_numbers ce seed 1", "noisy_numbers ce seed 2"}
    errors = {ended.run.label.split()[-1]: ended.error for ended in report.failed}
    assert errors[str(FAILS)] == "RuntimeError: no such thing"
    assert "SIGKILL" in errors[str(KILLED)]
    assert errors[str(NO_RECORD)].startswith("it ended without ")
    assert report.exit_code == 1
    assert f"{report.failed[0].run.label}: FAILED after " in out.getvalue()
    # They can be had another time: what failed has no record.
    assert not any(ended.run.record.exists() for ended in report.failed)


def test_a_run_that_another_process_is_at_is_waited_for(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing, "BUSY_SECONDS", 0.2)
    out, after = io.StringIO(), []
    report = run_missing(
        overrides(TAKEN, 1), workers=1, root=tmp_path, target=target, console=Console(file=out), after=after.append
    )
    assert [run.label[-1] for run in report.done] == ["1", "7"]  # the others go on
    assert [ended.run for ended in after] == list(report.done)
    assert report.exit_code == 0
    lines = out.getvalue().splitlines()
    assert lines.count(f"noisy_numbers ce seed {TAKEN}: another process is at it; waiting for that one.") == 1
    assert [line[:5] for line in lines if line.startswith("[")] == ["[1/2]", "[2/2]"]
    assert report.done[1].log.read_text().count("Traceback") == 0


def test_at_least_one_worker() -> None:
    with pytest.raises(UserError, match="at least 1"):
        run_missing(overrides(1), workers=0)


SCRIPT = """
import sys
from pathlib import Path
from ntl.config.cli import report
from ntl.launch import run_missing

runs = [["dataset=noisy_numbers", "loss=ce", f"seed={{seed}}"] for seed in ({lasts}, 1)]
sys.exit(report(lambda: run_missing(runs, workers=1, root=Path(sys.argv[1]), target="fake_runs.run")))
"""


def test_ctrl_c_interrupts_the_runs_and_starts_no_other(target: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(lasts=LASTS), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=worker_environment(os.environ, threads=1),
    )
    deadline = time.monotonic() + 30
    while not (started := list(tmp_path.glob("*/started"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopping: each run leaves a checkpoint." in out
    assert "Traceback" not in err
    folder = started[0].parent
    assert (folder / "checkpoint").exists()
    assert not Path(f"/proc/{(folder / 'environment').read_text().split()[0]}").exists()
    assert list(tmp_path.glob("*")) == [folder]


def test_a_killed_parent_leaves_no_worker_behind(target: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(lasts=LASTS), str(tmp_path)],
        stdout=subprocess.DEVNULL,
        env=worker_environment(os.environ, threads=1),
    )
    deadline = time.monotonic() + 30
    while not (started := list(tmp_path.glob("*/started"))):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    while not (started[0].parent / "checkpoint").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
