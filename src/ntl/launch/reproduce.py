"""``scripts/reproduce.py``: train missing runs and print tables, or print what they take.

Settings are written as ``table=2,a6 scale=tiny workers=4``. Any other setting is one of train.py, for all runs.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ntl.config import Config
from ntl.config.cli import Parser
from ntl.config.folders import choices
from ntl.config.identity import plain
from ntl.config.suggestions import did_you_mean, nearest
from ntl.launch.plan import OUTPUTS, demands, is_file, runs_to_make
from ntl.results import load_records
from ntl.results.spec import table_names
from ntl.system.errors import UserError

PUBLISHED = Path("results/runs")
ALL = "all"
# Settings of train.py that cannot be set for all runs of a table, and what to do instead. Decoding settings are not
# part of a run's id: a record with such a setting would be taken for one without.
READING = "not part of a run's id, so that the table's own runs could not be told apart; leave it out, and "
OWN_TABLE = "write it into a table of your own, table=FILE.yaml."
CLOSED = {
    "seed": "a table names its seeds; choose from them by seeds=1,2, or write a table of your own, table=FILE.yaml.",
    "output_dir": "say outputs=FOLDER.",
    "resume": "leave it out: each run continues from its newest checkpoint.",
    "decoding": f"{READING}decode finished runs by scripts/predict.py RUN.",
    "beside": f"{READING}{OWN_TABLE}",
    "paper_compat": f"{READING}read the columns of both rules from the records.",
    "probe_steps": f"{READING}{OWN_TABLE}",
}
OPEN = [field.name for field in fields(Config) if field.name not in CLOSED]


@dataclass(frozen=True)
class Settings:
    """The settings of the command line, as ``complete_tables`` takes them."""

    names: tuple[str, ...] = ("quickstart",)
    scale: str = "tiny"
    seeds: tuple[int, ...] = ()
    workers: int | None = None
    outputs: Path = OUTPUTS
    launcher: str = ""
    hydra: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def parse_settings(words: Sequence[str]) -> Settings:
    """Parse ``key=value`` words in any order. UserError with the most similar key, table or scale."""
    given: dict[str, str] = {}
    hydra = tuple(word for word in words if word.startswith("hydra."))
    for word in words:
        key, equals, _ = word.partition("=")
        group = key.split(".")[0]
        if word in hydra:
            continue
        if group in CLOSED and equals:
            raise UserError(f"{word}: {CLOSED[group]}")
        if not equals or (key not in PARSERS and group not in OPEN):
            known = ", ".join(f"{name}=" for name in PARSERS)
            is_table = not equals and (word in _short_names() or is_file(word))
            meant = did_you_mean([f"table={word}"]) if is_table else nearest(key, [*PARSERS, *OPEN])
            raise UserError(
                f"{word}: no such setting; choose from {known}, or a setting of train.py that the table leaves open, "
                f"as trainer.bf16=true.{meant}"
            )
        if key in given:
            raise UserError(f"{key} is set twice.")
        given[key] = word
    chosen: dict[str, Any] = {}
    for key in PARSERS.keys() & given:
        value = given.pop(key).partition("=")[2]
        chosen["names" if key == "table" else key] = PARSERS[key](value)
    settings = Settings(hydra=hydra, overrides=tuple(given.values()), **chosen)
    if hydra and not settings.launcher:
        raise UserError(f"{hydra[0]}: a launcher's setting; name the launcher, too: launcher=slurm.")
    return settings


def _short_names() -> dict[str, str]:
    """Short name -> name of every table: 2 for table2, a6 for table_a6."""
    return {name.removeprefix("table").removeprefix("_") or name: name for name in table_names()}


def _tables(text: str) -> tuple[str, ...]:
    names = table_names()
    known = {**_short_names(), **{name: name for name in names}}
    if text == ALL:
        return tuple(names)
    chosen: dict[str, None] = {}
    for word in text.split(","):
        if (name := word if is_file(word) else known.get(word.strip().lower())) is None:
            hint = nearest(word, [*known, ALL]) or f" Choose from {', '.join([*names, ALL])}."
            raise UserError(f"table={word}: no such table.{hint}")
        chosen[name] = None
    return tuple(chosen)


def _scale(text: str) -> str:
    known = choices("scale")  # whether the tables have it is said by ``demands``
    if text not in known:
        raise UserError(f"scale={text}: no such scale; choose from {', '.join(known)}.{nearest(text, known)}")
    return text


def _seeds(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise UserError(f"seeds={text}: whole numbers, as seeds=1 or seeds=1,2.")
    return tuple(dict.fromkeys(map(int, words)))


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"workers={text}: a whole number, at least 1.")
    return int(text)


PARSERS = {"table": _tables, "scale": _scale, "seeds": _seeds, "workers": _workers, "outputs": Path, "launcher": str}

SETTINGS = f"""settings:
  table=NAMES    {", ".join(_short_names())}; several as 2,3; or {ALL};
                 or the file of a table of your own, like those in config/table (default: quickstart)
  scale=NAME     {", ".join(choices("scale"))}, where the tables have it (default: tiny)
  seeds=N,M      only these seeds of the tables, trained here even where their records are published (default: all,
                 and what is published is not trained again)
  workers=N      worker processes (default: one per core)
  outputs=DIR    folder of run folders (default: outputs)
  launcher=NAME  a launcher of Hydra instead of worker processes: slurm, or your own in config/hydra/launcher
  hydra.KEY=...  its settings: hydra.launcher.partition=gpu
  GROUP.KEY=...  a setting of train.py for every run, unless rows of the tables fix it: trainer.bf16=true,
                 model.path=FOLDER. It is part of the runs' ids, of the table's title and of its file names
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Runs with a published record are not trained again, unless by ``seeds``."""
    parser = Parser(
        description="Train the runs that tables still need and print the tables, or print what they take.",
        epilog=SETTINGS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help=" ".join(f"{key}=" for key in PARSERS))
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--dry-run", action="store_true", help="print runs, steps, hours and disk, and train nothing")
    only.add_argument("--status", action="store_true", help="print how far each run is, and the hours left")
    parser.add_argument("--json", action="store_true", help="of --dry-run and --status: print JSON")
    chosen = parser.parse_intermixed_args(argv)
    settings = parse_settings(chosen.settings)
    records = [settings.outputs] if settings.seeds else [PUBLISHED, settings.outputs]
    if chosen.dry_run or chosen.status:
        _print(settings, records, dry=chosen.dry_run, as_json=chosen.json)
        return 0
    if chosen.json:
        raise UserError("--json: it prints what --dry-run or --status tells; add one of them.")
    # Imported here, as Hydra's launchers are: the command has its help at once.
    from ntl.launch.table import complete_tables

    return complete_tables(**vars(settings), records=records).exit_code


def _print(settings: Settings, records: Sequence[Path], *, dry: bool, as_json: bool) -> None:
    """What ``--dry-run`` or ``--status`` prints."""
    from ntl.launch.costs import core_seconds, dry_run, dry_run_text
    from ntl.launch.status import status_text, statuses
    from ntl.launch.table import runs_at_once

    found = load_records(records)
    tell = (lambda line: None) if as_json else print
    demanded = demands(settings.names, settings.scale, found, settings.overrides, settings.seeds, tell)
    todo = runs_to_make(demanded, settings.outputs)
    measured = core_seconds(found if PUBLISHED in records else load_records([PUBLISHED, *records]))
    if dry:
        rows = dry_run(demanded, todo, measured, runs_at_once(settings.launcher, settings.workers))
        print(json.dumps(rows, indent=1) if as_json else dry_run_text(rows, settings.overrides))
        return
    states = statuses(demanded, todo)
    print(json.dumps([plain(each) for each in states], indent=1) if as_json else status_text(states, todo, measured))
