"""Runs trained in worker processes, each of which imports torch once and makes one run at a time."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name

from rich.console import Console

from ntl.launch.plan import Run
from ntl.system.errors import Busy, Diverged, UserError
from ntl.system.machine import available_cores
from ntl.system.secrets import print_traceback, redact

TRAIN = "ntl.training.train.train"
POLL_SECONDS = 0.25
BUSY_SECONDS = 2.0  # until a run that another process is working on is tried again
QUIET_SECONDS = 20.0  # a line of progress is printed at least this often
GRACE_SECONDS = 60.0  # in which interrupted runs write their checkpoints


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``error`` is one line, empty if it succeeded."""

    run: Run
    seconds: float
    error: str


@dataclass(frozen=True)
class Report:
    """The runs that were to be made by how they ended; ``seconds`` is wall time."""

    done: list[Run]
    failed: list[Ended]
    seconds: float

    @classmethod
    def of(cls, ended: Iterable[Ended], started: float) -> "Report":
        done, failed = list[Run](), list[Ended]()
        for each in ended:
            if each.error:
                failed.append(each)
            elif each.run.is_done:
                done.append(each.run)
            else:  # tables are computed from records: a run without one has failed, whatever it reported
                failed.append(Ended(each.run, each.seconds, f"it ended without {each.run.record}"))
        return cls(done, failed, time.monotonic() - started)

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


def run_all(
    runs: Sequence[Run], *, workers: int | None = None, target: str = TRAIN, console: Console | None = None
) -> Report:
    """Train runs in ``workers`` processes, by default one per core. Each gets an equal share of the cores.

    A run that fails, or whose process is killed, does not stop the others. A run that another process is working on is
    tried again until it has ended. Ctrl-C interrupts the runs, waits for their checkpoints and is raised again.

    Args:
        runs: as ``plan_runs`` orders them.
        workers: number of processes.
        target: dotted name of a function ``target(config, overrides=[...])`` that writes the record.
        console: where progress is shown.

    Raises:
        UserError: ``workers`` is below 1.
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: at least 1.")
    started, size = time.monotonic(), min(workers or available_cores(), len(runs))
    waiting, ended, again_at = list(runs), list[Ended](), dict[str, float]()
    progress = _Progress(runs, console or Console())
    if runs:
        progress.say(f"{len(runs)} runs in {size} worker process{'es' if size > 1 else ''}.")
    with _Pool(size, target) as pool:
        try:
            while waiting or pool.running:
                unfinished = {run.id for run in (*waiting, *pool.running)}
                for run in list(waiting):
                    is_free = run.base not in unfinished and again_at.get(run.id, 0.0) <= time.monotonic()
                    if is_free and len(pool.running) < size:
                        waiting.remove(run)
                        pool.start(run)
                for run, seconds, error in pool.wait():
                    if error is None:
                        if run.id not in again_at:
                            progress.say(f"{run.id}: another process is working on it; waiting for that one.")
                        again_at[run.id] = time.monotonic() + BUSY_SECONDS
                        waiting.append(run)
                    else:
                        ended.append(Ended(run, seconds, error))
                        progress.ended(ended[-1])
                progress.tick(pool.running)
        except KeyboardInterrupt:
            progress.say("Stopping: each run leaves a checkpoint. Ctrl-C again ends them at once.")
            raise
    return Report.of(ended, started)


class _Progress:
    """Lines: one for each run that ends, and one for those that run every ``QUIET_SECONDS``."""

    def __init__(self, runs: Sequence[Run], console: Console) -> None:
        self._console, self._left, self._total = console, {run.id: run for run in runs}, len(runs)
        self._started, self._steps, self._last = time.monotonic(), self._steps_left(), time.monotonic()

    def _steps_left(self) -> int:
        return sum(max(0, run.steps - run.step) for run in self._left.values())

    def _time_left(self) -> str:
        """From the steps made since the start; empty before the first."""
        made = self._steps - (left := self._steps_left())
        return f" (about {duration((time.monotonic() - self._started) * left / made)} left)" if made > 0 < left else ""

    def ended(self, result: Ended) -> None:
        del self._left[result.run.id]
        number = f"[{self._total - len(self._left)}/{self._total}]"
        verdict = f"FAILED after {result.seconds:.1f} s: {result.error}" if result.error else f"{result.seconds:.1f} s"
        self.say(f"{number} {result.run.id}: {verdict}{self._time_left()}")

    def tick(self, running: Sequence[Run]) -> None:
        if running and time.monotonic() - self._last >= QUIET_SECONDS:
            steps = ", ".join(f"{run.id} {run.step}/{run.steps or '?'}" for run in running)
            self.say(f"  running: {steps}{self._time_left()}")

    def say(self, line: str) -> None:
        self._last = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)  # no line breaks in a log


def duration(seconds: float) -> str:
    """``8 s``, ``3 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class _Pool:
    """At most ``size`` processes with one run each. As a context manager, it interrupts and ends them all on exit.

    Each is an executor of its own, since one executor ends the runs of all its processes where one of them is killed.
    """

    def __init__(self, size: int, target: str) -> None:
        self._target, self._threads = target, available_cores() // max(size, 1) or 1
        self._workers: list[_Worker] = []

    def __enter__(self) -> "_Pool":
        return self

    @property
    def running(self) -> list[Run]:
        return [worker.run for worker in self._workers if worker.run]

    def start(self, run: Run) -> None:
        """Give a run to an idle process, or to a new one."""
        worker = next((worker for worker in self._workers if not worker.run), None)
        if worker is None:
            worker = _Worker(self._threads)
            self._workers.append(worker)
        worker.start(run, self._target)

    def wait(self) -> list[tuple[Run, float, str | None]]:
        """(run, seconds, error) of what has ended, after at most ``POLL_SECONDS``; the error is None if it was busy."""
        if not self.running:  # all that wait are taken by other processes
            time.sleep(POLL_SECONDS)
        futures.wait([worker.future for worker in self._workers if worker.run], POLL_SECONDS, futures.FIRST_COMPLETED)
        ended = []
        for worker in [each for each in self._workers if each.run and each.future.done()]:
            try:
                error = worker.future.result()
            except futures.BrokenExecutor:
                error = "its worker process was killed: from outside, or out of memory"
                self._workers.remove(worker)
            ended.append((worker.run, time.monotonic() - worker.since, error))
            worker.run = None
        return ended

    def __exit__(self, *_: object) -> None:
        busy = [worker for worker in self._workers if worker.run and not worker.future.done()]
        try:
            for worker in busy:
                os.kill(worker.pid.result(), signal.SIGINT)
            futures.wait([worker.future for worker in busy], GRACE_SECONDS)
        finally:  # Ctrl-C again, or too slow
            for worker in busy:
                if not worker.future.done():
                    os.killpg(worker.pid.result(), signal.SIGKILL)
            for worker in self._workers:
                worker.executor.shutdown()


class _Worker:
    run: Run | None = None
    since: float
    future: "futures.Future[str | None]"

    def __init__(self, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.executor = futures.ProcessPoolExecutor(1, spawn, initializer=_on_start)
        with _environment({"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}):
            self.pid = self.executor.submit(os.getpid)

    def start(self, run: Run, target: str) -> None:
        self.run, self.since = run, time.monotonic()
        self.future = self.executor.submit(make_run, run, target)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """For processes that start inside: libraries read it when they are loaded, before any code of ours."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _on_start() -> None:
    os.setsid()  # Ctrl-C reaches the parent only, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()  # also where it was killed
        # A real signal: _thread.interrupt_main would not end a sleep or a wait of the main thread.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def make_run(run: Run, target: str) -> str | None:
    """Call ``target`` with a run, its output in the run's log. The error in one line, or None if the run was busy."""
    gc.collect()  # what the run before has left
    with output_to(run.log):
        try:
            # Imported here, so that a failing import fails the run, with a traceback in its log.
            resolve_name(target)(run.config, overrides=list(run.overrides))
            return ""
        except KeyboardInterrupt:
            if (parent := multiprocessing.parent_process()) and not parent.is_alive():
                os._exit(130)  # nobody waits for the answer, and there is no other run
            raise
        except Busy:
            return None
        except BaseException as error:  # a SystemExit in one run must not end the others
            print_traceback()
            return error_line(error)


def error_line(error: BaseException) -> str:
    """An exception as one line that is short enough for a terminal."""
    text = redact(" ".join(str(error).split()))
    return text if isinstance(error, UserError | Diverged) else f"{type(error).__name__}: {text}"[:300]


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Append everything that is printed inside to a file."""
    # File descriptors, not sys.stdout: C libraries and child processes print, too.
    log.parent.mkdir(parents=True, exist_ok=True)
    saved = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, old in zip((1, 2), saved, strict=True):
            os.dup2(old, descriptor)
            os.close(old)
