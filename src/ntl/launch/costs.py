"""What missing runs take, ``--dry-run``, and how far the runs of tables are, ``--status``."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ntl.config import Config, build
from ntl.config.identity import plain
from ntl.config.model import HFConfig
from ntl.config.targets import locate
from ntl.launch.plan import Demand, Run
from ntl.results import RunRecord
from ntl.results.match import computing
from ntl.training.checkpoints import CHECKPOINTS, is_taken

# In a checkpoint: bytes of a float32 weight, and of AdamW's two moments of a trained one.
WEIGHT, MOMENTS = 4, 8
# In the order of printing. "failed": started, but without a record or a process at work.
STATES = ("done", "running", "failed", "missing")
Measured = Mapping[tuple[str, ...], float]
_sizes: dict[str, int] = {}


def figure(value: float) -> str:
    """Format with two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    places = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, places):,.{max(0, places)}f}"


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


def core_seconds(records: Iterable[RunRecord]) -> dict[tuple[str, ...], float]:
    """Return kind of run -> the median of the core-seconds of its records. Records of GPUs are left out."""
    found: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        if record.core_seconds:
            found.setdefault(_kind(record.config), []).append(record.core_seconds)
    return {kind: median(seconds) for kind, seconds in found.items()}


def _kind(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What runs that are expected to take equally long have in common, of a config as in a record."""
    names = [str(config.get(group, {}).get("name", "")) for group in ("dataset", "model", "scale")]
    trainer = config.get("trainer", {})
    length = f"{epochs:g} epochs" if (epochs := trainer.get("epochs", 0)) else f"{trainer.get('max_steps', 0)} steps"
    return (*names, length, f"{config.get('objective', {}).get('heads', 1)} heads")


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
    """The size of one checkpoint, of the model built without storage.

    A model without a published vocabulary has ``tokenizer.vocab_size`` rows, the most that its tokenizer may need.
    """
    key = json.dumps([plain(config.model), plain(config.objective), config.tokenizer.vocab_size])
    if key not in _sizes:
        import torch

        from ntl.models.lora import add_lora

        settings: Any = config.model
        rows = 0 if getattr(settings, "vocab_size", 0) else config.tokenizer.vocab_size
        # That of model=hf has no shapes of its own: they are in the folder.
        path = settings.path if isinstance(settings, HFConfig) else ""
        shape = replace(settings, pretrained=False, path=path, dropout=settings.dropout or 0.0)
        with torch.device("meta"):
            model: Any = build(shape, tokenizer=_Tokenizer(rows))
            if config.objective.adds:
                model = locate(config.objective.adds)(model, config.objective, "", lambda line: None)
            model = add_lora(model, settings.lora) if settings.lora.rank else model
        _sizes[key] = sum(each.numel() * (WEIGHT + MOMENTS * each.requires_grad) for each in model.parameters())
    return _sizes[key]


@dataclass(frozen=True)
class _Tokenizer:
    """The part of a tokenizer's interface that the size of a model depends on."""

    size: int
    pad_token_id: int = 0
    eos_token_id: int = 1
    mask_token_id: int = 2

    def __len__(self) -> int:
        return self.size


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
    found = [_state(run) for run in todo]
    total = len({name for demand in demanded for name in demand.runs})
    counts = Counter(state for state, _ in found) + Counter(done=total - len(todo))
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES) + f" of {total} runs"]
    if todo:
        lines.append(f"Core-hours left, as records of such runs measured them: {hours_left(todo, measured)}.")
    told = [(state, f"{run.id}: {detail}") for run, (state, detail) in zip(todo, found, strict=True)]
    return "\n".join(
        [*lines, *(f"{each:<8}{line}" for each in ("running", "failed") for at, line in told if at == each)]
    )


def _state(run: Run) -> tuple[str, str]:
    if is_taken(run.folder):
        return "running", f"step {run.step}/{run.steps or '?'}"
    with suppress(OSError):
        lines = [line for line in run.log.read_text(errors="replace").splitlines() if line.strip()]
        return "failed", " ".join(lines[-1].split())[:300] if lines else "its log is empty"
    return "missing", ""
