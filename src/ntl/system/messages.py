"""What the package says while it works is logged. A command prints it; in Python, ``logging.basicConfig`` shows it."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ntl.system.errors import redact

logger = logging.getLogger("ntl")


class _Printer(logging.Handler):
    """Prints to a stream of ``sys`` as it then is, with secrets replaced; of several ranks, the first prints."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        if os.environ.get("RANK", "0") == "0":
            print(redact(record.getMessage()), file=getattr(sys, self.stream), flush=True)


@contextmanager
def printed(stream: str = "stdout") -> Iterator[None]:
    """Print what the package logs, once; inside another ``printed``, that one does."""
    if any(isinstance(handler, _Printer) for handler in logger.handlers):
        yield
        return
    handler, level = _Printer(stream), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # Hydra's own handler would print it again
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True
