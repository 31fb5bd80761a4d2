"""Which runs a table still lacks, and running them: one at a time in each of several worker processes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.launch.missing import Report as Report
    from ntl.launch.missing import run_missing as run_missing
    from ntl.launch.plan import Run as Run
    from ntl.launch.table import complete_table as complete_table

_EXPORTS = {
    "Report": "missing",
    "Run": "plan",
    "complete_table": "table",
    "run_missing": "missing",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
