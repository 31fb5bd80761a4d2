"""`scripts/reproduce.py`: train the runs that tables still lack, and print the tables; or say what that would cost."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ntl.config.identity import plain
from ntl.config.table import table_names
from ntl.costs.runs import Costs
from ntl.launch.demand import Demand, demands, missing
from ntl.launch.ledger import dry_run, dry_run_text, write_ledger
from ntl.launch.settings import ALL, PARSERS, Settings, parse_settings, short_name
from ntl.launch.status import seconds_left, status_text, statuses
from ntl.launch.table import complete_tables
from ntl.results import RunRecord, load_records
from ntl.system.locks import tell_without_locks
from ntl.system.machine import available_cores

ROOT = Path(__file__).resolve().parents[3]
PUBLISHED = Path("results/runs")

SETTINGS = f"""settings:
  table=NAMES    {", ".join(short_name(name) for name in table_names())}; several as 2,3; or {ALL};
                 or the file of a table of your own, as those in config/table (default: quickstart)
  scale=NAME     tiny, hour, small or paper (default: tiny)
  workers=N      worker processes (default: one a core)
  outputs=DIR    folder of run folders (default: outputs)
  launcher=NAME  one of Hydra's launchers in place of worker processes: slurm, or your own of config/hydra/launcher
  hydra.KEY=...  its settings: hydra.launcher.partition=gpu
  GROUP.KEY=...  a setting of train.py for every run, where no row of the tables pins it: trainer.bf16=true,
                 model.path=FOLDER. It is part of the runs' ids, and the table, in files of another name, says it
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Published records count: what they hold is not trained again."""
    parser = argparse.ArgumentParser(
        prog="reproduce.py", description=__doc__, epilog=SETTINGS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help=" ".join(f"{key}=" for key in PARSERS))
    parser.add_argument("--dry-run", action="store_true", help="print runs, hours and disk, and make nothing")
    parser.add_argument(
        "--status", action="store_true", help="print done, running, queued, failed and missing runs, and the hours left"
    )
    parser.add_argument("--json", action="store_true", help="of --dry-run and --status: print JSON")
    parser.add_argument("--ledger", action="store_true", help="write what every table costs into results/costs.md")
    chosen = parser.parse_intermixed_args(argv)
    settings = parse_settings(chosen.settings)
    if chosen.ledger:
        write_ledger(ROOT / "results" / "costs.md", load_records([ROOT / PUBLISHED]))
        return 0
    if chosen.dry_run:
        _dry_run(settings, chosen.json)
        return 0
    if chosen.status:
        _status(settings, chosen.json)
        return 0
    return complete_tables(
        settings.tables,
        settings.scale,
        records=_folders(settings),
        outputs=settings.outputs,
        workers=settings.workers,
        launcher=settings.launcher,
        hydra=settings.hydra,
        overrides=settings.overrides,
    ).exit_code


def _folders(settings: Settings) -> list[Path]:
    return [PUBLISHED, settings.outputs]


def _demanded(settings: Settings, records: Sequence[RunRecord], quiet: bool) -> list[Demand]:
    tell = (lambda line: None) if quiet else print
    return demands(settings.tables, settings.scale, records, tell, settings.overrides)


def _dry_run(settings: Settings, as_json: bool) -> None:
    records = load_records(_folders(settings))
    demanded = _demanded(settings, records, as_json)
    todo = [run.id for run in missing(demanded, settings.outputs)]
    result = dry_run(demanded, todo, Costs(records))
    print(json.dumps(result, indent=1) if as_json else dry_run_text(result, settings.workers or available_cores()))


def _status(settings: Settings, as_json: bool) -> None:
    records = load_records(_folders(settings))
    demanded = _demanded(settings, records, as_json)
    found = statuses(demanded, settings.outputs)
    if as_json:
        print(json.dumps([plain(status) for status in found], indent=1))
        return
    tell_without_locks(settings.outputs, "outputs", print)  # who is at a run is then known of a cluster's jobs alone
    left = seconds_left(demanded, found, Costs(records))
    print(status_text(found, left, settings.workers or available_cores()))
