"""Real commands on a small table: started, waited for and killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ntl.config.folders import CONFIG_DIR
from ntl.launch.workers import worker_environment

ROOT = CONFIG_DIR.parent
TABLE = """
title: Small
primary: {{row: NTL-WAS, against: CE, metric: test/rmse, named: 2026-11-22}}
blocks:
  - title: noise
    dataset: noisy_numbers
    overrides: {overrides}
    scales:
      tiny: {{seeds: {seeds}}}
    columns: [{{metric: test/rmse, header: RMSE}}]
    rows:
      - {{label: CE, role: baseline, overrides: [loss=ce]}}{broken}
      - {{label: NTL-WAS, role: ntl, overrides: [loss=ntl_was, loss.weight=0.3]}}
"""
# Runs that end with an error, in the middle of the table, where there is no GPU to be seen.
BROKEN = "\n      - {label: broken, overrides: [loss=ce_digits, device=cuda]}"


def table_text(seeds: Sequence[int], overrides: Sequence[str], *, broken: bool = False) -> str:
    """A table of CE and NTL-WAS on noisy_numbers."""
    lists = {"seeds": json.dumps(seeds), "overrides": json.dumps(overrides)}
    return TABLE.format(broken=BROKEN if broken else "", **lists)


def start(folder: Path, script: str, *words: str, **environment: str) -> "subprocess.Popen[str]":
    """A script in a folder, which is created, with one thread and no GPU."""
    folder.mkdir(parents=True, exist_ok=True)
    more = {"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled", **environment}
    return subprocess.Popen(
        [sys.executable, str(ROOT / script), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**worker_environment(os.environ, threads=1), **more},
    )


def until(found: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first value of ``found`` that is true."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(seconds / 1000)
    return value


def descendants(pid: int) -> list[int]:
    """The processes that it started, and those that they did."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(further for child in children for further in descendants(child))]


def kill(process: "subprocess.Popen[Any]") -> None:
    """With all that it started: workers have sessions of their own, so that the group is not enough."""
    for pid in [process.pid, *descendants(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
