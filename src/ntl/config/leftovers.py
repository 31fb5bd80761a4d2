"""Temporary folders of processes that were killed."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

# A process that works in a folder writes there every few minutes at least.
UNUSED_SECONDS = 24 * 3600.0


def sweep(parent: Path, pattern: str, unused_seconds: float = UNUSED_SECONDS) -> None:
    """Remove the folders of ``parent`` that match and in which nothing was written for so long."""
    for folder in parent.glob(pattern):
        # Another process may be at the same.
        with suppress(FileNotFoundError):
            written = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
            if folder.is_dir() and time.time() - written >= unused_seconds:
                shutil.rmtree(folder, ignore_errors=True)
