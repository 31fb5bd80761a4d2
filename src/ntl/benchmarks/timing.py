"""The harness of all benchmarks: calls in turns, their ratios and memory, and rows as a table, JSON or CSV."""

import argparse
import gc
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

from ntl.system.errors import UserError
from ntl.system.machine import available_cores, device_name, pick_device
from ntl.system.messages import logger

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler's own log lines
MIB = 1 << 20
Call = Callable[[], Any]
Row = dict[str, Any]
K = TypeVar("K")


def add_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add what every benchmark takes."""
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds, for a median (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the rows to this CSV file, each as it is known")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")


def clock(device: str) -> Callable[[], float]:
    """Return torch's clock, which waits for a GPU, and for a CPU processor time, which other work does not change."""
    from torch.utils.benchmark import timer

    return timer if device == "cuda" else time.process_time


def in_turns(calls: Mapping[K, Call], device: str, rounds: int) -> tuple[dict[K, list[float]], dict[K, list[Any]]]:
    """Return the seconds of each call in each turn, and what it returned.

    The calls rotate, and ratios are to be taken within a turn, so that a slow phase of the machine affects all. The
    ``Timer`` of torch.utils.benchmark would measure one call after the other, each behind two that warm it up.
    Calls of more than a second are logged.
    """
    seconds: dict[K, list[float]] = {name: [] for name in calls}
    results: dict[K, list[Any]] = {name: [] for name in calls}
    tick, names = clock(device), list(calls)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            started = tick()
            results[name].append(calls[name]())
            seconds[name].append(tick() - started)
            if seconds[name][-1] > 1:
                logger.info(f"turn {turn + 1}/{rounds}, {name}: {seconds[name][-1]:.1f} s")
    return seconds, results


def ratios(times: Sequence[float], others: Sequence[float], name: str = "ratio") -> Row:
    """Return the median and the quartiles of times / others of the same turn."""
    quotients = [a / b for a, b in zip(times, others, strict=True)]
    low, middle, high = quantiles(quotients, n=4, method="inclusive")
    return {name: middle, f"{name}_low": low, f"{name}_high": high}


def measure(calls: Mapping[K, Call], device: str, rounds: int) -> Iterator[tuple[K, Row]]:
    """Yield for each call its median seconds, the ratio to the first, and its peak memory, after one call of each."""
    for call in calls.values():
        call()
    seconds, _ = in_turns(calls, device, rounds)
    base = next(iter(seconds.values()))
    for name, call in calls.items():
        peak = {"peak_mib": peak_bytes(call, device) / MIB}
        yield name, {"seconds": median(seconds[name]), **ratios(seconds[name], base), **peak}


def peak_bytes(call: Call, device: str) -> int:
    """Return the peak memory of one call, in bytes beyond the memory in use before it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    gc.collect()  # else what earlier calls left would be freed meanwhile
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events: Any = recorded.profiler.kineto_results.events()  # pyright: ignore
    sizes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate((size for _, size in sizes), initial=0))


def launched(call: Call, device: str) -> Row:
    """Return how many kernels a call starts, and how often it waits for the GPU; on a CPU, its innermost operators."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (device == "cuda")]) as recorded:
        call()
    events: Any = recorded.events()
    names = [event.name for event in events if not event.cpu_children]
    if device != "cuda":
        return {"operators": sum(name.startswith("aten::") for name in names)}
    waits = sum(name.endswith("Synchronize") for name in names)
    return {"kernels": sum("LaunchKernel" in name for name in names), "synchronizations": waits}


def show(rows: Iterable[Row], arguments: argparse.Namespace, title: str) -> None:
    """Print rows, measured numbers to four digits: as JSON, or as a table below what all rows have in common.

    ``--out`` gets each row as it is known, under a line with versions and the machine. A CPU has one thread. UserError
    for a device that is not available, or too few rounds.
    """
    import pandas as pd
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device; choose --device cpu")
    if arguments.rounds < 2:
        raise UserError(f"--rounds {arguments.rounds}: the spread needs at least 2")
    torch.set_num_threads(1 if arguments.device == "cpu" else torch.get_num_threads())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    used = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("torch", "transformers"))]
    machine = [device_name(pick_device(arguments.device)), f"{available_cores()} cores, {memory:.0f} GiB"]
    remark, shown, frame = f"# {', '.join([*used, *machine])}\n", list[Row](), pd.DataFrame()
    for row in rows:
        shown.append({name: float(f"{cell:.4g}") if isinstance(cell, float) else cell for name, cell in row.items()})
        frame = pd.DataFrame(shown, dtype=object)
        if arguments.out:
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(remark + frame.to_csv(index=False, lineterminator="\n"), encoding="utf-8")
    if arguments.json:
        return print(json.dumps(shown, indent=1))
    common = [name for name in frame if len({*map(str, frame[name])}) == 1 < len(frame)]
    print(title, ", ".join(f"{name}={frame[name][0]}" for name in common), sep="\n")
    print(frame.drop(columns=common).to_string(index=False))
