"""The runs that tables need, each once by its id, and which of them are still to be made."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ntl.config import build, compose, run_id
from ntl.config.composition import base_words
from ntl.config.identity import plain
from ntl.config.legality import PLAIN
from ntl.config.root import Config
from ntl.config.trainer import in_steps
from ntl.data.prepared import Prepared
from ntl.results import RunRecord, lacking_readings, missing_runs, read_record, table_runs
from ntl.results.match import override_key, plan_table, row_name
from ntl.results.spec import TableSpec, load_table_spec
from ntl.system.errors import UserError
from ntl.training.checkpoints import BASES, find_base, not_kept

OUTPUTS = Path("outputs")  # where runs go by default
# Settings that fit one model only: its weights, its tokenizer.
OF_ONE_MODEL = ("model.path", "model.hub_id", "model.tokenizer_hub_id", "tokenizer.path")


@dataclass(frozen=True)
class Run:
    """A training run to be made, in the folder ``output_dir/<id>``."""

    id: str
    config: Config
    overrides: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return Path(self.config.output_dir) / self.id

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    @property
    def base(self) -> str:
        """The id of the run whose weights it starts from; empty without one."""
        return self.config.base.rpartition("@")[0]

    @property
    def is_done(self) -> bool:
        """Whether it has a record with all decodings that are asked for, and all checkpoints to keep."""
        if not self.record.is_file() or not_kept(self.folder, self.config.keep_steps):
            return False
        beside = plain(self.config.beside)
        return not beside or not lacking_readings(read_record(self.record).config, beside)

    @cached_property
    def steps(self) -> int:
        """Its optimizer steps; 0 where they are epochs of plain text, or of data that is not prepared yet."""
        config = self.config
        if not config.trainer.epochs:
            return config.trainer.max_steps
        if config.dataset.answers == PLAIN:
            return 0
        prepared = Prepared(build(config.dataset), config.data_dir)
        return in_steps(config.trainer, prepared.fingerprint()["rows"]["train"]).max_steps if prepared.find() else 0

    @property
    def step(self) -> int:
        """The last step in its metrics.jsonl; 0 before the first."""
        with suppress(OSError, IndexError):
            return int(re.findall(r'"step": (\d+)', (self.folder / "metrics.jsonl").read_text())[-1])
        return 0


def last_line(log: Path, noise: str = "$^") -> str:
    """The last line of a log that is not empty and does not begin with the pattern; empty where there is none."""
    with suppress(OSError):
        lines = (" ".join(line.split()) for line in reversed(log.read_text(errors="replace").splitlines()))
        return next((line[:300] for line in lines if line and not re.match(noise, line)), "")
    return ""


def plan_runs(runs: Iterable[Sequence[str]], outputs: Path | None = None) -> tuple[list[Run], list[Run]]:
    """(to do, done already), each run once, in the order given; a base comes right before the first run that needs it.

    ``outputs`` replaces the ``output_dir`` of the configs. UserError, or an error of Hydra, for an invalid config.
    """
    # In Hydra's grammar spaces, commas and brackets have a meaning outside quotes.
    quoted = str(outputs).replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    place = [f"output_dir='{quoted}'"] if outputs else []
    found: dict[str, Run] = {}
    for words in runs:
        run = _of_words((*words, *place))
        other = found.get(run.id)
        # Tables that share a run may ask for different decodings of it, of which the larger request is taken, and for
        # different checkpoints.
        steps = sorted({*run.config.keep_steps, *(other.config.keep_steps if other else ())})
        larger = other if other and len(other.config.beside) >= len(run.config.beside) else run
        found[run.id] = larger if larger.config.keep_steps == steps else _keeping(larger, steps)
    done = {name for name, run in found.items() if run.is_done}
    todo = _bases_first([run for name, run in found.items() if name not in done])
    return todo, [found[name] for name in found if name in done]


def _of_words(words: tuple[str, ...]) -> Run:
    config = compose(words)
    return Run(run_id(config), config, words)


def _keeping(run: Run, steps: list[int]) -> Run:
    words = [word for word in run.overrides if not word.startswith("keep_steps=")]
    return Run(run.id, replace(run.config, keep_steps=steps), (*words, f"keep_steps={steps}"))


def _bases_first(runs: Sequence[Run]) -> list[Run]:
    """Each base right before the first run that starts from it, so that early seeds are complete before later ones."""
    by_id, ordered = {run.id: run for run in runs}, dict[str, Run]()
    bases = {run.base for run in runs}
    for run in runs:
        if run.id not in bases:
            if run.base in by_id:
                ordered[run.base] = by_id[run.base]
            ordered[run.id] = run
    return list(ordered.values())


# ---- what tables need


@dataclass(frozen=True)
class Demand:
    """One table at one scale.

    ``runs``: id -> config of all its runs; ``missing``: the overrides of those without a record, and of the runs whose
    weights they start from.
    """

    spec: TableSpec
    scale: str
    runs: dict[str, Config]
    missing: list[tuple[str, ...]]


def demands(
    tables: Sequence[str],
    scale: str,
    records: Sequence[RunRecord],
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    say: Callable[[str], None] = print,
) -> list[Demand]:
    """The demand of each table, with ``overrides`` for all runs; ``say`` is told of tables without the scale.

    UserError where no table has the scale or a table not the seeds, for an override of a setting that rows fix, and for
    the files of one model where rows have several.
    """
    specs = [load_table(name) for name in tables]
    having = [spec for spec in specs if scale in spec.scales]
    if not having:
        scales = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"{', '.join(tables)}: nothing at scale={scale}; choose from {', '.join(scales)}.")
    for spec in specs:
        if spec not in having:
            say(f"{spec.name}: nothing at scale={scale}, skipped; it has {', '.join(spec.scales)}.")
    for spec in having:
        _choose_seeds(spec, scale, seeds)
    _check(having, scale, overrides)
    return [_demand(replace(spec, added=list(overrides)), scale, records) for spec in having]


def _choose_seeds(spec: TableSpec, scale: str, seeds: Sequence[int]) -> None:
    parts = [block.scales[scale] for block in spec.blocks if scale in block.scales]
    known = sorted({seed for part in parts for seed in part.seeds})
    if known and (wrong := [seed for seed in seeds if seed not in known]):
        raise UserError(
            f"seeds={wrong[0]}: at scale={scale} {spec.name} has {', '.join(map(str, known))}; choose from these."
        )
    for part in parts if seeds else []:  # a spec is read anew each time
        part.seeds = [seed for seed in part.seeds if seed in seeds]


def _check(specs: Sequence[TableSpec], scale: str, overrides: Sequence[str]) -> None:
    plans = [(spec.name, plan) for spec in specs for _, plans in plan_table(spec, scale) for plan in plans]
    plans = [(name, plan) for name, plan in plans if plan.overrides]
    models = dict.fromkeys(str(plan.pins.get("model", "model=")) for _, plan in plans)
    for override in overrides:
        key = override_key(override)
        for name, plan in plans:
            if any(_is_part(key, pin) for pin in plan.pins):
                raise UserError(
                    f"{override}: {name} sets {key} itself, as in the row {row_name(plan.row)!r}; leave it out, or "
                    "write a table of your own, table=FILE.yaml."
                )
        if key in OF_ONE_MODEL and len(models) > 1:
            raise UserError(
                f"{override}: one model's files, and the rows have {len(models)} ({', '.join(models)}); choose tables "
                "whose rows have one, or write such a table of your own, table=FILE.yaml."
            )


def _is_part(key: str, pin: str) -> bool:
    """Whether an override of ``key`` changes the pinned setting. Settings below a pinned group may be changed."""
    if "." not in pin:
        return key in (pin, f"{pin}.name", f"{pin}._target_")
    return key == pin or key.startswith(f"{pin}.") or (pin.startswith(f"{key}.") and "." in key)


def _demand(spec: TableSpec, scale: str, records: Sequence[RunRecord]) -> Demand:
    configs = {tuple(words): compose(words) for words in table_runs(spec, scale)}
    missing = [tuple(words) for words in missing_runs(spec, scale, records)]
    # A base is needed wherever a run that starts from it is made, even if its record is published, but its weights not.
    needed = [base for words in missing if (base := base_run(words)) and not find_base(configs[words].base, BASES)]
    bases = dict.fromkeys(base for words in configs if (base := base_run(words)))
    runs = {run_id(config): config for config in (*configs.values(), *map(compose, bases))}
    return Demand(spec, scale, runs, [*dict.fromkeys(needed), *missing])


@cache
def base_run(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides of the run that ``base=`` describes in these, with the checkpoint to keep; empty without one."""
    if not any(override_key(override) == "base" for override in overrides) or not (found := base_words(overrides)):
        return ()
    words, step = found
    return (*words, f"keep_steps=[{step}]")


def runs_to_make(demanded: Sequence[Demand], outputs: Path) -> list[Run]:
    """The missing runs, each once, without those that have a record in ``outputs`` already."""
    words = [words for demand in demanded for words in demand.missing]
    return plan_runs(words, None if outputs == OUTPUTS else outputs)[0]


def load_table(table: str) -> TableSpec:
    """The spec of a table by its name, or by the path of its file."""
    return load_table_spec(Path(table).stem, Path(table).parent) if is_file(table) else load_table_spec(table)


def is_file(table: str) -> bool:
    """Whether a table is given by the path of its file."""
    return table.endswith(".yaml") and Path(table).is_file()


def kind_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kind of a run by its config, as in a record: runs of one kind are expected to take equally long."""
    names = [str(config.get(group, {}).get("name", "")) for group in ("dataset", "model", "scale")]
    trainer = config.get("trainer", {})
    length = f"{epochs:g} epochs" if (epochs := trainer.get("epochs", 0)) else f"{trainer.get('max_steps', 0)} steps"
    return (*names, length, f"{config.get('objective', {}).get('heads', 1)} heads")
