"""What the package says while it works is logged. A command prints it; in Python, ``logging.basicConfig`` shows it."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ntl.system.errors import redact


def _redacted(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact(record.getMessage()), ()
    return True


logger = logging.getLogger("ntl")  # the only one: a filter does not see what a child logs
logger.addFilter(_redacted)


class _Printer(logging.Handler):
    """Prints to a stream of ``sys`` as it then is; of several ranks, the first prints."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self.stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        if "MASTER_ADDR" not in os.environ or os.environ.get("RANK", "0") == "0":
            print(record.getMessage(), file=getattr(sys, self.stream), flush=True)


@contextmanager
def printed(stream: str = "stdout", least: int = logging.INFO) -> Iterator[None]:
    """Print what the package logs, from the level ``least`` on, here and nowhere else: not where an outer one does."""
    handlers, level, propagate = logger.handlers, logger.level, logger.propagate
    others = [handler for handler in handlers if not isinstance(handler, _Printer)]
    logger.handlers, logger.propagate = [*others, _Printer(stream)], False  # Hydra's own handler would print it again
    logger.setLevel(least)
    logger.disabled = False  # logging.config disables the loggers that it does not know
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
