"""A worker process: ``python -m ntl.launch.worker TARGET``. It imports once and runs one job after the other.

A job is a JSON line on standard input, {"overrides": [...], "log": path}; the answer is a JSON line on standard
output, {"event": "done" | "failed" | "busy" | "interrupted", "error": one line}. Whatever the job itself prints goes to
its log. When standard input ends the worker ends; when that happens during a job, whoever gave it is gone, and the job
is interrupted as by Ctrl-C.
"""

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from queue import SimpleQueue
from typing import IO, Any

from ntl.system.errors import Busy
from ntl.system.secrets import print_traceback, redact

INTERRUPTED = 130
# An attempt prints a line in five seconds at most: some 4 MB in a week.
LOG_BYTES = 4_000_000


def main(argv: Sequence[str]) -> int:
    """Serve jobs with the function at a dotted path, called as ``target(config, overrides=[...])``."""
    (target,) = argv
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
        # A real signal, to that thread: _thread.interrupt_main would not end a sleep or a wait.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _answer(target: str, job: dict[str, Any]) -> dict[str, str]:
    with output_to(Path(job["log"])):
        try:
            # Inside, so that a failing import is the job's failure, with its traceback in the log.
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
    """The last line of a traceback, short enough for a terminal."""
    from ntl.system.errors import Diverged, UserError

    text = redact(" ".join(str(error).split()))
    if isinstance(error, UserError | Diverged):
        return text
    return f"{type(error).__name__}: {text}"[:300]


def rotate(log: Path) -> None:
    """Make room for more: a log of ``LOG_BYTES`` or more becomes ``<name>.1``, in place of the one that had that name.

    Of a run that is resumed again and again the last two of these files stay; what one attempt prints is not cut.
    """
    with suppress(FileNotFoundError):
        if log.stat().st_size < LOG_BYTES:
            return
        from ntl.training.folder import is_taken

        # A process that is at the run goes on writing to the file, whatever it is called.
        if not is_taken(log.parent):
            log.replace(log.with_name(f"{log.name}.1"))


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """All that is printed inside goes to the end of a file."""
    # File descriptors, not sys.stdout: libraries written in C and child processes print, too.
    log.parent.mkdir(parents=True, exist_ok=True)
    rotate(log)
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
    sys.exit(main(sys.argv[1:]))
