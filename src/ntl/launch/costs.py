"""What the missing runs of tables take: steps, core-hours where records have measured them, disk of checkpoints."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from ntl.config import Config, build
from ntl.config.identity import plain
from ntl.config.model import HFConfig
from ntl.config.targets import locate
from ntl.launch.plan import Demand, Run, kind_of
from ntl.results import RunRecord
from ntl.results.match import computing
from ntl.system.hub import stored_parameters
from ntl.training.checkpoints import CHECKPOINTS

# In a checkpoint: bytes of a float32 weight, and of AdamW's two moments of a trained one.
WEIGHT, MOMENTS = 4, 8
Measured = Mapping[tuple[str, ...], float]
_sizes: dict[str, tuple[int, int]] = {}


def figure(value: float) -> str:
    """Format with two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    places = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, places):,.{max(0, places)}f}"


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


def core_seconds(records: Iterable[RunRecord]) -> dict[tuple[str, ...], float]:
    """Return kind of run -> the median of wall time x CPU threads over its records. Records of GPUs are left out."""
    found: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        if record.wall_time_s and record.device.lower().startswith("cpu"):
            threads = re.search(r"(\d+) of \d+ threads", record.device)
            seconds = record.wall_time_s * record.num_devices * (int(threads[1]) if threads else 1)
            found.setdefault(kind_of(record.config), []).append(seconds)
    return {kind: median(seconds) for kind, seconds in found.items()}


def hours_left(runs: Sequence[Run], measured: Measured) -> tuple[float, int]:
    """Return the core-hours of the steps that runs have yet to make, and how many runs have no record of their kind."""
    known = [(run, measured.get(kind_of(plain(run.config)))) for run in runs]
    hours = [each / 3600 * (1 - min(1.0, run.step / run.steps) if run.steps else 1) for run, each in known if each]
    return sum(hours), len(known) - len(hours)


def hours_text(hours: float, not_measured: int) -> str:
    """Format what ``hours_left`` returned: ``0.35``, ``0.35 + 4 runs not measured``, ``4 runs not measured``."""
    if not not_measured:
        return figure(hours)
    runs = f"{not_measured} run{'' if not_measured == 1 else 's'} not measured"
    return f"{figure(hours)} + {runs}" if hours else runs


def disk_needed(runs: Sequence[Run], at_once: int | None) -> int:
    """Return the most bytes that the checkpoints of runs take beyond those that are there: their number x their size.

    ``at_once`` of the runs train at the same time, None: all. A run that trains has more checkpoints than it keeps.
    """
    sizes = [checkpoints(run) for run in runs]
    training = sorted((most - kept for kept, most in sizes), reverse=True)
    needed = sum(kept for kept, _ in sizes) + sum(training[:at_once])
    for run in runs:
        with suppress(OSError):  # a run that trains may delete one meanwhile
            needed -= sum(path.stat().st_size for path in (run.folder / CHECKPOINTS).rglob("*") if path.is_file())
    return max(0, needed)


def checkpoints(run: Run) -> tuple[int, int]:
    """Return the bytes of a run's checkpoints once it has ended, and the most while it trains."""
    weights, trained = parameters(run.config)
    trainer, adapters = run.config.trainer, trained if run.config.model.lora.rank else 0
    if not (trainer.max_steps or trainer.epochs):
        return WEIGHT * weights, WEIGHT * weights
    size = WEIGHT * (weights + adapters) + MOMENTS * trained
    # The best one, and those that other runs start from, may be older than the newest.
    older = bool(trainer.best) + sum(step != trainer.max_steps for step in run.config.keep_steps)
    kept = older + min(trainer.keep_checkpoints_after, trainer.keep_checkpoints)
    # The newest is written before the oldest is deleted.
    most = older + (trainer.keep_checkpoints + 1 if trainer.save_steps or trainer.best else 1)
    return size * kept, size * most


def parameters(config: Config) -> tuple[int, int]:
    """Return the numbers of weights and of trained ones, of the model built without storage.

    A model without a published vocabulary has ``tokenizer.vocab_size`` rows, the most that its tokenizer may need. The
    weights in a folder, ``model.path``, are counted there.
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
        trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
        weights = sum(each.numel() for name, each in model.named_parameters() if "lora_" not in name)
        if settings.path and settings.pretrained:
            weights = stored_parameters(sorted(Path(settings.path).glob("*.safetensors"))) or weights
        _sizes[key] = weights, trained if settings.lora.rank else weights
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


def dry_run(
    demanded: Sequence[Demand], todo: Sequence[Run], measured: Measured, at_once: int | None
) -> list[dict[str, Any]]:
    """Return runs, optimizer steps, core-hours and bytes of disk of each table, and of all with each run once.

    ``todo`` are the runs that would be made, ``at_once`` of them at the same time, None: all.
    """
    rows = [(demand.spec.name, demand.runs) for demand in demanded]
    if len(rows) > 1:
        rows.append(("all", {name: config for _, runs in rows for name, config in runs.items()}))
    found = []
    for name, runs in rows:
        missing = [run for run in todo if run.id in runs]
        known = all(run.steps or not run.config.trainer.epochs for run in missing)
        hours, not_measured = hours_left(missing, measured)
        row = {"table": name, "scale": demanded[0].scale, "runs": len(runs), "missing": len(missing)}
        row |= {"steps": sum(run.steps for run in missing) if known else None}
        row |= {"core_hours": hours, "not_measured": not_measured, "disk_bytes": disk_needed(missing, at_once)}
        found.append(row)
    return found


def dry_run_text(rows: Sequence[Mapping[str, Any]], added: Sequence[str] = ()) -> str:
    """Format for a terminal: one line for each table. ``added`` are settings of all runs."""
    grid = [["table", "scale", "runs", "missing", "steps", "core-hours", "disk"]]
    for row in rows:
        steps = "unknown" if row["steps"] is None else f"{row['steps']:,}"
        cost = [steps, hours_text(row["core_hours"], row["not_measured"]), gigabytes(row["disk_bytes"])]
        grid.append([*(str(row[key]) for key in grid[0][:4]), *cost])
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
    if changed := computing(added):
        lines.append(f"Every run with {', '.join(changed)}; what is measured was measured without.")
    return "\n".join(lines)
