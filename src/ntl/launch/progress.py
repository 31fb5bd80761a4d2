"""Progress of runs as lines, and an estimate of the time left."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from rich.console import Console

from ntl.launch.plan import Ended, Run

# A line is printed at least this often.
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


class Display:
    """Lines: one for each run that ends, and one for those that run every ``QUIET_SECONDS``."""

    def __init__(self, total: int, console: Console) -> None:
        self._total, self._console = total, console
        self._last = time.monotonic()

    def ended(self, number: int, result: Ended, left: float | None) -> None:
        verdict = f"FAILED after {result.seconds:.1f} s: {result.error}" if result.error else f"{result.seconds:.1f} s"
        rest = f" (about {duration(left)} left)" if left else ""
        self.say(f"[{number:>{len(str(self._total))}}/{self._total}] {result.run.label}: {verdict}{rest}")

    def tick(self, running: Running, left: float | None) -> None:
        if time.monotonic() - self._last < QUIET_SECONDS:
            return
        steps = ", ".join(f"{run.label} {run.step(since)}/{run.max_steps or '?'}" for run, since in running)
        self.say(f"  running: {steps}" + (f"; about {duration(left)} left" if left else ""))

    def say(self, line: str) -> None:
        self._last = time.monotonic()
        # soft_wrap: no line breaks in a log.
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
