"""Missing runs are made: one failure or kill does not end the others, Ctrl-C leaves checkpoints and no process."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import until
from fake_runs import FAILS, KILLED, LASTS, NO_RECORD, TAKEN
from rich.console import Console

from ntl.launch import run_missing, workers
from ntl.launch.plan import Ended, Run, plan_runs
from ntl.launch.workers import Pool, sweep_missing, worker_environment
from ntl.results import read_record
from ntl.system.machine import available_cores


def overrides(*seeds: int) -> list[list[str]]:
    return [["dataset=noisy_numbers", "loss=ce", f"seed={seed}"] for seed in seeds]


def planned(folder: Path, *seeds: int) -> list[Run]:
    return plan_runs(overrides(*seeds), folder)[0]


def wait(pool: Pool) -> Ended:
    return until(lambda: pool.wait(0.1))[0]


def test_idle_workers_are_used_again_and_get_their_share_of_the_cores(target: str, tmp_path: Path) -> None:
    first, second = planned(tmp_path, 1, NO_RECORD)
    with Pool(1, target) as pool:
        for run in (first, second):
            pool.submit(run)
            assert not pool.has_room()
            assert [item for item, _ in pool.running] == [run]
            ended = wait(pool)
            assert (ended.run, ended.error) == (run, "")
            assert pool.has_room()
    one, other = ((run.folder / "environment").read_text() for run in (first, second))
    assert one == other
    assert one.split()[1] == str(available_cores())


def test_a_killed_worker_is_noticed_and_replaced(target: str, tmp_path: Path) -> None:
    killed, fine = planned(tmp_path, KILLED, 1)
    with Pool(1, target) as pool:
        pool.submit(killed)
        ended = wait(pool)
        assert ended.run == killed
        assert ended.error == "its worker process ended by SIGKILL: killed from outside, or out of memory"
        pool.submit(fine)
        ended = wait(pool)
        assert (ended.run, ended.error) == (fine, "")
        assert fine.record.is_file()


def test_leaving_the_pool_leaves_no_process(target: str, tmp_path: Path) -> None:
    (run,) = planned(tmp_path, LASTS)
    with Pool(1, target) as pool:
        pool.submit(run)
        while not (run.folder / "started").exists():
            pool.wait(0.05)
        pid = int((run.folder / "environment").read_text().split()[0])
        started = time.monotonic()
        pool.stop(grace=20.0)
        assert time.monotonic() - started < 10  # it ended when asked, it was not waited out
    assert (run.folder / "checkpoint").exists()
    assert not Path(f"/proc/{pid}").exists()


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
    monkeypatch.setattr(workers, "BUSY_SECONDS", 0.2)
    out, after = io.StringIO(), []
    report = run_missing(
        overrides(TAKEN, 1), workers=1, root=tmp_path, target=target, console=Console(file=out), after=after.append
    )
    assert [run.label[-1] for run in report.done] == ["1", "7"]  # the others go on
    assert [ended.run for ended in after] == list(report.done)
    assert report.exit_code == 0
    lines = out.getvalue().splitlines()
    assert lines.count(f"noisy_numbers ce seed {TAKEN}: another process is working on it; waiting for that one.") == 1
    assert [line[:5] for line in lines if line.startswith("[")] == ["[1/2]", "[2/2]"]
    assert report.done[1].log.read_text().count("Traceback") == 0


SCRIPT = """
import sys
from pathlib import Path
from ntl.config.cli import report
from ntl.launch import run_missing

runs = [["dataset=noisy_numbers", "loss=ce", f"seed={{seed}}"] for seed in ({lasts}, 1)]
sys.exit(report(lambda: run_missing(runs, workers=1, root=Path(sys.argv[1]), target="fake_runs.run")))
"""


def started(outputs: Path, log: Path) -> tuple["subprocess.Popen[str]", Path]:
    """The script, and the folder of the run that it is in the middle of."""
    command = [sys.executable, "-c", SCRIPT.format(lasts=LASTS), str(outputs)]
    environment = worker_environment(os.environ, threads=1)
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True, env=environment)
    return process, until(lambda: next(outputs.glob("*/started"), None)).parent


def test_ctrl_c_interrupts_the_runs_and_starts_no_other(target: str, tmp_path: Path) -> None:
    outputs, log = tmp_path / "outputs", tmp_path / "log"
    process, folder = started(outputs, log)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert "Stopping: each run leaves a checkpoint." in log.read_text()
    assert "Traceback" not in log.read_text()
    assert (folder / "checkpoint").exists()
    assert not Path(f"/proc/{(folder / 'environment').read_text().split()[0]}").exists()
    assert list(outputs.glob("*")) == [folder]


def test_a_killed_parent_leaves_no_worker_behind(target: str, tmp_path: Path) -> None:
    process, folder = started(tmp_path / "outputs", tmp_path / "log")
    process.kill()
    process.wait()
    until((folder / "checkpoint").exists)


# ---- by a launcher of Hydra


@pytest.mark.usefixtures("fake_training")
def test_hydras_own_launcher_makes_what_is_missing_and_goes_on_past_failures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with capfd.disabled():  # what is printed must reach the descriptors
        report = sweep_missing(overrides(FAILS, 1, NO_RECORD, 2), "basic", root=tmp_path)
    assert [run.label for run in report.done] == ["noisy_numbers ce seed 1", "noisy_numbers ce seed 2"]
    failed = {ended.run.label.split()[-1]: ended for ended in report.failed}
    assert failed[str(FAILS)].error == "RuntimeError: no such thing"
    assert failed[str(NO_RECORD)].error.startswith("it ended without ")
    assert report.exit_code == 1
    log = failed[str(FAILS)].run.log.read_text()
    assert log.startswith("printed by the run\nwritten to descriptor 2\n")
    assert log.endswith("RuntimeError: no such\n thing\n")
    # A run's record does not say by what it was launched.
    record = read_record(report.done[0].record)
    assert record.overrides == [*overrides(1)[0], f"output_dir='{tmp_path}'"]

    again = sweep_missing(overrides(1, 2), "basic", root=tmp_path)
    assert (again.done, again.failed, len(again.skipped)) == ((), (), 2)
