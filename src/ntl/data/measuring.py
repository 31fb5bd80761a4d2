"""Time and memory of a piece of work in a process of its own, and what machine that was."""

import csv
import multiprocessing
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ntl.config import UserError

COLUMNS = ("pairs", "stage", "seconds", "pairs_per_s", "mb_per_s", "peak_anon_mib", "padding")
MIB = 1 << 20
Row = dict[str, Any]


def anonymous_bytes(pid: int | str = "self") -> int:
    """Anonymous memory of a process now; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


class Peak(threading.Thread):
    """Watches a process's anonymous memory until it is stopped."""

    def __init__(self, pid: int | str = "self") -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.bytes = 0
        self.done = threading.Event()

    def run(self) -> None:
        """Look every 20 ms."""
        while not self.done.wait(0.02):
            self.bytes = max(self.bytes, anonymous_bytes(self.pid))

    def stop(self) -> int:
        """The peak in bytes."""
        self.done.set()
        self.join()
        return max(self.bytes, anonymous_bytes(self.pid))


def _in_child(pipe: Any, function: Callable[..., Row], arguments: tuple[Any, ...]) -> None:
    peak = Peak()
    peak.start()
    row = function(*arguments)
    pipe.send({**row, "peak_anon_mib": round(peak.stop() / MIB)})


def measured(function: Callable[..., Row], *arguments: Any) -> Row:
    """What ``function`` returns in a fresh process, and the peak of that process's anonymous memory."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_child, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError as error:
        raise UserError(f"the stage {function.__name__} failed; its message stands above.") from error
    finally:
        process.join()


@contextmanager
def timed(row: Row) -> Iterator[None]:
    """Put the seconds that the block takes into the row."""
    started = time.perf_counter()
    yield
    row["seconds"] = max(round(time.perf_counter() - started, 3), 0.001)


def machine() -> str:
    """What the figures were measured on, without its name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("tokenizers", "datasets", "pyarrow", "numpy"))
    cores = len(os.sched_getaffinity(0))
    return (
        f"{model}, {cores} cores, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}, {packages}"
    )


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """A CSV whose first line says on what machine it was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {machine()}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([row.get(name) for name in COLUMNS] for row in rows)
