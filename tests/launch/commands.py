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
# A run of a second.
SMALL = [
    *("model=gpt2_tiny", "model.n_embd=16", "model.n_layer=1", "trainer.batch_size=16", "trainer.logging_steps=5"),
    *("dataset.train_rows=400", "dataset.validation_rows=50", "dataset.test_rows=50", "trainer.save_steps=20"),
]


def table_text(seeds: Sequence[int], overrides: Sequence[str], *, broken: bool = False) -> str:
    """A table of CE and NTL-WAS on noisy_numbers."""
    lists = {"seeds": json.dumps(seeds), "overrides": json.dumps(overrides)}
    return TABLE.format(broken=BROKEN if broken else "", **lists)


def environment(**more: str) -> dict[str, str]:
    """One thread, no GPU, and this tree."""
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    fixed = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled"}
    return {**os.environ, "PYTHONPATH": paths, **fixed, **more}


def start(folder: Path, *words: str, **more: str) -> "subprocess.Popen[str]":
    """A Python program in a folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment(**more), **pipes)


def until(found: Callable[[], Any], seconds: float = 60.0) -> Any:
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
