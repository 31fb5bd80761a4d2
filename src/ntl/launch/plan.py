"""The runs that tables need: composed, each once by its id, and divided into those with and without a record."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
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

# Only the end of a log is read; a line is far shorter than this.
_TAIL_BYTES = 8192
# Settings that fit one model only: its weights, its tokenizer.
OF_ONE_MODEL = ("model.path", "model.hub_id", "model.tokenizer_hub_id", "tokenizer.path")
Kind = tuple[str, ...]


def last_lines(path: Path) -> list[bytes]:
    """The lines at the end of a file; the first may be incomplete. OSError where it cannot be read."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().splitlines()


@dataclass(frozen=True)
class Run:
    """A training run to be made. Runs of the same ``kind`` are expected to take equally long.

    ``max_steps`` is 0 while it is not known (``planned_steps``).
    """

    id: str
    label: str
    overrides: tuple[str, ...]
    folder: Path
    kind: Kind
    max_steps: int
    beside: Mapping[str, Any] = field(default_factory=dict)  # settings of each further decoding
    base: str = ""  # the id of the run whose weights it starts from
    keep_steps: tuple[int, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether it has a record with all decodings that are asked for, and all checkpoints to keep."""
        if not self.record.is_file() or not_kept(self.folder, self.keep_steps):
            return False
        return not self.beside or not lacking_readings(read_record(self.record).config, self.beside)

    @property
    def record(self) -> Path:
        return self.folder / "record.json"

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    def step(self, since: float) -> int:
        """The last step in metrics.jsonl; 0 where the file is older than ``since`` (seconds since the epoch)."""
        path = self.folder / "metrics.jsonl"
        try:
            if path.stat().st_mtime < since:
                return 0
            lines = last_lines(path)
        except OSError:
            return 0
        for line in reversed(lines):
            try:
                return int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError):
                continue  # an incomplete line, or one without a step
        return 0


@dataclass(frozen=True)
class Ended:
    """How a run ended. ``error`` is empty if it succeeded; ``busy``: another process is working on it."""

    run: Run
    seconds: float
    error: str
    busy: bool = False


def plan_runs(runs: Iterable[Sequence[str]], outputs: Path | None = None) -> tuple[list[Run], list[Run]]:
    """(to do, done already), each run once, in the order given; a base comes right before the first run that needs it.

    ``outputs`` replaces the ``output_dir`` of the configs. UserError, or an error of Hydra, for an invalid config.
    """
    place = [] if outputs is None else [f"output_dir={_quoted(outputs)}"]
    composed: dict[str, tuple[Config, tuple[str, ...]]] = {}
    keep: dict[str, set[int]] = {}
    for overrides in runs:
        config = compose([*overrides, *place])
        name = run_id(config)
        keep.setdefault(name, set()).update(config.keep_steps)
        # Tables that share a run may ask for different decodings of it: the larger request is taken.
        if name not in composed or len(config.beside) > len(composed[name][0].beside):
            composed[name] = (config, (*overrides, *place))
    for name, steps in keep.items():
        config, overrides = composed[name]
        if steps.difference(config.keep_steps):
            others = [override for override in overrides if not override.startswith("keep_steps=")]
            overrides = (*others, f"keep_steps={sorted(steps)}")
            composed[name] = (replace(config, keep_steps=sorted(steps)), overrides)
    several = len({config.model.name for config, _ in composed.values()}) > 1
    todo: list[Run] = []
    done: list[Run] = []
    for name, (config, overrides) in composed.items():
        run = _run(name, config, overrides, several)
        (done if run.is_done else todo).append(run)
    return _bases_first(todo), done


def _bases_first(runs: Sequence[Run]) -> list[Run]:
    """Each base right before its first arm, so that early seeds are complete before the bases of later ones."""
    by_id = {run.id: run for run in runs}
    bases = {run.base for run in runs}
    ordered: dict[str, Run] = {}

    def place(run: Run) -> None:
        if run.base in by_id:
            place(by_id[run.base])
        ordered[run.id] = run

    for run in runs:
        if run.id not in bases:
            place(run)
    return list(ordered.values())


def _run(name: str, config: Config, overrides: tuple[str, ...], with_model: bool) -> Run:
    words = [config.dataset.name, *([config.model.name] if with_model else []), config.loss.name]
    return Run(
        id=name,
        label=f"{' '.join(words)} seed {config.seed}",
        overrides=overrides,
        folder=Path(config.output_dir) / name,
        kind=kind_of(plain(config)),
        max_steps=planned_steps(config),
        beside=plain(config.beside),
        base=config.base.rpartition("@")[0],
        keep_steps=tuple(config.keep_steps),
    )


def kind_of(config: Mapping[str, Any]) -> Kind:
    """Return the kind of a run by its config, as in a record. Runs of one kind are expected to take equally long."""
    names = [str(config.get(group, {}).get("name", "")) for group in ("dataset", "model", "scale")]
    trainer = config.get("trainer", {})
    length = f"{epochs:g} epochs" if (epochs := trainer.get("epochs", 0)) else f"{trainer.get('max_steps', 0)} steps"
    return (*names, length, f"{config.get('objective', {}).get('heads', 1)} heads")


def planned_steps(config: Config) -> int:
    """Return the optimizer steps of a run; 0 if they are epochs of plain text, or of data that is not prepared yet."""
    if not config.trainer.epochs:
        return config.trainer.max_steps
    if config.dataset.answers == PLAIN:
        return 0
    prepared = Prepared(build(config.dataset), config.data_dir)
    return in_steps(config.trainer, prepared.fingerprint()["rows"]["train"]).max_steps if prepared.find() else 0


def _quoted(path: Path | str) -> str:
    # In Hydra's grammar spaces, commas and brackets have a meaning outside quotes.
    text = str(path).replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\${")
    return f"'{text}'"


# ---- what tables need


@dataclass(frozen=True)
class Demand:
    """One table at one scale. ``runs``: id -> config; ``missing``: overrides of runs without a record -> id.

    Both include the runs that others take as their base.
    """

    spec: TableSpec
    scale: str
    runs: dict[str, Config]
    missing: dict[tuple[str, ...], str]


def demands(
    tables: Sequence[str],
    scale: str,
    records: Sequence[RunRecord],
    skip: Callable[[str], None] = print,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[Demand]:
    """The demand of each table, with ``overrides`` for all runs. Tables without the scale are reported to ``skip``.

    UserError where no table has the scale or a seed of ``seeds``, for an override of a setting that rows fix, for the
    files of one model where rows have several, and for a folder without a model.
    """
    specs = [_of_seeds(load_table(name), scale, seeds) for name in tables]
    having = [spec for spec in specs if scale in spec.scales]
    if not having:
        scales = dict.fromkeys(each for spec in specs for each in spec.scales)
        raise UserError(f"{', '.join(tables)}: nothing at scale={scale}; choose from {', '.join(scales)}.")
    for spec in specs:
        if scale not in spec.scales:
            skip(f"{spec.name}: nothing at scale={scale}, skipped; it has {', '.join(spec.scales)}.")
    _check(having, scale, overrides)
    demanded = [_demand(replace(spec, added=list(overrides)), scale, records) for spec in having]
    configs = [config for demand in demanded for config in demand.runs.values()]
    for override in overrides:
        if override_key(override) == "model.hub_id" and not any(config.model.pretrained for config in configs):
            skip(f"{override}: only its tokenizer is used, not its weights: these runs have model.pretrained=false.")
    return demanded


def _of_seeds(spec: TableSpec, scale: str, seeds: Sequence[int]) -> TableSpec:
    """The table of these seeds alone; with none given, as it is."""
    parts = [block.scales[scale] for block in spec.blocks if scale in block.scales]
    known = sorted({seed for part in parts for seed in part.seeds})
    if known and (wrong := [seed for seed in seeds if seed not in known]):
        raise UserError(
            f"seeds={wrong[0]}: at scale={scale} {spec.name} has {', '.join(map(str, known))}; choose from these."
        )
    for part in parts if seeds else []:  # a spec is read anew each time
        part.seeds = [seed for seed in part.seeds if seed in seeds]
    return spec


def _check(specs: Sequence[TableSpec], scale: str, overrides: Sequence[str]) -> None:
    by_table = {
        spec.name: [plan for _, plans in plan_table(spec, scale) for plan in plans if plan.overrides] for spec in specs
    }
    for override in overrides:
        key = override_key(override)
        for name, plans in by_table.items():
            if row := next((plan.row for plan in plans if any(_is_part(key, pin) for pin in plan.pins)), None):
                raise UserError(
                    f"{override}: {name} sets {key} itself, as in the row {row_name(row)!r}; leave it out, or write a "
                    "table of your own, table=FILE.yaml."
                )
        # Rows without a model have the default one.
        models = dict.fromkeys(str(plan.pins.get("model", "model=")) for plans in by_table.values() for plan in plans)
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
    configs = {tuple(overrides): compose(overrides) for overrides in table_runs(spec, scale)}
    without = {tuple(overrides): run_id(configs[tuple(overrides)]) for overrides in missing_runs(spec, scale, records)}
    bases = {base: compose(base) for base in dict.fromkeys(map(base_run, configs)) if base}
    runs = {run_id(config): config for config in (*configs.values(), *bases.values())}
    # A base is needed wherever a run that starts from it is made, even if its record is published, but its weights not.
    starting = [run for run in without if base_run(run) and not find_base(configs[run].base, BASES)]
    needed = {base: run_id(bases[base]) for base in dict.fromkeys(map(base_run, starting))}
    return Demand(spec, scale, runs, {**needed, **without})


@cache
def base_run(overrides: tuple[str, ...]) -> tuple[str, ...]:
    """The overrides of the run that ``base=`` describes in these, with the checkpoint to keep; empty without one."""
    if not any(override_key(override) == "base" for override in overrides) or not (found := base_words(overrides)):
        return ()
    words, step = found
    return (*words, f"keep_steps=[{step}]")


def runs_to_make(demanded: Sequence[Demand], outputs: Path) -> list[Run]:
    """The missing runs, each once, without those that have a record in ``outputs`` already."""
    return plan_runs(missing_overrides(demanded), output_root(outputs))[0]


def missing_overrides(demanded: Sequence[Demand]) -> list[tuple[str, ...]]:
    """The overrides of all missing runs; several may be of the same run. In W&B, a table's runs are a group."""
    return [(*run, *_group(demand, run_id)) for demand in demanded for run, run_id in demand.missing.items()]


def _group(demand: Demand, run_id: str) -> list[str]:
    tracking = demand.runs[run_id].tracking
    return [f"tracking.group={_quoted(demand.spec.name)}"] if tracking.to_wandb and not tracking.group else []


def output_root(outputs: Path) -> Path | None:
    """For ``plan_runs``: None for the default folder, which then is not among the overrides in a record."""
    return None if outputs == Path("outputs") else outputs


def load_table(table: str) -> TableSpec:
    """The spec of a table by its name, or by the path of its file."""
    return load_table_spec(Path(table).stem, Path(table).parent) if is_file(table) else load_table_spec(table)


def is_file(table: str) -> bool:
    """Whether a table is given by the path of its file."""
    return table.endswith(".yaml") and Path(table).is_file()
