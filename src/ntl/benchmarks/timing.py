"""Time and memory of calls that alternate with a baseline, and of functions that run in a separate process."""

import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

from ntl.system.errors import UserError
from ntl.system.machine import available_cores, device_name, pick_device

BASELINE = "ce"
MIB = 1 << 20
POLL_SECONDS = 0.02  # between two readings of a process's memory
Call = Callable[[], Any]
Row = dict[str, Any]
T = TypeVar("T")


def now(device: str) -> float:
    """Return the seconds of a clock: on a GPU wall time after a synchronisation, on a CPU processor time.

    The latter is that of all threads, so that other work on the machine does not count.
    """
    if device != "cuda":
        return time.process_time()
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()


def seconds(call: Call, device: str) -> float:
    """Return the seconds that one call takes, by ``now``."""
    started = now(device)
    call()
    return now(device) - started


def peak_bytes(call: Call, device: str) -> int:
    """Return the peak memory of one call, in bytes beyond the memory in use before it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # silences the profiler's own log lines
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    results: Any = recorded.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def in_turns(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Return what each side returns in each turn.

    The sides rotate, and ratios are to be taken within a turn, so that a slow phase of the machine affects all sides.
    """
    found: dict[str, list[T]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(sides[name]())
    return found


def times_in_turns(calls: Mapping[str, Call], device: str, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call in each turn, after one that compiles kernels and fills caches."""
    for call in calls.values():
        call()
    return in_turns({name: partial(seconds, call, device) for name, call in calls.items()}, rounds)


def summary(times: Sequence[float], others: Sequence[float]) -> dict[str, float]:
    """Return the median of the seconds, and the median and quartiles of the ratios times / others of the same turn."""
    ratios = [own / other for own, other in zip(times, others, strict=True)]
    low, middle, high = quantiles(ratios, n=4, method="inclusive")
    return {"seconds": median(times), "ratio": middle, "ratio_low": low, "ratio_high": high}


def measure(calls: Mapping[str, Call], device: str, rounds: int) -> Iterator[Row]:
    """Yield a row for each call: its median seconds, the ratio to ``BASELINE`` with quartiles, and its peak memory."""
    times = times_in_turns(calls, device, rounds)
    for name, call in calls.items():
        yield {"loss": name, **summary(times[name], times[BASELINE]), "peak_mib": peak_bytes(call, device) / MIB}


def show(rows: Sequence[Row], as_json: bool, title: str, columns: Mapping[str, str]) -> None:
    """Print the rows as JSON, or as a table with a format of the row for each column."""
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    import pandas as pd

    lines = [{name: cell.format_map(row) for name, cell in columns.items()} for row in rows]
    print(title, pd.DataFrame(lines).to_string(index=False), sep="\n\n")


def rounded(row: Row) -> Row:
    """Return the row with its measured numbers to four digits."""
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in row.items()}


def remark(*packages: str) -> str:
    """Return a description of the machine: package versions, the GPU or else the processor, cores, memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)]
    return ", ".join([*found, device_name(pick_device("auto")), f"{available_cores()} cores, {memory:.0f} GiB"])


def write_csv(path: Path, rows: Sequence[Row], remark: str, columns: Sequence[str] = ()) -> None:
    """Write the rows under a comment line with ``remark``; the default ``columns`` are those of the first row."""
    import pandas as pd

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {remark}\n")
        table = pd.DataFrame(rows, columns=pd.Index(columns or rows[0]), dtype=object)
        table.to_csv(stream, index=False, lineterminator="\n")


def _in_child(pipe: Any, function: Callable[..., Row], arguments: tuple[Any, ...]) -> None:
    pipe.send(function(*arguments))


def measured(function: Callable[..., Row], *arguments: Any) -> Row:
    """Run ``function`` in a new process; return its row with the peak of that process's anonymous memory."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_child, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    peak = 0
    while not ours.poll(POLL_SECONDS):
        with suppress(OSError):  # it has ended
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))])
    try:
        return {**ours.recv(), "peak_anon_mib": round(peak / 1024)}
    except EOFError as error:
        raise UserError(f"the stage {function.__name__} failed; its message stands above.") from error
    finally:
        process.join()


def timed(call: Call) -> Row:
    """Return a row with the seconds that the call takes, on the clock."""
    started = time.perf_counter()
    call()
    return {"seconds": max(round(time.perf_counter() - started, 3), 0.001)}
