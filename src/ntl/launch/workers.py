"""Running what has no record yet: worker processes with one run at a time each, which are watched and stopped here.

Neither ``concurrent.futures`` nor loky does this: where one worker is killed they end the runs of all others, on Ctrl-C
they wait for runs that nobody has interrupted, and workers outlive a killed parent. submitit's local executor starts
all jobs at once, each in a new process.
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
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.console import Console

import ntl
from ntl.launch.plan import Ended, Run, plan_runs
from ntl.launch.progress import Display, Estimate, make_display
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
        console: where progress is shown: bars on a terminal, lines elsewhere.
        expected: seconds by kind of run, for the time left until a run of that kind has ended here.
        after: called with each run that has ended, whether it succeeded or failed.

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
    waiting, busy, ended = list(todo), _BusyRuns(display), []
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


class _BusyRuns:
    """Runs that another process is working on; they are tried again after ``BUSY_SECONDS``."""

    def __init__(self, display: Display) -> None:
        self.runs: list[Run] = []
        self._display, self._told, self._next = display, set[str](), 0.0

    def add(self, run: Run) -> None:
        if run.id not in self._told:
            self._told.add(run.id)
            self._display.say(f"{run.label}: another process is working on it; waiting for that one.")
        self.runs.append(run)
        self._next = time.monotonic() + BUSY_SECONDS

    def due(self) -> list[Run]:
        if time.monotonic() < self._next:
            return []
        runs, self.runs = self.runs, []
        return runs


def _checked(result: Ended) -> Ended:
    # Tables are computed from records: a run without one has failed, whatever it reported.
    if result.error or result.run.is_done:
        return result
    return Ended(result.run, result.seconds, f"it ended without {result.run.record}")


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


@dataclass
class _Worker:
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]
    run: Run | None = None
    since: float = 0.0  # time.time(), to be compared with files
    started: float = 0.0  # time.monotonic()

    def give(self, run: Run) -> None:
        assert self.process.stdin is not None
        self.run, self.since, self.started = run, time.time(), time.monotonic()
        line = json.dumps({"overrides": run.overrides, "log": str(run.log)}) + "\n"
        with suppress(BrokenPipeError):  # it died: ``wait`` notices
            self.process.stdin.write(line.encode())

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
        idle = [worker for worker in self._workers if worker.run is None]
        (idle[0] if idle else self._start()).give(run)

    def wait(self, seconds: float) -> list[Ended]:
        """The runs that have ended, after at most ``seconds``; those of dead workers are among them."""
        ready = {key.data for key, _ in self._selector.select(seconds)}
        ended = []
        for worker in list(self._workers):
            # A child of a killed worker may keep its pipe open, so the process is polled as well.
            if id(worker) not in ready and worker.process.poll() is None:
                continue
            assert worker.process.stdout is not None
            line = worker.process.stdout.readline() if id(worker) in ready else b""
            if line:
                reply = json.loads(line)
                ended.append(worker.end(reply["error"], reply["event"] == "busy"))
                if reply["event"] == "interrupted":  # it exits now and takes no further run
                    worker.process.wait()
                    self._forget(worker)
            elif worker.run is not None:
                ended.append(worker.end(worker.why_dead()))
                self._forget(worker)
            else:
                self._forget(worker)
        return ended

    def stop(self, grace: float) -> None:
        """Interrupt all runs, wait up to ``grace`` seconds for all workers to exit, then kill the rest."""
        deadline = time.monotonic() + grace
        try:
            for worker in self._workers:
                assert worker.process.stdin is not None
                if worker.run is not None and worker.process.poll() is None:
                    worker.process.send_signal(signal.SIGINT)
                worker.process.stdin.close()
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

    def _start(self) -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _forget
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ntl.launch.worker", self._target],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=worker_environment(os.environ, self._threads),
            # Ctrl-C then reaches this process only, which stops its workers itself.
            start_new_session=True,
        )
        assert process.stdout is not None
        worker = _Worker(process, errors)
        self._workers.append(worker)
        self._selector.register(process.stdout, selectors.EVENT_READ, id(worker))
        return worker

    def _forget(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        assert worker.process.stdin is not None
        self._selector.unregister(worker.process.stdout)
        worker.process.stdout.close()
        worker.process.stdin.close()
        worker.errors.close()
        self._workers.remove(worker)
