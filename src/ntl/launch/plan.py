"""The runs that tables need, each once by its id, and which of them are still to be made."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ntl.config import compose, run_id
from ntl.config.composition import base_words
from ntl.config.folders import literal
from ntl.config.identity import plain
from ntl.config.root import Config
from ntl.config.settings import quote
from ntl.results import RunRecord, missing_decodings, read_record, table_runs
from ntl.results.check_record import differences
from ntl.results.match import SAVE_MEMORY, matched_words, override_key, plan_table
from ntl.results.spec import TableSpec, load_table_spec
from ntl.runs.folder import BASES, find_base, not_kept
from ntl.system.errors import UserError
from ntl.system.messages import logger

OWN_TABLE = "write a table of your own, table=FILE.yaml."
NO_OTHER_RUN = (*SAVE_MEMORY, "decoding.batch_size", "extra_decodings.")  # they may differ from a row's
OF_ONE_MODEL = ("model.path", "model.hub_id", "model.tokenizer_hub_id", "tokenizer.path")  # its weights, its tokenizer


@dataclass(frozen=True)
class Run:
    """A training run to be made, in the folder ``output_dir/<id>``."""

    id: str
    config: Config
    overrides: tuple[str, ...]

    @classmethod
    def of(cls, overrides: Sequence[str]) -> "Run":
        """UserError, or an error of Hydra, for an invalid config."""
        config = compose(overrides)
        return cls(run_id(config), config, tuple(overrides))

    @property
    def folder(self) -> Path:
        return Path(self.config.output_dir) / self.id

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
        record, extra = self.folder / "record.json", plain(self.config.extra_decodings)
        if not record.is_file() or not_kept(self.folder, self.config.keep_steps):
            return False
        return not extra or not missing_decodings(read_record(record).config, extra)

    @property
    def steps(self) -> int:
        """Its optimizer steps; 0 where their number follows from epochs, and so from the data."""
        return 0 if self.config.trainer.epochs else self.config.trainer.max_steps

    def _last(self, pattern: str, file: str) -> str:
        with suppress(OSError, IndexError):
            return re.findall(pattern, (self.folder / file).read_text(errors="replace"), re.MULTILINE)[-1]
        return ""

    @property
    def step(self) -> int:
        """The last step in its metrics.jsonl; 0 before the first."""
        return int(self._last(r'"step": (\d+)', "metrics.jsonl") or 0)

    @property
    def rate(self) -> float:
        """Optimizer steps a second, as its log says last; 0 before that."""
        return float(self._last(r"(\S+) steps/s", self.log.name) or 0)

    @property
    def last_line(self) -> str:
        """The last line of its log, which of a run that failed is the error; empty without one."""
        line = " ".join(self._last(r"^\S.*", self.log.name).split())
        return re.sub(r"^(error|diverged|ntl\.[\w.]+): ", "", line)[:500]


def to_make(runs: Iterable[Run]) -> list[Run]:
    """Those that are not done, each once.

    A run that two tables need has the more decodings that one asks for, and all checkpoints that they keep.
    """
    by_id: dict[str, Run] = {}
    for run in runs:
        other = by_id.get(run.id, run)
        larger = max(other, run, key=lambda candidate: len(candidate.config.extra_decodings))
        steps = sorted({*other.config.keep_steps, *run.config.keep_steps})
        more = steps != larger.config.keep_steps
        by_id[run.id] = Run.of([*larger.overrides, f"keep_steps={steps}"]) if more else larger
    return [run for run in by_id.values() if not run.is_done]


def waves(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs that others start from, which come first, then the others."""
    runs = list(runs)
    bases = {run.base for run in runs}
    parts = [[run for run in runs if (run.id in bases) is is_base] for is_base in (True, False)]
    return [part for part in parts if part]


@dataclass(frozen=True)
class Demand:
    """One table at one scale: its runs by id, with those whose weights they start from, and which must be made."""

    spec: TableSpec
    scale: str
    runs: dict[str, Run]
    missing: list[Run]


def demands(
    tables: Sequence[str],
    scale: str,
    records: Sequence[RunRecord],
    outputs: Path,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[Demand]:
    """The demand of each table, by its name or the path of its file, with ``overrides`` for all runs.

    A warning tells of tables without the scale. UserError where no table has the scale or a table not the seeds, for an
    override of a setting that rows fix, and for the files of one model where rows have several.
    """
    specs = [load_table_spec(name) for name in tables]
    having = [spec for spec in specs if scale in spec.scales]
    if not having:
        scales = dict.fromkeys(choice for spec in specs for choice in spec.scales)
        raise UserError(f"{', '.join(tables)}: nothing at scale={scale}; choose from {', '.join(scales)}.")
    for spec in specs:
        if spec not in having:
            logger.warning(f"{spec.name}: nothing at scale={scale}, skipped; it has {', '.join(spec.scales)}.")
        elif seeds:
            _choose_seeds(spec, scale, seeds)
    _check_overrides(having, scale, overrides)
    added = [*overrides, f"output_dir={quote(literal(str(outputs)))}"]
    return [_demand(replace(spec, added=added), scale, records) for spec in having]


def _choose_seeds(spec: TableSpec, scale: str, seeds: Sequence[int]) -> None:
    parts = [block.scales[scale] for block in spec.blocks if scale in block.scales]
    planned = sorted({seed for part in parts for seed in part.seeds})
    if planned and (wrong := [seed for seed in seeds if seed not in planned]):
        has = ", ".join(map(str, planned))
        raise UserError(f"seeds={wrong[0]}: at scale={scale} {spec.name} has {has}; choose from these.")
    for part in parts:
        part.seeds = [seed for seed in part.seeds if seed in seeds]


def _check_overrides(specs: Sequence[TableSpec], scale: str, overrides: Sequence[str]) -> None:
    plans = [(spec.name, plan) for spec in specs for _, plans in plan_table(spec, scale) for plan in plans]
    models = dict.fromkeys(str(plan.pins.get("model", "model=")) for _, plan in plans if plan.overrides)
    for override in overrides:
        key = override_key(override)
        for name, plan in plans:
            if any(_is_part(key, pin) for pin in plan.pins):
                line = f"{name} sets {key} itself, as in the row {plan.name!r}; leave it out, or {OWN_TABLE}"
                raise UserError(f"{override}: {line}")
        if key in OF_ONE_MODEL and len(models) > 1:
            line = f"one model's files, and the rows have {len(models)} ({', '.join(models)}); choose other tables, or"
            raise UserError(f"{override}: {line} {OWN_TABLE}")


def _is_part(key: str, pin: str) -> bool:
    """Whether an override of ``key`` changes the pinned setting. Settings below a pinned group may be changed."""
    if "." not in pin:
        return key in (pin, f"{pin}.name", f"{pin}._target_")
    return key == pin or key.startswith(f"{pin}.") or (pin.startswith(f"{key}.") and "." in key)


def _demand(spec: TableSpec, scale: str, records: Sequence[RunRecord]) -> Demand:
    needed = [tuple(words) for words in table_runs(spec, scale)]
    bases = {words: _base_of(words) for words in needed}
    runs = {words: Run.of(words) for words in (*needed, *filter(None, bases.values()))}
    by_id = {run.id: run for run in runs.values()}
    kept = as_asked(records, by_id)
    if others := sorted({record.id for record in records} - {record.id for record in kept}):
        logger.info(
            f"{spec.name}: not counted, as their data, settings or decoding differ from today's: {', '.join(others)}"
        )
    missing = [tuple(words) for words in table_runs(spec, scale, kept)]
    # A base is needed wherever a run that starts from it is made, even if its record is published, but its weights not.
    before = [bases[words] for words in missing if bases[words] and not find_base(runs[words].config.base, BASES)]
    return Demand(spec, scale, by_id, [runs[words] for words in (*before, *missing)])


def as_asked(records: Sequence[RunRecord], runs: Mapping[str, Run]) -> list[RunRecord]:
    """The records, each with the overrides of its run where a command that says the same in other words made it.

    Without those that were made by the words of a run, from a data file or a config file that was edited since, or
    whose answers were decoded in another way.
    """
    worded = {(matched_words(run.overrides), run.config.seed): run for run in runs.values()}
    kept = []
    for record in records:
        run = runs.get(record.id) or worded.get((matched_words(tuple(record.overrides)), record.seed))
        if run is None:
            kept.append(record)
        elif all(key.startswith(NO_OTHER_RUN) for key in differences(record, run.config)):
            kept.append(replace(record, overrides=[*run.overrides]) if record.id in runs else record)
    return kept


def _base_of(overrides: Sequence[str]) -> tuple[str, ...]:
    """The overrides of the run that ``base=`` describes in these, with the checkpoint to keep; empty without one."""
    words, step = base_words(overrides) or ((), 0)
    return (*words, f"keep_steps=[{step}]") if words else ()
