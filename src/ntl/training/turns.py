"""Time and memory of calls that take turns, beside those of a baseline, and the file that they are written to."""

import csv
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from ntl.training.environment import processor_name

BASELINE = "ce"
Call = Callable[[], Any]
Clock = Callable[[], float]
Row = dict[str, Any]


def seconds(call: Call, device: str, clock: Clock = time.process_time) -> float:
    """Of one call: by the clock on a GPU, idle before and after; else by ``clock``, unless another is given processor
    time, all threads together, in which other work on the machine does not count.
    """
    if device == "cpu":
        started = clock()
        call()
        return clock() - started
    torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def peak_bytes(call: Call, device: str) -> int:
    """The most that one call holds at a time, beyond what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its lines would come between ours
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    results: Any = recorded.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def ratio_quartiles(times: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Of times / others, turn by turn: the median and the quartiles."""
    pairs = zip(times, others, strict=True)
    low, middle, high = quantiles((one / other for one, other in pairs), n=4, method="inclusive")
    return {"ratio": middle, "ratio_low": low, "ratio_high": high}


def measure(calls: Mapping[str, Call], device: str, rounds: int, clock: Clock = time.process_time) -> Iterator[Row]:
    """A row a call: median seconds, the ratio to ``BASELINE`` of the same turn with its quartiles, peak memory."""
    for call in calls.values():  # the first call pays for kernels and caches
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(seconds(calls[name], device, clock))
    for name, call in calls.items():
        yield {
            "loss": name,
            "seconds": median(times[name]),
            **ratio_quartiles(times[name], times[BASELINE]),
            "peak_mib": peak_bytes(call, device) / 2**20,
        }


def short(value: Any) -> Any:
    """Four digits of a measured number."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def remark() -> str:
    """What was measured, with which versions and on what."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else processor_name()
    return f"Python {platform.python_version()}, {packages}, {device}; ratios to CE of the same turn, with quartiles"


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """The rows under a line of versions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {remark()}\n")
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
