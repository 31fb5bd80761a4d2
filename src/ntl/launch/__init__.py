"""Which runs a table still lacks, and running them: one at a time in each of several worker processes."""

from typing import TYPE_CHECKING

from ntl.system.lazy import exports

if TYPE_CHECKING:
    from ntl.launch.missing import Report as Report
    from ntl.launch.missing import run_missing as run_missing
    from ntl.launch.plan import Run as Run
    from ntl.launch.table import complete_tables as complete_tables

__getattr__, __all__ = exports(__name__, __file__)
