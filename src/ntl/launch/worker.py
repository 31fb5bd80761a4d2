"""A worker process, ``python -m ntl.launch.worker TARGET``, and what a job of a launcher runs.

A worker imports torch once and runs one job after the other. A job is a JSON line on standard input, {"overrides":
[...], "log": path}; the answer is a JSON line on standard output, {"event": "done" | "failed" | "busy" | "interrupted",
"error": one line}. The output of the job goes to its log. The worker exits at the end of standard input. If that comes
during a job, the parent process is gone, and the job is interrupted as by Ctrl-C.
"""

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

from ntl.system.errors import Busy, Diverged, UserError
from ntl.system.secrets import print_traceback, redact

if TYPE_CHECKING:
    from omegaconf import DictConfig

INTERRUPTED = 130


def main(target: str) -> int:
    """Serve jobs with the function at a dotted path, called as ``target(config, overrides=[...])``."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "r+b") as null:
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)
    jobs: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_listen, args=(requests, jobs, busy), daemon=True).start()
    try:
        while (job := jobs.get()) is not None:
            busy.set()
            reply = _answer(target, job)
            busy.clear()
            print(json.dumps(reply), file=replies, flush=True)
            if reply["event"] == "interrupted":
                return INTERRUPTED
            gc.collect()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 1
    return 0


def _listen(requests: IO[str], jobs: "SimpleQueue[dict[str, Any] | None]", busy: threading.Event) -> None:
    for line in requests:
        jobs.put(json.loads(line))
    jobs.put(None)
    if busy.is_set():
        # A real signal: _thread.interrupt_main would not end a sleep or a wait of the main thread.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def train(raw: "DictConfig") -> None:
    """Train a run in a job of a launcher of Hydra, on whatever machine that is."""
    from ntl.config.composition import config_of_job
    from ntl.config.identity import run_id

    config, overrides = config_of_job(raw)
    with output_to(Path(config.output_dir) / run_id(config) / "run.log"):
        try:
            from ntl.training import run

            run(config, overrides=overrides)
        except Busy:
            raise  # nothing is added to the log of the process that is working on the run
        except Exception:
            print_traceback()
            raise


def _answer(target: str, job: dict[str, Any]) -> dict[str, str]:
    with output_to(Path(job["log"])):
        try:
            # Imported here, so that a failing import fails the job, with a traceback in its log.
            from ntl.config import compose

            config = compose(job["overrides"])
            resolve_name(target)(config, overrides=list(job["overrides"]))
            return {"event": "done", "error": ""}
        except KeyboardInterrupt:
            return {"event": "interrupted", "error": "interrupted"}
        except Busy as error:
            return {"event": "busy", "error": error_line(error)}
        except BaseException as error:  # a SystemExit in one run must not end the others
            print_traceback()
            return {"event": "failed", "error": error_line(error)}


def error_line(error: BaseException) -> str:
    """An exception as one line that is short enough for a terminal."""
    text = redact(" ".join(str(error).split()))
    if isinstance(error, UserError | Diverged):
        return text
    return f"{type(error).__name__}: {text}"[:300]


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
