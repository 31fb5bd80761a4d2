"""Worker processes, seen from outside: started with the right environment, given jobs, watched, stopped."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import ntl
from ntl.launch.plan import Run
from ntl.system.machine import available_cores

# A worker that is told to stop in the middle of a run writes a checkpoint first; an idle one only ends.
GRACE_SECONDS, IDLE_SECONDS = 60.0, 10.0


@dataclass(frozen=True)
class Ended:
    """``error`` is empty when the run ended well; ``busy`` when another process was at it."""

    run: Run
    seconds: float
    error: str
    busy: bool = False


def worker_environment(environment: Mapping[str, str], threads: int) -> dict[str, str]:
    """What a worker gets: its share of the cores, and this very copy of the package."""
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
        with suppress(BrokenPipeError):  # it died; the next look at it says so
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
    """At most ``workers`` processes, each with one run at a time. A context manager: leaving it stops them all."""

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
        """(run, when it was started in seconds since the epoch)."""
        return [(worker.run, worker.since) for worker in self._workers if worker.run is not None]

    def has_room(self) -> bool:
        return len(self.running) < self.size

    def submit(self, run: Run) -> None:
        """Give a run to an idle worker, or to a new one. Call only where there is room."""
        idle = [worker for worker in self._workers if worker.run is None]
        (idle[0] if idle else self._start()).give(run)

    def wait(self, seconds: float) -> list[Ended]:
        """The runs that ended, at latest after ``seconds``; dead workers are noticed here."""
        ready = {key.data for key, _ in self._selector.select(seconds)}
        ended = []
        for worker in list(self._workers):
            # A child of a killed worker may hold its pipe open, so the process itself is asked as well.
            if id(worker) not in ready and worker.process.poll() is None:
                continue
            assert worker.process.stdout is not None
            line = worker.process.stdout.readline() if id(worker) in ready else b""
            if line:
                reply = json.loads(line)
                ended.append(worker.end(reply["error"], reply["event"] == "busy"))
                if reply["event"] == "interrupted":  # it ends now, and takes no further run
                    worker.process.wait()
                    self._forget(worker)
            elif worker.run is not None:
                ended.append(worker.end(worker.why_dead()))
                self._forget(worker)
            else:
                self._forget(worker)
        return ended

    def stop(self, grace: float) -> None:
        """Interrupt what runs, let the workers end for ``grace`` seconds together, kill those that are left."""
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
            pass  # asked a second time, or too slow
        finally:
            for worker in list(self._workers):
                if worker.process.poll() is None:
                    os.killpg(worker.process.pid, signal.SIGKILL)
                worker.process.wait()
                self._forget(worker)

    def _start(self) -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ntl.launch.worker", self._target],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=worker_environment(os.environ, self._threads),
            # Ctrl-C reaches this process alone, which then stops its workers in order.
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
