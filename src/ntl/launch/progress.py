"""Progress of runs: bars on a terminal, plain lines elsewhere, and an estimate of the time left."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from ntl.launch.plan import Ended, Run

# Without a terminal, a line is printed at least this often.
QUIET_SECONDS = 20.0

Running = Sequence[tuple[Run, float]]


def duration(seconds: float) -> str:
    """``8 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Estimate:
    """Time left, from finished runs of the same kind, else from the steps of a running one, else from ``expected``.

    ``expected`` is seconds by kind of run.
    """

    def __init__(
        self, workers: int, expected: Mapping[tuple[str, ...], float], clock: Callable[[], float] = time.time
    ) -> None:
        self._workers, self._expected, self._clock = workers, expected, clock
        self._seconds: dict[tuple[str, ...], list[float]] = {}

    def ended(self, run: Run, seconds: float) -> None:
        self._seconds.setdefault(run.kind, []).append(seconds)

    def left(self, running: Running, waiting: Sequence[Run]) -> float | None:
        """Seconds until the last run ends, on ``workers`` processes; None while a kind of run is unknown."""
        known = {kind: mean(values) for kind, values in self._seconds.items()}
        for run, since in running:
            if run.kind not in known and run.max_steps and (step := run.step(since)):
                known[run.kind] = (self._clock() - since) * run.max_steps / step
        known = {**self._expected, **known}
        if any(run.kind not in known for run in (*(run for run, _ in running), *waiting)):
            return None
        seconds = [max(0.0, known[run.kind] - (self._clock() - since)) for run, since in running]
        seconds += [known[run.kind] for run in waiting]
        return max([sum(seconds) / self._workers, *seconds])


def result_line(number: int, total: int, result: Ended) -> str:
    verdict = f"FAILED after {result.seconds:.1f} s: {result.error}" if result.error else f"{result.seconds:.1f} s"
    return f"[{number:>{len(str(total))}}/{total}] {result.run.label}: {verdict}"


class Display:
    """Lines: one for each run that ends, and one for those that run every ``QUIET_SECONDS``."""

    def __init__(self, total: int, console: Console) -> None:
        self._total, self._console = total, console
        self._last = time.monotonic()

    def ended(self, number: int, result: Ended, left: float | None) -> None:
        rest = f" (about {duration(left)} left)" if left else ""
        self.say(result_line(number, self._total, result) + rest)

    def tick(self, running: Running, left: float | None) -> None:
        if time.monotonic() - self._last < QUIET_SECONDS:
            return
        steps = ", ".join(f"{run.label} {run.step(since)}/{run.max_steps or '?'}" for run, since in running)
        self.say(f"  running: {steps}" + (f"; about {duration(left)} left" if left else ""))

    def say(self, line: str) -> None:
        self._last = time.monotonic()
        # soft_wrap: no line breaks in a log.
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Restore the terminal."""


class LiveDisplay(Display):
    """A bar for all runs and one for each running one, below the lines of those that have ended."""

    def __init__(self, total: int, console: Console) -> None:
        super().__init__(total, console)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=console,
            transient=True,
        )
        self._all = self._bars.add_task("runs", total=total, note="")
        self._tasks: dict[str, Any] = {}
        self._bars.start()

    def ended(self, number: int, result: Ended, left: float | None) -> None:
        if result.run.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(result.run.id))
        self._bars.update(self._all, completed=number)
        self.say(result_line(number, self._total, result))

    def tick(self, running: Running, left: float | None) -> None:
        self._bars.update(self._all, note="" if left is None else f"about {duration(left)} left")
        for run, since in running:
            if run.id not in self._tasks:
                self._tasks[run.id] = self._bars.add_task(run.label, total=run.max_steps or None, note="")
            step = run.step(since)
            note = "" if step else "starting"
            self._bars.update(
                self._tasks[run.id], completed=step, note="scoring" if step >= run.max_steps > 0 else note
            )

    def say(self, line: str) -> None:
        self._bars.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._bars.stop()


def make_display(total: int, console: Console | None = None) -> Display:
    """Bars where the console is a terminal, lines elsewhere."""
    console = console or Console()
    return LiveDisplay(total, console) if console.is_terminal else Display(total, console)
