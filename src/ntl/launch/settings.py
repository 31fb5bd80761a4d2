"""The command line of ``scripts/reproduce.py``: ``table=2,a6 scale=tiny workers=4``, written as that of train.py.

What is none of its own settings is one of train.py's, for every run of the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ntl.config import Config
from ntl.config.legality import did_you_mean, nearest
from ntl.results.spec import TableSpec, load_table_spec, table_names
from ntl.system.errors import UserError

HYDRA = "hydra."
ALL, SUFFIX = "all", ".yaml"
# Settings of train.py that are not for all runs of a table, and what to do instead. How a run is read is in its record
# and not in its id: a record with such a setting could stand in the place of one without.
READING = "no part of a run's id, so that the table's own runs could not be told apart; leave it out, and "
CLOSED = {
    "seed": "a table names its seeds; change them in a table of your own, table=FILE.yaml.",
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
    """What is reproduced, and where. ``workers`` None is one a core.

    ``launcher`` names one of Hydra's in place of worker processes, and ``hydra`` are its settings, as
    ``hydra.launcher.partition=gpu``. ``overrides`` are settings of train.py for every run, as ``trainer.bf16=true``.
    """

    tables: tuple[str, ...] = ("quickstart",)
    scale: str = "tiny"
    workers: int | None = None
    outputs: Path = Path("outputs")
    launcher: str = ""
    hydra: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


def parse_settings(words: Sequence[str]) -> Settings:
    """``key=value`` words in any order. UserError: one line with the nearest key, table or scale."""
    values: dict[str, str] = {}
    overrides: dict[str, str] = {}
    hydra = tuple(word for word in words if word.startswith(HYDRA))
    for word in words:
        if word in hydra:
            continue
        key, equals, value = word.partition("=")
        group = key.split(".")[0]
        if group in CLOSED and equals:
            raise UserError(f"{word}: {CLOSED[group]}")
        of_train = key not in PARSERS and group in OPEN
        if not equals or (key not in PARSERS and not of_train):
            known = ", ".join(f"{name}=" for name in PARSERS)
            more = "or what train.py takes and the table leaves open, as trainer.bf16=true"
            near = nearest(key, [*PARSERS, *OPEN])
            meant = did_you_mean([f"table={word}"]) if _names_a_table(word) else near
            raise UserError(f"{word}: no such setting; choose from {known}, {more}.{meant}")
        if key in values or key in overrides:
            raise UserError(f"{key} is set twice.")
        if of_train:
            overrides[key] = word
        else:
            values[key] = value
    chosen: dict[str, Any] = {FIELDS.get(key, key): PARSERS[key](value) for key, value in values.items()}
    settings = Settings(hydra=hydra, overrides=tuple(overrides.values()), **chosen)
    if hydra and not settings.launcher:
        raise UserError(f"{hydra[0]}: a launcher's setting; name the launcher, too: launcher=slurm.")
    return settings


def short_name(table: str) -> str:
    """What a table may be called for short: table2 is 2, table_a6 is a6; others have no other name."""
    return table.removeprefix("table").removeprefix("_") or table


def _by_any_name(names: list[str]) -> dict[str, str]:
    return {short_name(name): name for name in names} | {name: name for name in names}


def _names_a_table(word: str) -> bool:
    known = {ALL, *_by_any_name(table_names())}
    return all(part.endswith(SUFFIX) or part.strip().lower() in known for part in word.split(","))


def _tables(text: str) -> tuple[str, ...]:
    names = table_names()
    by_any_name = _by_any_name(names)
    if text == ALL:
        return tuple(names)
    chosen: dict[str, None] = {}
    for word in text.split(","):
        # A file is a table of one's own.
        if (name := word if _is_file(word) else by_any_name.get(word.strip().lower())) is None:
            options = [*names, *by_any_name, ALL]
            hint = nearest(word, options) or f" Choose from {', '.join([*names, ALL])}."
            raise UserError(f"table={word}: no such table.{hint}")
        chosen[name] = None
    return tuple(chosen)


def _is_file(word: str) -> bool:
    return word.endswith(SUFFIX) and Path(word).is_file()


def load(table: str) -> TableSpec:
    """The spec of a table by its name, or by the path of its file."""
    return load_table_spec(Path(table).stem, Path(table).parent) if _is_file(table) else load_table_spec(table)


def _scale(text: str) -> str:
    known = list(dict.fromkeys(scale for name in table_names() for scale in load_table_spec(name).scales))
    if text not in known:
        raise UserError(f"scale={text}: no such scale; choose from {', '.join(known)}.{nearest(text, known)}")
    return text


def _workers(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UserError(f"workers={text}: a whole number, at least 1.")
    return int(text)


PARSERS = {"table": _tables, "scale": _scale, "workers": _workers, "outputs": Path, "launcher": str}
# Where the setting and the field differ in name.
FIELDS = {"table": "tables"}
