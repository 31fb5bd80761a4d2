"""The missing runs of tables: found, and trained in several worker processes or by a launcher of Hydra."""

from typing import TYPE_CHECKING

from ntl.system.lazy import exports

if TYPE_CHECKING:
    from ntl.launch.plan import plan_runs as plan_runs
    from ntl.launch.table import complete_tables as complete_tables
    from ntl.launch.workers import run_all as run_all

__getattr__, __all__ = exports(__name__, __file__)
