"""Tables made complete: their missing runs are trained. Or printed: what these runs take, and how far they are."""

import json
import math
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from ntl.config import Config, build
from ntl.config.identity import plain
from ntl.config.model import HFConfig
from ntl.launch.plan import Demand, Run, as_asked, demands, to_make
from ntl.launch.workers import run_all, sweep_all
from ntl.results import RunRecord, build_table, load_records
from ntl.results.match import computing
from ntl.results.render import show, write_tables
from ntl.system.errors import UserError, one_line_errors
from ntl.training.checkpoints import CHECKPOINTS, is_taken

# In a checkpoint: bytes of a float32 weight, and of AdamW's two moments of a trained one.
WEIGHT, MOMENTS = 4, 8
# In the order of printing. "failed": started, but without a record or a process at work.
STATES = ("done", "running", "failed", "missing")
Measured = Mapping[tuple[Any, ...], float]
_sizes: dict[str, int] = {}


def complete_tables(
    names: Sequence[str],
    scale: str,
    *,
    records: Sequence[Path],
    outputs: Path,
    workers: int | None = None,
    launcher: str = "",
    hydra: Sequence[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> int:
    """Train the missing runs of tables, print each table, and write it to ``outputs`` as .md and .csv.

    A run that several tables need is made once. The last lines name each run that failed, with its log.
    ``records``: folders whose records are used, among them ``outputs``, where new runs go. ``launcher``: one of Hydra,
    with the settings ``hydra``, instead of worker processes. ``overrides``: settings of train.py for every run, which
    make another table, with its own title and file names. ``seeds``: of the tables' own, all by default.

    Returns the exit code, 1 where a run failed. UserError: no such table, or none at this scale or with these seeds; an
    override of a setting that rows fix; not enough free disk.
    """
    started, errors = time.monotonic(), list[str]()
    demanded = demands(names, scale, load_records(records), outputs, overrides, seeds)
    if todo := to_make(run for demand in demanded for run in demand.missing):
        with one_line_errors("write to", outputs):
            outputs.mkdir(parents=True, exist_ok=True)
        needed, free = disk_needed(todo), shutil.disk_usage(outputs).free
        disk = f"{gigabytes(needed)} for the checkpoints of {len(todo)} runs, {gigabytes(free)} free in {outputs}."
        print(f"Disk: {disk}")
        if needed > free:
            raise UserError(f"outputs={outputs}: too little free disk; free some, or choose another by outputs=.")
        errors = sweep_all(todo, launcher, hydra) if launcher else run_all(todo, workers=workers)
    found = load_records(records)
    for demand in demanded:
        table = build_table(demand.spec, as_asked(found, demand.runs), scale)
        paths = write_tables([table], outputs)
        print()
        show(table, Console())
        print(f"Written: {' '.join(map(str, paths))}")
    # Tables are computed from records: a run without one has failed, whatever it reported.
    failed = [(run, error) for run, error in zip(todo, errors, strict=True) if not run.is_done]
    done = len(todo) - len(failed)
    trained = f"{done} run{'' if done == 1 else 's'} trained in {time.monotonic() - started:.0f} s"
    print(f"{trained}, {len(failed)} failed. Runs: {outputs}/<run id>/.")
    for run, error in failed:
        print(f"{run.id} failed: {error or 'it ended without a record'}\n  log: {run.log}")
    return 1 if failed else 0


# ---- what runs take


def figure(value: float) -> str:
    """Format with two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    places = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, places):,.{max(0, places)}f}"


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


def core_seconds(records: Iterable[RunRecord]) -> dict[tuple[Any, ...], float]:
    """Return kind of run -> the median of the core-seconds of its records. Records of GPUs are left out."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        if record.core_seconds:
            found.setdefault(_kind(record.config), []).append(record.core_seconds)
    return {kind: median(seconds) for kind, seconds in found.items()}


def _kind(config: Mapping[str, Any]) -> tuple[Any, ...]:
    """What runs that are expected to take equally long have in common, of a config as in a record."""
    names = [config.get(group, {}).get("name") for group in ("dataset", "model", "scale")]
    trainer, heads = config.get("trainer", {}), config.get("objective", {}).get("heads", 1)
    return (*names, trainer.get("epochs", 0), trainer.get("epochs") or trainer.get("max_steps"), heads)


def hours_left(runs: Sequence[Run], measured: Measured) -> str:
    """The core-hours of the steps that runs have yet to make: ``0.35``, or ``0.35 + runs not measured: 4``."""
    known = [(run, measured.get(_kind(plain(run.config)))) for run in runs]
    hours = [each / 3600 * (1 - min(1.0, run.step / run.steps) if run.steps else 1) for run, each in known if each]
    unknown = len(known) - len(hours)
    return figure(sum(hours)) + (f" + runs not measured: {unknown}" if unknown else "")


def disk_needed(runs: Sequence[Run]) -> int:
    """Return the bytes of the checkpoints that runs keep when they have ended, beyond those that are there."""
    needed = 0
    for run in runs:
        trainer = run.config.trainer
        # The best one, and those that other runs start from, may be older than the newest.
        older = bool(trainer.best) + sum(step != trainer.max_steps for step in run.config.keep_steps)
        newest = min(trainer.keep_checkpoints_after, trainer.keep_checkpoints)
        needed += (older + newest) * checkpoint_bytes(run.config)
        with suppress(OSError):  # a run that trains may delete one meanwhile
            needed -= sum(path.stat().st_size for path in (run.folder / CHECKPOINTS).rglob("*") if path.is_file())
    return max(0, needed)


def checkpoint_bytes(config: Config) -> int:
    """The size of one checkpoint, of the model built without storage; adapters and further heads are not counted.

    A model without a published vocabulary has ``tokenizer.vocab_size`` rows, the most that its tokenizer may need.
    """
    settings: Any = config.model
    key = json.dumps([plain(settings), config.tokenizer.vocab_size])
    if key not in _sizes:
        import torch

        path = settings.path if isinstance(settings, HFConfig) else ""  # where alone its shape is
        shape = replace(settings, pretrained=False, path=path, dropout=settings.dropout or 0.0)
        rows = 0 if getattr(settings, "vocab_size", 0) else config.tokenizer.vocab_size
        with torch.device("meta"):
            model: Any = build(shape, tokenizer=_Tokenizer(range(rows)))
        _sizes[key] = sum(each.numel() for each in model.parameters())
    return _sizes[key] * (WEIGHT if settings.lora.rank else WEIGHT + MOMENTS)


class _Tokenizer(list[int]):
    """The part of a tokenizer's interface that the size of a model depends on."""

    pad_token_id, eos_token_id, mask_token_id = 0, 1, 2


def dry_run(demanded: Sequence[Demand], todo: Sequence[Run], measured: Measured) -> str:
    """A line for each table, and for all with each run once; ``todo`` are the runs that would be made."""
    tables = [(demand.spec.name, set(demand.runs)) for demand in demanded]
    if len(tables) > 1:
        tables.append(("all", set().union(*(runs for _, runs in tables))))
    grid = [["table", "scale", "runs", "missing", "steps", "core-hours", "disk"]]
    for name, runs in tables:
        missing = [run for run in todo if run.id in runs]
        known = all(run.steps or not run.config.trainer.epochs for run in missing)
        steps = f"{sum(run.steps for run in missing):,}" if known else "unknown"
        cost = [steps, hours_left(missing, measured), gigabytes(disk_needed(missing))]
        grid.append([name, demanded[0].scale, str(len(runs)), str(len(missing)), *cost])
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
    if added := computing(demanded[0].spec.added):
        lines.append(f"Every run with {', '.join(added)}; what is measured was measured without.")
    return "\n".join(lines)


def status(demanded: Sequence[Demand], todo: Sequence[Run], measured: Measured) -> str:
    """The number of runs in each state, the core-hours left, then every running or failed run with its step or the
    last line of its log. ``todo`` have no record."""
    found = [(run.id, *_state(run)) for run in todo]
    total = len({name for demand in demanded for name in demand.runs})
    counts = Counter(state for _, state, _ in found) + Counter(done=total - len(todo))
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES) + f" of {total} runs"]
    if todo:
        lines.append(f"Core-hours left, as records of such runs measured them: {hours_left(todo, measured)}.")
    for wanted in ("running", "failed"):
        lines += [f"{state:<8}{name}: {detail}" for name, state, detail in found if state == wanted]
    return "\n".join(lines)


def _state(run: Run) -> tuple[str, str]:
    if is_taken(run.folder):
        return "running", f"step {run.step}/{run.steps or '?'}"
    return ("failed", run.last_line or "its log is empty") if run.log.is_file() else ("missing", "")
