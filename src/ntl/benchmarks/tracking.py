"""``scripts/benchmark_tracking.py``: how long training waits for W&B, measured with the real client in offline mode.

Each training runs in a process of its own, because the client keeps its first settings. The runs take turns, and ratios
to ``tracking=none`` are taken within a turn, so that a slow phase of the machine affects both sides. The share of the
time in which the training thread waits, wall time less its processor time, does not depend on other load.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ntl.benchmarks.timing import ratio_quartiles
from ntl.benchmarks.training import Clock
from ntl.config import compose
from ntl.training.parts import RunParts
from ntl.training.tracking import METRICS, MetricsFile, mirror

NONE, OFFLINE = "tracking=none", "offline"
Environment = Mapping[str, str]
WAYS: dict[str, Environment] = {NONE: {}, OFFLINE: {"WANDB_MODE": "offline"}}


class Clocks(Clock):
    """Records the time at which each optimizer step ended, and the processor time of the training thread."""

    def __init__(self) -> None:
        super().__init__()
        self.worked: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record both times."""
        super().on_step_end(args, state, control, **kwargs)
        self.worked.append(time.thread_time())


def seconds_per_step(overrides: Sequence[str], environment: Environment, warm_up: int) -> tuple[float, float]:
    """Return the mean wall time and processor time of a step of our trainer, after the first ``warm_up`` steps."""
    os.environ |= environment
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = compose([*overrides, f"output_dir={folder}", "tracking=wandb" if environment else NONE])
        clock = Clocks()
        parts = RunParts(config, say=lambda line: None)
        trainer = parts.trainer(Path(folder) / "run", callbacks=[clock])
        trainer.args.set_save("no")
        # The client's warnings are discarded.
        with closing(mirror(config, "benchmark", Path(folder), lambda line: None)) as tracker:
            trainer.add_callback(MetricsFile(Path(folder) / METRICS, tracker.log))
            trainer.train()
        return mean_step(clock.ends, warm_up), mean_step(clock.worked, warm_up)


def mean_step(ends: Sequence[float], warm_up: int) -> float:
    """Return the mean time of a step after ``warm_up`` steps, given the times at which steps ended."""
    return (ends[-1] - ends[warm_up - 1]) / (len(ends) - warm_up)


def _in_a_process(*arguments: Any) -> tuple[float, float]:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(seconds_per_step, arguments)


def compare(overrides: Sequence[str], *, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Measure each of `WAYS` in turns.

    Returns a row for each: the median time of a step, its ratio to `NONE` of the same turn with quartiles, and the
    median and maximum of the share of it in which the training thread waits.
    """
    settings = [*overrides, f"trainer.max_steps={steps}"]
    times: dict[str, list[tuple[float, float]]] = {}
    names = list(WAYS)
    with tempfile.TemporaryDirectory() as data:
        _in_a_process([*settings, f"data_dir={data}"], {}, 1)  # prepares the data and fills the file cache
        for turn in range(rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds = _in_a_process([*settings, f"data_dir={data}"], WAYS[name], max(1, steps // 5))
                times.setdefault(name, []).append(seconds)
    rows = []
    for name in names:
        own, baseline = ([seconds for seconds, _ in times[key]] for key in (name, NONE))
        waits = [1 - worked / seconds for seconds, worked in times[name]]
        rows.append(
            {
                "tracking": name,
                "steps": steps,
                "rounds": rounds,
                "step_s": median(own),
                **ratio_quartiles(own, baseline),
                "waits": median(waits),
                "waits_at_most": max(waits),
            }
        )
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Print a row for each of `WAYS`, as a table or with ``--json`` as JSON."""
    parser = argparse.ArgumentParser(prog="benchmark_tracking.py", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, for example model=t5_tiny")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(argv)
    rows = compare(chosen.overrides, steps=chosen.steps, rounds=chosen.rounds)
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    title = f"Training with W&B, {torch.get_num_threads()} threads, medians of {chosen.rounds} rounds"
    table = Table("tracking", "ms a step", "ratio", "quartiles", "waits", "at most", title=title)
    for row in rows:
        quartiles = f"{row['ratio_low']:.3f} to {row['ratio_high']:.3f}"
        waits = f"{row['waits']:.2%}", f"{row['waits_at_most']:.2%}"
        table.add_row(row["tracking"], f"{1000 * row['step_s']:.2f}", f"{row['ratio']:.3f}", quartiles, *waits)
    Console().print(table)
