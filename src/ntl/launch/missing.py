"""Run what has no record yet, one run at a time in each worker process."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ntl.config import UserError
from ntl.launch.plan import Run, plan_runs
from ntl.launch.pool import Ended, Pool, available_cores
from ntl.launch.progress import Estimate, make_display

TRAIN = "ntl.training.run"
POLL_SECONDS = 0.25


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
) -> Report:
    """Train every run, given as Hydra overrides, whose outputs/<id>/record.json is not there.

    Args:
        runs: one list of overrides a run, for example ``["dataset=noisy_numbers", "loss=ce", "seed=1"]``.
        workers: processes; by default one a core. Each gets an equal share of the cores.
        root: folder of run folders; by default the configs' own ``output_dir``.
        target: dotted path of what is called, as ``target(config, overrides=[...])``, and writes the record.
        console: where progress goes; bars on a terminal, lines elsewhere.

    A run that fails, or whose process is killed, does not stop the others; its last error line is told at once and
    again at the end. Ctrl-C interrupts the runs, waits for their checkpoints and is raised again.

    Raises:
        UserError: ``workers`` below 1, or overrides that do not compose (Hydra's errors pass through, too).
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: at least 1.")
    started = time.monotonic()
    todo, skipped = plan_runs(runs, root)
    size = min(workers or available_cores(), max(1, len(todo)))
    ended = _run_all(todo, size, target, console or Console(), len(skipped)) if todo else []
    report = Report(
        done=tuple(result.run for result in ended if not result.error),
        failed=tuple(result for result in ended if result.error),
        skipped=tuple(skipped),
        seconds=time.monotonic() - started,
    )
    _tell_failures(report, console or Console())
    return report


def _run_all(todo: Sequence[Run], size: int, target: str, console: Console, skipped: int) -> list[Ended]:
    waiting, ended = list(todo), []
    display, estimate = make_display(len(todo), console), Estimate(size)
    have = f", {skipped} more have a record already" if skipped else ""
    display.say(f"{len(todo)} runs in {size} worker process{'es' if size > 1 else ''}{have}.")
    try:
        with Pool(size, target) as pool:
            try:
                while waiting or pool.running:
                    while waiting and pool.has_room():
                        pool.submit(waiting.pop(0))
                    for result in pool.wait(POLL_SECONDS):
                        ended.append(_checked(result))
                        if not ended[-1].error:
                            estimate.ended(result.run, result.seconds)
                        display.ended(len(ended), ended[-1], estimate.left(pool.running, waiting))
                    display.tick(pool.running, estimate.left(pool.running, waiting))
            except KeyboardInterrupt:
                display.say("Stopping: each run leaves a checkpoint. Ctrl-C again ends them at once.")
                raise
    finally:
        display.close()
    return ended


def _checked(result: Ended) -> Ended:
    # A table is computed from records: a run without one has not ended well, whatever it says.
    if result.error or result.run.record.is_file():
        return result
    return Ended(result.run, result.seconds, f"it ended without {result.run.record}")


def _tell_failures(report: Report, console: Console) -> None:
    for result in report.failed:
        console.print(f"{result.run.label} failed: {result.error}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  log: {result.run.log}", markup=False, highlight=False, soft_wrap=True)
