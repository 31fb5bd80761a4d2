"""Train a table's missing runs, then print it: python scripts/reproduce.py table=2 scale=tiny.

Settings are written as ``table=2,a6 scale=tiny workers=4``. Any other setting is one of train.py, for all runs.
"""

import signal
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from ntl.config.cli import Parser, report
from ntl.config.folders import RESULTS, choices
from ntl.config.settings import did_you_mean, nearest
from ntl.system.errors import UserError

PUBLISHED = RESULTS / "runs"
ALL = "all"
# Settings of train.py that cannot be set for all runs of a table, and what to do instead. Decoding settings are not
# part of a run's id: a record with such a setting would be taken for one without.
NO_PART = "not part of a run's id, so that the table's own runs could not be told apart; leave it out"
CLOSED = {
    "seed": "a table names its seeds; choose from them by seeds=1,2.",
    "output_dir": "say outputs=FOLDER.",
    "resume": "leave it out: each run continues from its newest checkpoint.",
    "decoding": f"{NO_PART}, and decode finished runs by scripts/predict.py RUN.",
    **dict.fromkeys(("extra_decodings", "paper_compat", "probe_steps"), f"{NO_PART}."),
}
SETTINGS = """settings:
  table=NAMES    {tables}; several as 2,3; or all;
                 or the file of a table of your own, like those in config/table (default: quickstart)
  scale=NAME     {scales}, where the tables have it (default: tiny)
  seeds=N,M      only these seeds of the tables, trained here even where their records are published (default: all,
                 and what is published is not trained again)
  workers=N      worker processes (default: one per GPU, or else per core)
  outputs=DIR    folder of run folders (default: outputs)
  launcher=NAME  a launcher of Hydra instead of worker processes: slurm, or your own in config/hydra/launcher
  hydra.KEY=...  its settings: hydra.launcher.partition=gpu
  GROUP.KEY=...  a setting of train.py for every run, unless rows of the tables fix it: trainer.bf16=true,
                 model.path=FOLDER. It is part of the runs' ids, of the table's title and of its file names
"""


def short_names() -> dict[str, str]:
    """Short name -> name of every table: 2 for table2, a6 for table_a6."""
    from ntl.results.spec import table_names

    return {name.removeprefix("table").removeprefix("_") or name: name for name in table_names()}


def is_file(table: str) -> bool:
    return table.endswith(".yaml") and Path(table).is_file()


def tables(text: str) -> list[str]:
    short = short_names()
    known = short | {name: name for name in short.values()}
    names = []
    for word in short.values() if text == ALL else text.split(","):
        name = word if is_file(word) else known.get(word.strip().lower())
        if name is None:
            hint = nearest(word, [*known, ALL]) or f" Choose from {', '.join([*short.values(), ALL])}."
            raise UserError(f"table={word}: no such table.{hint}")
        names.append(name)
    return list(dict.fromkeys(names))


def scale(text: str) -> str:
    known = choices("scale")
    if text not in known:
        raise UserError(f"scale={text}: no such scale; choose from {', '.join(known)}.{nearest(text, known)}")
    return text


def numbers(name: str, text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise UserError(f"{name}={text}: whole numbers above 0, as {name}=4.")
    return list(dict.fromkeys(map(int, words)))


# Setting -> its argument of ``complete_tables``, and how it is read.
PARSERS: dict[str, tuple[str, Any]] = {
    "table": ("names", tables),
    "scale": ("scale", scale),
    "seeds": ("seeds", lambda text: numbers("seeds", text)),
    "workers": ("workers", lambda text: numbers("workers", text)[0]),
    "outputs": ("outputs", Path),
    "launcher": ("launcher", str),
}


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """The arguments of ``complete_tables``. UserError with the most similar setting, table or scale."""
    from ntl.config import Config

    settings: dict[str, Any] = {"names": ["quickstart"], "scale": "tiny", "outputs": Path("outputs")}
    of_runs = [field.name for field in fields(Config) if field.name not in CLOSED]
    keys = [word.partition("=")[0] for word in words]
    for number, (word, key) in enumerate(zip(words, keys, strict=True)):
        group, value = key.split(".")[0], word.partition("=")[2]
        if group in CLOSED and "=" in word:
            raise UserError(f"{word}: {CLOSED[group]}")
        if "=" not in word or not (key in PARSERS or group in ("hydra", *of_runs)):
            is_table = word in short_names() or is_file(word)
            meant = did_you_mean([f"table={word}"]) if is_table else nearest(key, [*PARSERS, *of_runs])
            known = f"{'=, '.join(PARSERS)}=, or a setting of train.py that the table leaves open, as trainer.bf16=true"
            raise UserError(f"{word}: no such setting; choose from {known}.{meant}")
        if key in keys[:number]:
            raise UserError(f"{key} is set twice.")
        if key in PARSERS:
            name, parse = PARSERS[key]
            settings[name] = parse(value)
        else:
            settings.setdefault("hydra" if group == "hydra" else "overrides", []).append(word)
    if "hydra" in settings and not settings.get("launcher"):
        raise UserError(f"{settings['hydra'][0]}: a launcher's setting; name the launcher, too: launcher=slurm.")
    return settings


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 when a run failed. Runs with a published record are not trained again, unless by ``seeds``."""
    parser = Parser(
        description="Train the runs that tables still need, and print the tables.",
        epilog=SETTINGS.format(tables=", ".join(short_names()), scales=", ".join(choices("scale"))),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help=" ".join(f"{key}=" for key in PARSERS))
    what = "train nothing: print how many runs are left, how far they are, and the hours that they take"
    parser.add_argument("--dry-run", "--status", action="store_true", help=what)
    what = "the device that --dry-run prices the runs for: h100 (default), a100, l40s, v100"
    parser.add_argument("--gpu", help=what)
    what = "submit nothing: print the sbatch script of launcher=slurm, or of a launcher of your own"
    parser.add_argument("--print-script", action="store_true", help=what)
    what = "try each row before it is trained: two steps, a checkpoint, a resume, an evaluation and a few answers"
    parser.add_argument("--rehearse", action="store_true", help=what)
    what = "rehearse small models of the same kinds, from scratch, as on a machine without a GPU"
    parser.add_argument("--shapes", choices=["tiny"], help=what)
    what = "rehearse with N steps, then print what --dry-run prints, with hours at the rate of these steps"
    parser.add_argument("--measure", type=int, default=0, metavar="N", help=what)
    chosen = parser.parse_intermixed_args(argv)
    is_rehearsed, is_priced = chosen.rehearse or chosen.measure, chosen.dry_run or chosen.measure
    if chosen.gpu and not is_priced:
        parser.error("--gpu prices runs without training them: add --dry-run")
    if chosen.shapes and (chosen.measure or not chosen.rehearse):
        parser.error("--shapes tiny is for --rehearse: the rate of a tiny model says nothing of the published one's")
    if chosen.measure < 0 or chosen.measure == 1:
        parser.error(f"--measure {chosen.measure}: the second half of the steps is measured, so at least 2")
    settings = parse_settings(chosen.settings)
    records = [settings["outputs"]] if "seeds" in settings else [PUBLISHED, settings["outputs"]]
    launcher, hydra = settings.get("launcher", ""), settings.get("hydra", ())
    if chosen.print_script and not launcher:
        raise UserError("--print-script: a launcher has a script; add launcher=slurm.")
    from ntl.launch.plan import demands, to_make
    from ntl.launch.rehearsal import rehearse
    from ntl.launch.table import complete_tables, dry_run
    from ntl.launch.workers import job_scripts, launcher_settings, run_all, sweep_all
    from ntl.results import load_records

    if launcher:  # a mistake in its settings is told before a table is read
        launcher_settings(launcher, hydra)
    if not (is_rehearsed or is_priced or chosen.print_script):
        return complete_tables(**settings, records=records)
    measured = load_records([PUBLISHED, settings["outputs"]])
    asked = (settings["names"], settings["scale"], load_records(records), settings["outputs"])
    demanded = demands(*asked, settings.get("overrides", ()), settings.get("seeds", ()))
    rates, failed = None, 0
    if is_rehearsed:
        launch = partial(sweep_all, launcher=launcher, settings=hydra) if launcher else run_all
        every = {run.id: run for demand in demanded for run in demand.runs.values()}
        how: Any = {"steps": chosen.measure or 2, "tiny": bool(chosen.shapes)}
        # What a rehearsal leaves is removed when it is stopped, too.
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        rates, failed = rehearse([*every.values()], launch, settings["outputs"].parent, **how)
        signal.signal(signal.SIGTERM, before)
    if is_priced:
        print(dry_run(demanded, measured, chosen.gpu or "h100", rates if chosen.measure else None))
    elif not is_rehearsed:
        runs = to_make(run for demand in demanded for run in demand.missing)
        print(job_scripts(runs, launcher, hydra) if runs else "# All runs are made: nothing would be submitted.")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(report(main, "interrupted; rerun the same command to resume.", messages="stdout"))
