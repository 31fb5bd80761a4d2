"""``python killed_at.py EVENT NAME NTH train.py ...``: train.py, until kill -9 strikes it at an operation on a file.

EVENT is the operation's audit event, as Python raises it before the system is called: ``open`` (for writing) or
``os.rename``; NAME the pattern of the file's name, for a rename the new one; NTH counts them from 1.
"""

import os
import runpy
import signal
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    awaited, pattern, nth = sys.argv[1], sys.argv[2], int(sys.argv[3])
    seen = 0

    def strike(event: str, arguments: tuple[Any, ...]) -> None:
        global seen
        if event != awaited:
            return
        path = arguments[0] if event == "open" else arguments[1]
        writes = event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if isinstance(path, str | os.PathLike) and writes and fnmatch(Path(path).name, pattern):
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(strike)
    sys.argv = sys.argv[4:]
    runpy.run_path(sys.argv[0], run_name="__main__")
