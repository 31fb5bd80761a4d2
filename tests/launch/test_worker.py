import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import until
from fake_runs import EXITS, FAILS, LASTS

from ntl.config import compose, run_id
from ntl.launch.workers import worker_environment


@pytest.fixture
def process(target: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "ntl.launch.worker", target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=worker_environment(os.environ, threads=1),
    ) as started:
        yield started
        started.kill()


def job(folder: Path, seed: int) -> dict[str, Any]:
    overrides = ["dataset=noisy_numbers", "loss=ce", f"seed={seed}", f"output_dir={folder}"]
    return {"overrides": overrides, "log": str(folder / f"{seed}.log")}


def send(process: "subprocess.Popen[str]", job: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(job) + "\n")


def answer(process: "subprocess.Popen[str]") -> dict[str, str]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_one_process_serves_many_jobs_and_failures_do_not_end_it(
    process: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    for seed, event, error in (
        (1, "done", ""),
        (FAILS, "failed", "RuntimeError: no such thing"),
        (EXITS, "failed", "SystemExit: 3"),
        (2, "done", ""),
    ):
        send(process, job(tmp_path, seed))
        assert answer(process) == {"event": event, "error": error}
    send(process, {"overrides": ["trainer.lr=-1"], "log": str(tmp_path / "log")})
    reply = answer(process)
    assert (reply["event"], "trainer.lr" in reply["error"]) == ("failed", True)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0
    pids = {path.read_text().split()[0] for path in tmp_path.glob("*/environment")}
    assert pids == {str(process.pid)}

    assert (tmp_path / "1.log").read_text() == "printed by the run\nwritten to descriptor 2\n"
    log = (tmp_path / f"{FAILS}.log").read_text()
    assert "Traceback" in log
    assert log.endswith("RuntimeError: no such\n thing\n")


def test_when_its_owner_is_gone_the_job_is_interrupted(process: "subprocess.Popen[str]", tmp_path: Path) -> None:
    send(process, job(tmp_path, LASTS))
    folder = tmp_path / run_id(compose(job(tmp_path, LASTS)["overrides"]))
    started = time.monotonic()
    until((folder / "started").exists)
    assert process.stdin is not None
    process.stdin.close()
    assert answer(process)["event"] == "interrupted"
    assert time.monotonic() < started + 30
    assert process.wait(30) == 130
    assert (folder / "checkpoint").exists()
