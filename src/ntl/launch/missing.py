"""Run what has no record yet, one run at a time in each worker process."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ntl.launch.plan import Run, plan_runs
from ntl.launch.pool import Ended, Pool
from ntl.launch.progress import Display, Estimate, make_display
from ntl.system.errors import UserError
from ntl.system.machine import available_cores

TRAIN = "ntl.training.run"
POLL_SECONDS = 0.25
# How often a run that another process is at is asked for again.
BUSY_SECONDS = 2.0


@dataclass(frozen=True)
class Report:
    """What became of the runs that were asked for; ``seconds`` is wall time."""

    done: tuple[Run, ...]
    failed: tuple[Ended, ...]
    skipped: tuple[Run, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


def run_missing(
    runs: Iterable[Sequence[str]],
    *,
    workers: int | None = None,
    root: Path | None = None,
    target: str = TRAIN,
    console: Console | None = None,
    expected: Mapping[tuple[str, ...], float] | None = None,
    after: Callable[[Ended], None] = lambda result: None,
) -> Report:
    """Train every run, given as Hydra overrides, whose outputs/<id>/record.json is not there.

    Args:
        runs: one list of overrides a run, for example ``["dataset=noisy_numbers", "loss=ce", "seed=1"]``.
        workers: processes; by default one a core. Each gets an equal share of the cores.
        root: folder of run folders; by default the configs' own ``output_dir``.
        target: dotted path of what is called, as ``target(config, overrides=[...])``, and writes the record.
        console: where progress goes; bars on a terminal, lines elsewhere.
        expected: seconds by kind of run, for the time left while no run of that kind has ended here.
        after: called with each run that has ended, well or not.

    A run that fails, or whose process is killed, does not stop the others. A run that another process is at is waited
    for. Ctrl-C interrupts the runs, waits for their checkpoints and is raised again.

    Raises:
        UserError: ``workers`` below 1, or overrides that do not compose (Hydra's errors pass through, too).
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: at least 1.")
    started = time.monotonic()
    todo, skipped = plan_runs(runs, root)
    size = min(workers or available_cores(), max(1, len(todo)))
    console = console or Console()
    ended: list[Ended] = []
    if todo:
        display = make_display(len(todo), console)
        have = f", {len(skipped)} more have a record already" if skipped else ""
        display.say(f"{len(todo)} runs in {size} worker process{'es' if size > 1 else ''}{have}.")
        try:
            ended = _run_all(todo, size, target, display, Estimate(size, expected or {}), after)
        finally:
            display.close()
    return Report(
        done=tuple(result.run for result in ended if not result.error),
        failed=tuple(result for result in ended if result.error),
        skipped=tuple(skipped),
        seconds=time.monotonic() - started,
    )


def _run_all(
    todo: Sequence[Run], size: int, target: str, display: Display, estimate: Estimate, after: Callable[[Ended], None]
) -> list[Ended]:
    waiting, busy, ended = list(todo), _Busy(display), []
    with Pool(size, target) as pool:
        try:
            while waiting or busy.runs or pool.running:
                waiting += busy.due()
                unfinished = {run.id for run in (*waiting, *busy.runs, *(run for run, _ in pool.running))}
                while pool.has_room() and (ready := [run for run in waiting if run.base not in unfinished]):
                    waiting.remove(ready[0])
                    pool.submit(ready[0])
                for result in map(_checked, pool.wait(POLL_SECONDS)):
                    if result.busy:
                        busy.add(result.run)
                        continue
                    ended.append(result)
                    if not result.error:
                        estimate.ended(result.run, result.seconds)
                    display.ended(len(ended), result, estimate.left(pool.running, [*waiting, *busy.runs]))
                    after(result)
                display.tick(pool.running, estimate.left(pool.running, [*waiting, *busy.runs]))
        except KeyboardInterrupt:
            display.say("Stopping: each run leaves a checkpoint. Ctrl-C again ends them at once.")
            raise
    return ended


class _Busy:
    """Runs that another process is at: asked for again and again, until it has ended or left a record."""

    def __init__(self, display: Display) -> None:
        self.runs: list[Run] = []
        self._display, self._told, self._next = display, set[str](), 0.0

    def add(self, run: Run) -> None:
        if run.id not in self._told:
            self._told.add(run.id)
            self._display.say(f"{run.label}: another process is at it; waiting for that one.")
        self.runs.append(run)
        self._next = time.monotonic() + BUSY_SECONDS

    def due(self) -> list[Run]:
        if time.monotonic() < self._next:
            return []
        runs, self.runs = self.runs, []
        return runs


def _checked(result: Ended) -> Ended:
    # A table is computed from records: a run without one has not ended well, whatever it says.
    if result.error or result.run.is_done:
        return result
    return Ended(result.run, result.seconds, f"it ended without {result.run.record}")
