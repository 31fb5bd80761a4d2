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
from ntl.launch.plan import demands, is_file, runs_to_make
from ntl.results import load_records
from ntl.results.spec import table_names
from ntl.system.errors import UserError
from ntl.system.locks import tell_without_locks

PUBLISHED = Path("results/runs")
REPRODUCE = "Train the runs that tables still need and print the tables, or print what they take."
HYDRA = "hydra."
ALL = "all"
# Settings of train.py that cannot be set for all runs of a table, and what to do instead. Decoding settings are not
# part of a run's id: a record with such a setting would be taken for one without.
READING = "not part of a run's id, so that the table's own runs could not be told apart; leave it out, and "
CLOSED = {
    "seed": "a table names its seeds; choose from them by seeds=1,2, or write a table of your own, table=FILE.yaml.",
    "output_dir": "say outputs=FOLDER.",
    "resume": "leave it out: each run continues from its newest checkpoint.",
    "decoding": f"{READING}decode finished runs by scripts/predict.py RUN.",
    "beside": f"{READING}write it into a table of your own, table=FILE.yaml, with columns that show it.",
    "paper_compat": f"{READING}read the columns of both rules from the records.",
    "probe_steps": f"{READING}write it into a table of your own, table=FILE.yaml.",
}
OPEN = [field.name for field in fields(Config) if field.name not in CLOSED]


@dataclass(frozen=True)
class Settings:
    """The settings of the command line. ``workers`` None means one per core, no ``seeds`` all of a table's.

    ``launcher`` names a launcher of Hydra that replaces worker processes, and ``hydra`` are its settings, such as
    ``hydra.launcher.partition=gpu``. ``overrides`` are settings of train.py for every run, such as
    ``trainer.bf16=true``.
    """

    tables: tuple[str, ...] = ("quickstart",)
    scale: str = "tiny"
    seeds: tuple[int, ...] = ()
    workers: int | None = None
    outputs: Path = Path("outputs")
    launcher: str = ""
    hydra: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def parse_settings(words: Sequence[str]) -> Settings:
    """Parse ``key=value`` words in any order. UserError with the most similar key, table or scale."""
    given: dict[str, str] = {}
    hydra = tuple(word for word in words if word.startswith(HYDRA))
    for word in words:
        if word in hydra:
            continue
        key, equals, _ = word.partition("=")
        group = key.split(".")[0]
        if group in CLOSED and equals:
            raise UserError(f"{word}: {CLOSED[group]}")
        if not equals or (key not in PARSERS and group not in OPEN):
            known = ", ".join(f"{name}=" for name in PARSERS)
            more = "or a setting of train.py that the table leaves open, as trainer.bf16=true"
            near = nearest(key, [*PARSERS, *OPEN])
            meant = did_you_mean([f"table={word}"]) if _names_a_table(word) else near
            raise UserError(f"{word}: no such setting; choose from {known}, {more}.{meant}")
        if key in given:
            raise UserError(f"{key} is set twice.")
        given[key] = word
    values = {key: word.partition("=")[2] for key, word in given.items() if key in PARSERS}
    chosen: dict[str, Any] = {FIELDS.get(key, key): PARSERS[key](value) for key, value in values.items()}
    overrides = tuple(word for key, word in given.items() if key not in PARSERS)
    settings = Settings(hydra=hydra, overrides=overrides, **chosen)
    if hydra and not settings.launcher:
        raise UserError(f"{hydra[0]}: a launcher's setting; name the launcher, too: launcher=slurm.")
    return settings


def short_name(table: str) -> str:
    """The short name of a table: 2 for table2, a6 for table_a6, else its name."""
    return table.removeprefix("table").removeprefix("_") or table


def _by_any_name(names: list[str]) -> dict[str, str]:
    return {short_name(name): name for name in names} | {name: name for name in names}


def _names_a_table(word: str) -> bool:
    known = {ALL, *_by_any_name(table_names())}
    return all(part.endswith(".yaml") or part.strip().lower() in known for part in word.split(","))


def _tables(text: str) -> tuple[str, ...]:
    names = table_names()
    by_any_name = _by_any_name(names)
    if text == ALL:
        return tuple(names)
    chosen: dict[str, None] = {}
    for word in text.split(","):
        if (name := word if is_file(word) else by_any_name.get(word.strip().lower())) is None:
            options = [*names, *by_any_name, ALL]
            hint = nearest(word, options) or f" Choose from {', '.join([*names, ALL])}."
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
# Setting -> field of ``Settings``, where the names differ.
FIELDS = {"table": "tables"}

SETTINGS = f"""settings:
  table=NAMES    {", ".join(short_name(name) for name in table_names())}; several as 2,3; or {ALL};
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
        description=REPRODUCE,
        epilog=SETTINGS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help=" ".join(f"{key}=" for key in PARSERS))
    parser.add_argument("--dry-run", action="store_true", help="print runs, steps, hours and disk, and train nothing")
    parser.add_argument(
        "--status", action="store_true", help="print done, running, queued, failed and missing runs, and the hours left"
    )
    parser.add_argument("--json", action="store_true", help="of --dry-run and --status: print JSON")
    chosen = parser.parse_intermixed_args(argv)
    if chosen.dry_run and chosen.status:
        raise UserError("--dry-run, --status: one at a time.")
    if chosen.json and not (chosen.dry_run or chosen.status):
        raise UserError("--json: it prints what --dry-run or --status tells; add one of them.")
    settings = parse_settings(chosen.settings)
    folders = [settings.outputs] if settings.seeds else [PUBLISHED, settings.outputs]
    if chosen.dry_run or chosen.status:
        _print(settings, folders, dry=chosen.dry_run, as_json=chosen.json)
        return 0
    # Imported here, as Hydra's launchers are: the command has its help at once.
    from ntl.launch.table import complete_tables

    rest = {key: value for key, value in vars(settings).items() if key not in ("tables", "scale")}
    return complete_tables(settings.tables, settings.scale, records=folders, measured=[PUBLISHED], **rest).exit_code


def _print(settings: Settings, folders: Sequence[Path], *, dry: bool, as_json: bool) -> None:
    """What ``--dry-run`` or ``--status`` prints."""
    from ntl.launch.costs import core_seconds, dry_run, dry_run_text
    from ntl.launch.status import status_text, statuses
    from ntl.launch.table import runs_at_once

    records = load_records(folders)
    tell = (lambda line: None) if as_json else print
    demanded = demands(settings.tables, settings.scale, records, tell, settings.overrides, settings.seeds)
    measured = core_seconds(records if PUBLISHED in folders else load_records([PUBLISHED, *folders]))
    if dry:
        todo = runs_to_make(demanded, settings.outputs)
        result = dry_run(demanded, todo, measured, runs_at_once(settings.launcher, settings.workers))
        print(json.dumps(result, indent=1) if as_json else dry_run_text(result))
        return
    found = statuses(demanded, settings.outputs)
    if as_json:
        print(json.dumps([plain(status) for status in found], indent=1))
        return
    tell_without_locks(settings.outputs, "outputs", print)  # running runs are then known of cluster jobs only
    print(status_text(found, demanded, measured))
