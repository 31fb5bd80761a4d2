"""Killing a command with all that it started."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any


def descendants(pid: int) -> list[int]:
    """The processes that it started, and those that they did."""
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(further for child in children for further in descendants(child))]


def kill(process: "subprocess.Popen[Any]") -> None:
    """All at once: workers have sessions of their own, so that the group is not enough."""
    for pid in [process.pid, *descendants(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
