import os
import time
from pathlib import Path

import pytest
from fake_runs import KILLED, LASTS, NO_RECORD

import ntl
from ntl.launch.plan import Run, plan_runs
from ntl.launch.pool import Ended, Pool, worker_environment
from ntl.system.machine import available_cores


def planned(folder: Path, *seeds: int) -> list[Run]:
    todo, _ = plan_runs([["dataset=noisy_numbers", "loss=ce", f"seed={seed}"] for seed in seeds], folder)
    return todo


def wait(pool: Pool) -> Ended:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for ended in pool.wait(0.1):
            return ended
    raise AssertionError("no run ended")


def test_environment_of_a_worker() -> None:
    environment = worker_environment({"A": "b", "PYTHONPATH": "mine", "OMP_NUM_THREADS": "64"}, threads=3)
    assert environment["A"] == "b"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["PYTHONPATH"] == f"{Path(ntl.__file__).parents[1]}{os.pathsep}mine"
    assert worker_environment({}, threads=1)["PYTHONPATH"] == str(Path(ntl.__file__).parents[1])


def test_cores() -> None:
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


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


def test_a_worker_that_cannot_start_says_why(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "sitecustomize.py").write_text("import os, sys\nsys.stderr.write('broken\\n')\nos._exit(7)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "bad"))
    (run,) = planned(tmp_path, 1)
    with Pool(1, target) as pool:
        pool.submit(run)
        assert wait(pool).error == "its worker process ended with status 7: broken"


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
