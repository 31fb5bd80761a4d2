"""Running what has no record yet: in worker processes, which are watched and stopped here, or by a launcher of Hydra.

Neither ``concurrent.futures`` nor loky does the former: where one worker is killed they end the runs of all others, on
Ctrl-C they wait for runs that nobody has interrupted, and workers outlive a killed parent. submitit's local executor
starts all jobs at once, each in a new process.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from select import select
from typing import IO

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.types import HydraContext, RunMode
from rich.console import Console

import ntl
from ntl.config.composition import register
from ntl.config.folders import CONFIG_DIR
from ntl.launch.plan import Ended, Run, plan_runs
from ntl.launch.progress import Display, Estimate
from ntl.launch.worker import error_line, train
from ntl.system.errors import UserError
from ntl.system.machine import available_cores

TRAIN = "ntl.training.run"
POLL_SECONDS = 0.25
# How long to wait before trying again a run that another process is working on.
BUSY_SECONDS = 2.0
# When stopped, a worker in the middle of a run writes a checkpoint first; an idle one only exits.
GRACE_SECONDS, IDLE_SECONDS = 60.0, 10.0


@dataclass(frozen=True)
class Report:
    """The runs of ``run_missing`` by how they ended; ``seconds`` is wall time."""

    done: tuple[Run, ...]
    failed: tuple[Ended, ...]
    skipped: tuple[Run, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        return 1 if self.failed else 0


def _report(ended: Sequence[Ended], skipped: Sequence[Run], started: float) -> Report:
    done = tuple(result.run for result in ended if not result.error)
    failed = tuple(result for result in ended if result.error)
    return Report(done, failed, tuple(skipped), time.monotonic() - started)


def _checked(result: Ended) -> Ended:
    # Tables are computed from records: a run without one has failed, whatever it reported.
    if result.error or result.run.is_done:
        return result
    return replace(result, error=f"it ended without {result.run.record}")


# ---- by a launcher of Hydra


def sweep_missing(
    runs: Iterable[Sequence[str]], launcher: str, settings: Sequence[str] = (), *, root: Path | None = None
) -> Report:
    """Train every run that has no record, as ``hydra/launcher=LAUNCHER`` would in a multirun.

    A run that fails does not stop the others. The output of a run goes to its run.log.

    Args:
        runs: one list of overrides per run.
        settings: of Hydra, such as ``hydra.launcher.partition=gpu``.
        root: folder of run folders; by default the ``output_dir`` of each config.

    UserError, or an error of Hydra, for a launcher that does not exist or has wrong settings.
    """
    started = time.monotonic()
    todo, skipped = plan_runs(runs, root)
    bases = {run.base for run in todo}
    ended: list[Ended] = []
    # Bases come first: the other runs start from their checkpoints.
    for wave in ([run for run in todo if run.id in bases], [run for run in todo if run.id not in bases]):
        for run, result in zip(wave, _launch(wave, launcher, settings) if wave else [], strict=True):
            error = error_line(result._return_value) if result.status is JobStatus.FAILED else ""
            ended.append(_checked(Ended(run, 0.0, error)))
    return _report(ended, skipped, started)


def _launch(todo: Sequence[Run], launcher: str, settings: Sequence[str]) -> Sequence[JobReturn]:
    register()
    GlobalHydra.instance().clear()
    sweep = (todo[0].folder.parent / ".sweep").resolve()
    overrides = [f"hydra/launcher={launcher}", f"hydra.sweep.dir='{sweep}'", *settings]
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3", job_name="reproduce"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        config = hydra.compose_config("train", overrides, RunMode.MULTIRUN, from_shell=False)
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks(config))
        plugin = Plugins.instance().instantiate_launcher(context, train, config)
        return plugin.launch([list(run.overrides) for run in todo], initial_job_idx=0)


# ---- in worker processes


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
    """Train every run that has no outputs/<id>/record.json.

    A run that fails, or whose process is killed, does not stop the others. A run that another process is working on is
    tried again until it has ended. Ctrl-C interrupts the runs, waits for their checkpoints and is raised again.

    Args:
        runs: one list of Hydra overrides per run, for example ``["dataset=noisy_numbers", "loss=ce", "seed=1"]``.
        workers: number of processes; by default one per core. Each gets an equal share of the cores.
        root: folder of run folders; by default the ``output_dir`` of each config.
        target: dotted name of a function ``target(config, overrides=[...])`` that writes the record.
        console: where progress is shown.
        expected: seconds by kind of run, for the time left until a run of that kind has ended here.
        after: called with each run that has ended, whether it succeeded or failed.

    Raises:
        UserError: ``workers`` below 1, or overrides that do not compose (Hydra's errors pass through, too).
    """
    if workers is not None and workers < 1:
        raise UserError(f"workers={workers}: at least 1.")
    started = time.monotonic()
    todo, skipped = plan_runs(runs, root)
    ended: list[Ended] = []
    if todo:
        size = min(workers or available_cores(), len(todo))
        display = Display(len(todo), console or Console())
        have = f", {len(skipped)} more have a record already" if skipped else ""
        display.say(f"{len(todo)} runs in {size} worker process{'es' if size > 1 else ''}{have}.")
        ended = _run_all(todo, size, target, display, Estimate(size, expected or {}), after)
    return _report(ended, skipped, started)


def _run_all(
    todo: Sequence[Run], size: int, target: str, display: Display, estimate: Estimate, after: Callable[[Ended], None]
) -> list[Ended]:
    waiting, ended = list(todo), list[Ended]()
    # Runs that another process is working on. They are tried again at ``next_try``; each is told once.
    busy, told, next_try = list[Run](), set[str](), 0.0
    with Pool(size, target) as pool:
        try:
            while waiting or busy or pool.running:
                if time.monotonic() >= next_try:
                    waiting, busy = [*waiting, *busy], []
                unfinished = {run.id for run in (*waiting, *busy, *(run for run, _ in pool.running))}
                while pool.has_room() and (ready := [run for run in waiting if run.base not in unfinished]):
                    waiting.remove(ready[0])
                    pool.submit(ready[0])
                for result in map(_checked, pool.wait(POLL_SECONDS)):
                    if result.busy:
                        if result.run.id not in told:
                            told.add(result.run.id)
                            display.say(f"{result.run.label}: another process is working on it; waiting for that one.")
                        busy.append(result.run)
                        next_try = time.monotonic() + BUSY_SECONDS
                        continue
                    ended.append(result)
                    if not result.error:
                        estimate.ended(result.run, result.seconds)
                    display.ended(len(ended), result, estimate.left(pool.running, [*waiting, *busy]))
                    after(result)
                display.tick(pool.running, estimate.left(pool.running, [*waiting, *busy]))
        except KeyboardInterrupt:
            display.say("Stopping: each run leaves a checkpoint. Ctrl-C again ends them at once.")
            raise
    return ended


def worker_environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """The environment of a worker: its share of the cores, and this copy of the package."""
    paths = [str(Path(ntl.__file__).resolve().parents[1]), environment.get("PYTHONPATH", "")]
    return {
        **environment,
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


class _Worker:
    run: Run | None = None
    since: float = 0.0  # time.time(), to be compared with files
    started: float = 0.0  # time.monotonic()

    def __init__(self, target: str, threads: int) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``close``
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ntl.launch.worker", target],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=worker_environment(os.environ, threads),
            # Ctrl-C then reaches this process only, which stops its workers itself.
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.replies = self.process.stdin, self.process.stdout

    def give(self, run: Run) -> None:
        self.run, self.since, self.started = run, time.time(), time.monotonic()
        line = json.dumps({"overrides": run.overrides, "log": str(run.log)}) + "\n"
        with suppress(BrokenPipeError):  # it died: ``wait`` notices
            self.requests.write(line.encode())

    def end(self, error: str, busy: bool = False) -> Ended:
        assert self.run is not None
        ended = Ended(self.run, time.monotonic() - self.started, error, busy)
        self.run = None
        return ended

    def why_dead(self) -> str:
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            hint = ": killed from outside, or out of memory" if -code == signal.SIGKILL else ""
            return f"its worker process ended by {name}{hint}"
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"its worker process ended with status {code}{': ' + lines[-1] if lines else ''}"

    def close(self) -> None:
        for file in (self.replies, self.requests, self.errors):
            file.close()


class Pool:
    """At most ``workers`` processes with one run each at a time. As a context manager, it stops them all on exit."""

    def __init__(self, workers: int, target: str) -> None:
        self.size, self._target = workers, target
        self._threads = max(1, available_cores() // workers)
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop(GRACE_SECONDS if kind is KeyboardInterrupt else IDLE_SECONDS)

    @property
    def running(self) -> list[tuple[Run, float]]:
        """Pairs (run, time at which it was started, in seconds since the epoch)."""
        return [(worker.run, worker.since) for worker in self._workers if worker.run is not None]

    def has_room(self) -> bool:
        return len(self.running) < self.size

    def submit(self, run: Run) -> None:
        """Give a run to an idle or new worker. Call only if ``has_room()``."""
        worker = next((worker for worker in self._workers if worker.run is None), None)
        if worker is None:
            worker = _Worker(self._target, self._threads)
            self._workers.append(worker)
            self._selector.register(worker.replies, selectors.EVENT_READ, worker)
        worker.give(run)

    def wait(self, seconds: float) -> list[Ended]:
        """The runs that have ended, after at most ``seconds``; those of dead workers are among them."""
        ready = [key.data for key, _ in self._selector.select(seconds)]
        ended = []
        for worker in list(self._workers):
            # A child of a killed worker may keep its pipe open, so the process is polled as well.
            if worker not in ready and worker.process.poll() is None:
                continue
            line = worker.replies.readline() if worker in ready else b""
            reply = json.loads(line) if line else {"event": "dead"}
            if line:
                ended.append(worker.end(reply["error"], reply["event"] == "busy"))
            elif worker.run is not None:
                ended.append(worker.end(worker.why_dead()))
            if reply["event"] in ("dead", "interrupted"):  # an interrupted one exits now and takes no further run
                worker.process.wait()
                self._forget(worker)
        return ended

    def stop(self, grace: float) -> None:
        """Interrupt all runs, wait up to ``grace`` seconds for all workers to exit, then kill the rest."""
        deadline = time.monotonic() + grace
        try:
            busy = [each for each in self._workers if each.run is not None and each.process.poll() is None]
            for worker in busy:
                worker.process.send_signal(signal.SIGINT)
            for worker in self._workers:
                if worker in busy:  # to a busy worker the end of its requests is a second signal: stop at once
                    select([worker.replies], [], [], max(0.0, deadline - time.monotonic()))
                worker.requests.close()
            for worker in self._workers:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            pass  # Ctrl-C again, or too slow
        finally:
            for worker in list(self._workers):
                if worker.process.poll() is None:
                    os.killpg(worker.process.pid, signal.SIGKILL)
                worker.process.wait()
                self._forget(worker)

    def _forget(self, worker: _Worker) -> None:
        self._selector.unregister(worker.replies)
        worker.close()
        self._workers.remove(worker)
