"""Runs trained in worker processes, each of which imports torch once and makes one run at a time; or by a launcher of
Hydra, as its multirun makes them, for example one Slurm job each."""

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
from typing import TYPE_CHECKING

from ntl.launch.plan import Run, waves
from ntl.system.errors import Busy, Diverged, UserError
from ntl.system.machine import available_cores
from ntl.system.secrets import print_traceback, redact

if TYPE_CHECKING:
    from omegaconf import DictConfig

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
    size, errors, told = min(workers or available_cores(), len(runs)), dict[str, str](), time.monotonic()
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
                        errors[run.id] = error = worker.result()
                        told = time.monotonic()
                        took = f"{told - worker.since:.1f} s"
                        verdict = f"FAILED after {took}: {error}" if error else took
                        say(f"[{len(errors)}/{len(runs)}] {run.id}: {verdict}")
                running = [worker.run for worker in pool if worker.run]
                if running and time.monotonic() - told >= QUIET_SECONDS:
                    told = time.monotonic()
                    say("  running: " + ", ".join(f"{run.id} {run.step}/{run.steps or '?'}" for run in running))
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
    try:
        with output_to(run.log):
            # Imported here, so that a failing import fails the run, with a traceback in its log.
            resolve_name(target)(run.config, overrides=list(run.overrides))
        return ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a SystemExit in one run must not end the others
        return error_line(error)


def error_line(error: BaseException) -> str:
    """An exception as one line that is short enough for a terminal."""
    text = redact(" ".join(str(error).split()))
    return text if isinstance(error, UserError | Diverged) else f"{type(error).__name__}: {text}"[:300]


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Append everything that is printed inside to a file, and the traceback of an error."""
    # File descriptors, not sys.stdout: C libraries and child processes print, too.
    log.parent.mkdir(parents=True, exist_ok=True)
    saved = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException as error:
        # Of Busy nothing is added to the log of the process that is working on the run.
        if not isinstance(error, Busy | KeyboardInterrupt):
            print_traceback()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, old in zip((1, 2), saved, strict=True):
            os.dup2(old, descriptor)
            os.close(old)


# ---- by a launcher


def sweep_all(
    runs: Sequence[Run], launcher: str, settings: Sequence[str] = (), say: Callable[[str], None] = print
) -> list[str]:
    """Train runs by ``hydra/launcher=LAUNCHER``, with ``settings`` of Hydra; one that fails does not stop the others.

    Returns:
        The error of each run in one line, empty for those that ended well.

    Raises:
        KeyboardInterrupt: jobs that were submitted go on; ``say`` is told so.
        An error of Hydra: the launcher does not exist, or has wrong settings. One of submitit: a job was killed.
    """
    errors = dict[str, str]()
    for wave in waves(runs):
        say(f"{len(wave)} runs by launcher={launcher}; how far they are: add --status to this command.")
        try:
            errors |= zip((run.id for run in wave), _sweep(wave, launcher, settings), strict=True)
        except KeyboardInterrupt:
            say("Jobs that were submitted go on. Run the same command again when they have ended.")
            raise
    return [errors[run.id] for run in runs]


def _sweep(runs: Sequence[Run], launcher: str, settings: Sequence[str]) -> list[str]:
    from hydra import initialize_config_dir
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.plugins import Plugins
    from hydra.core.utils import JobStatus
    from hydra.types import HydraContext, RunMode

    from ntl.config.composition import register
    from ntl.config.folders import CONFIG_DIR

    register()
    GlobalHydra.instance().clear()
    folder = (runs[0].folder.parent / ".sweep").resolve()
    overrides = [f"hydra/launcher={launcher}", f"hydra.sweep.dir='{folder}'", *settings]
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3", job_name="reproduce"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        config = hydra.compose_config("train", overrides, RunMode.MULTIRUN, from_shell=False)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        plugin = Plugins.instance().instantiate_launcher(context, train_job, config)
        results = plugin.launch([list(run.overrides) for run in runs], initial_job_idx=0)
    return [error_line(each._return_value) if each.status is JobStatus.FAILED else "" for each in results]


def train_job(raw: "DictConfig") -> None:
    """Train a run in a job of a launcher, on whatever machine that is; its output goes to its run.log.

    A job of several tasks is one run with a rank in each.
    """
    from ntl.config.composition import config_of_job
    from ntl.config.identity import run_id

    rank = _rank_of_task()
    config, overrides = config_of_job(raw)
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")):  # requeued: its own checkpoint is the newest
        config.resume = "auto"
    try:
        with output_to(Path(config.output_dir) / run_id(config) / "run.log"):
            from ntl.training.train import train

            train(config, overrides=overrides)
    except KeyboardInterrupt:
        # The time limit: the first rank puts the job back into the queue, which an error of another would prevent.
        sys.exit(0 if rank else 1)
    except Exception as error:
        if rank is not None:
            print(error_line(error), file=sys.stderr)  # of another process's run nothing is in the log
            sys.exit(1)  # else this task would end as if all was well, and the others wait for it
        raise


def _rank_of_task() -> int | None:
    """Set what torch.distributed reads, in a job of several tasks. Returns the rank; None in a job of one task."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return None
    from submitit.helpers import TorchDistributedEnvironment

    ranks = TorchDistributedEnvironment()
    if ranks.world_size == 1:
        return None
    # Every rank sees all devices of its node and takes that of its LOCAL_RANK.
    ranks.export(set_cuda_visible_devices=False, overwrite=True)
    return ranks.rank
