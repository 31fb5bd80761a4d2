"""Runs trained in worker processes, each of which imports torch once and makes one run at a time."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pkgutil import resolve_name

from ntl.launch.plan import Run, waves
from ntl.system.errors import Busy, Diverged, UserError
from ntl.system.machine import available_cores
from ntl.system.secrets import print_traceback, redact

TRAIN = "ntl.training.train.train"
POLL_SECONDS = 0.25
QUIET_SECONDS = 20.0  # a line of progress is printed at least this often
GRACE_SECONDS = 60.0  # in which interrupted runs write their checkpoints


def run_all(
    runs: Sequence[Run], *, workers: int | None = None, target: str = TRAIN, say: Callable[[str], None] = print
) -> list[str]:
    """Train runs in ``workers`` processes, by default one per core. Each gets an equal share of the cores.

    A run that fails, or whose process is killed, does not stop the others. Ctrl-C interrupts the runs, waits for their
    checkpoints and is raised again.

    Args:
        runs: as ``plan_runs`` orders them.
        target: dotted name of a function ``target(config, overrides=[...])`` that writes the record.
        say: is told the progress, line by line.

    Returns:
        The error of each run in one line, empty for those that ended well.
    """
    size, errors, progress = min(workers or available_cores(), len(runs)), dict[str, str](), _Progress(runs, say)
    say(f"{len(runs)} runs in {size} worker process{'es' if size > 1 else ''}.")
    pool = [_Worker(target, available_cores() // size or 1) for _ in range(size)]
    try:
        for waiting in waves(runs):
            while waiting or any(worker.run for worker in pool):
                for worker in pool:
                    if waiting and not worker.run:
                        worker.start(waiting.pop(0))
                wait([worker.pipe for worker in pool if worker.run], POLL_SECONDS)
                for worker in pool:
                    if (run := worker.run) and worker.pipe.poll():
                        errors[run.id] = worker.result()
                        progress.ended(run, time.monotonic() - worker.since, errors[run.id])
                progress.tick([worker.run for worker in pool if worker.run])
    except KeyboardInterrupt:
        say("Stopping: each run leaves a checkpoint. Ctrl-C again ends them at once.")
        raise
    finally:
        _end(pool)
    return [errors[run.id] for run in runs]


class _Worker:
    """A process: runs go into its pipe, and their errors come out."""

    run: Run | None = None
    since = 0.0

    def __init__(self, target: str, threads: int) -> None:
        self._given = target, threads
        self._spawn()

    def _spawn(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(theirs, *self._given))
        self.process.start()
        theirs.close()  # so that the pipe ends with the process

    def start(self, run: Run) -> None:
        if not self.process.is_alive():
            self._spawn()
        self.run, self.since = run, time.monotonic()
        self.pipe.send(run)

    def result(self) -> str:
        """The error of its run, which has ended."""
        self.run = None
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return "its worker process was killed: from outside, or out of memory"


def _end(pool: Sequence[_Worker]) -> None:
    """Interrupt the runs, wait for their checkpoints, and end the processes."""
    try:
        for worker in pool:
            if worker.run and worker.process.is_alive():
                os.kill(worker.process.pid or 0, signal.SIGINT)
            worker.pipe.close()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in pool:
            worker.process.join(max(0, deadline - time.monotonic()))
    finally:  # Ctrl-C again, or too slow
        for worker in pool:
            if worker.process.is_alive():
                os.killpg(worker.process.pid or 0, signal.SIGKILL)


class _Progress:
    """Lines: one for each run that ends, and one for those that run every ``QUIET_SECONDS``."""

    def __init__(self, runs: Sequence[Run], say: Callable[[str], None]) -> None:
        self._say, self._left, self._total = say, {run.id: run for run in runs}, len(runs)
        self._started = self._last = time.monotonic()
        self._steps = self._steps_left()

    def _steps_left(self) -> int:
        return sum(max(0, run.steps - run.step) for run in self._left.values())

    def _line(self, text: str) -> None:
        """A line with the time left, from the steps made since the start; without it before the first."""
        made = self._steps - (left := self._steps_left())
        self._last = time.monotonic()
        time_left = duration((self._last - self._started) * left / made) if made > 0 < left else ""
        self._say(f"{text} (about {time_left} left)" if time_left else text)

    def ended(self, run: Run, seconds: float, error: str) -> None:
        del self._left[run.id]
        verdict = f"FAILED after {seconds:.1f} s: {error}" if error else f"{seconds:.1f} s"
        self._line(f"[{self._total - len(self._left)}/{self._total}] {run.id}: {verdict}")

    def tick(self, running: Sequence[Run]) -> None:
        if running and time.monotonic() - self._last >= QUIET_SECONDS:
            self._line("  running: " + ", ".join(f"{run.id} {run.step}/{run.steps or '?'}" for run in running))


def duration(seconds: float) -> str:
    """``8 s``, ``3 min 20 s``, ``2 h 05 min``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


# ---- in a worker process


def _work(pipe: Connection, target: str, threads: int) -> None:
    os.environ |= {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    os.setsid()  # Ctrl-C reaches the parent only, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the parent closes the pipe, or interrupts
        while True:
            pipe.send(make_run(pipe.recv(), target))


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()  # also where it was killed
        # A real signal: _thread.interrupt_main would not end a sleep or a wait of the main thread.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def make_run(run: Run, target: str) -> str:
    """Call ``target`` with a run, its output in the run's log. Returns the error in one line, empty without one."""
    gc.collect()  # what the run before has left
    with output_to(run.log):
        try:
            # Imported here, so that a failing import fails the run, with a traceback in its log.
            resolve_name(target)(run.config, overrides=list(run.overrides))
            return ""
        except KeyboardInterrupt:
            raise
        except Busy as error:  # nothing is added to the log of the process that is working on the run
            return str(error)
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
