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
from ntl.launch.plan import Demand, Kind, Run, kind_of
from ntl.results import RunRecord
from ntl.results.match import computing
from ntl.training.checkpoints import CHECKPOINTS

# In a checkpoint: bytes of a float32 weight, and of AdamW's two moments of a trained one.
WEIGHT, MOMENTS = 4, 8
_sizes: dict[str, tuple[int, int]] = {}


def figure(value: float) -> str:
    """Format with two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    places = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, places):,.{max(0, places)}f}"


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


def core_seconds(records: Iterable[RunRecord]) -> dict[Kind, float]:
    """Return kind of run -> the median of wall time x CPU threads over its records. Records of GPUs are left out."""
    found: dict[Kind, list[float]] = {}
    for record in records:
        if record.wall_time_s and record.device.lower().startswith("cpu"):
            threads = re.search(r"(\d+) of \d+ threads", record.device)
            seconds = record.wall_time_s * record.num_devices * (int(threads[1]) if threads else 1)
            found.setdefault(kind_of(record.config), []).append(seconds)
    return {kind: median(seconds) for kind, seconds in found.items()}


def core_hours(shares: Iterable[tuple[Config, float]], measured: Mapping[Kind, float]) -> tuple[float, int]:
    """Return the core-hours of shares of runs, and how many of the runs have no record of their kind."""
    known = [(measured.get(kind_of(plain(config))), share) for config, share in shares]
    seconds = [each * share for each, share in known if each is not None]
    return sum(seconds) / 3600, len(known) - len(seconds)


def hours_text(hours: float, not_measured: int) -> str:
    """Format what ``core_hours`` returned: ``0.35``, ``0.35 + 4 runs not measured``, ``4 runs not measured``."""
    if not not_measured:
        return figure(hours)
    runs = f"{not_measured} run{'' if not_measured == 1 else 's'} not measured"
    return f"{figure(hours)} + {runs}" if hours else runs


def disk_needed(runs: Sequence[Run], configs: Mapping[str, Config], at_once: int | None) -> int:
    """Return the most bytes that the checkpoints of runs take beyond those that are there.

    ``at_once`` of the runs train at the same time, None: all. A run that trains has more checkpoints than it keeps.
    """
    sizes = [_checkpoints(run, configs[run.id]) for run in runs]
    training = sorted((most - kept for kept, most in sizes), reverse=True)
    needed = sum(kept for kept, _ in sizes) + sum(training[:at_once])
    for run in runs:
        with suppress(OSError):  # a run that trains may delete one meanwhile
            needed -= sum(path.stat().st_size for path in (run.folder / CHECKPOINTS).rglob("*") if path.is_file())
    return max(0, needed)


def _checkpoints(run: Run, config: Config) -> tuple[int, int]:
    """Return the bytes of a run's checkpoints once it has ended, and the most while it trains."""
    weights, trained = _parameters(config)
    trainer, adapters = config.trainer, trained if config.model.lora.rank else 0
    if not (trainer.max_steps or trainer.epochs):
        return WEIGHT * weights, WEIGHT * weights
    size = WEIGHT * (weights + adapters) + MOMENTS * trained
    # The best one, and those that other runs start from, may be older than the newest.
    older = bool(trainer.best) + sum(step != run.max_steps for step in run.keep_steps)
    kept = older + min(trainer.keep_checkpoints_after, trainer.keep_checkpoints)
    # The newest is written before the oldest is deleted.
    most = older + (trainer.keep_checkpoints + 1 if trainer.save_steps or trainer.best else 1)
    return size * kept, size * most


@dataclass(frozen=True)
class _Tokenizer:
    """The part of a tokenizer's interface that the size of a model depends on."""

    size: int
    pad_token_id: int = 0
    eos_token_id: int = 1
    mask_token_id: int = 2

    def __len__(self) -> int:
        return self.size


def _parameters(config: Config) -> tuple[int, int]:
    """Return the numbers of weights and of trained ones, of the model built without storage.

    A model without a published vocabulary has ``tokenizer.vocab_size`` rows, the most that its tokenizer may need. The
    weights in a folder, ``model.path``, are counted there.
    """
    key = json.dumps([plain(config.model), plain(config.objective), config.tokenizer.vocab_size])
    if key not in _sizes:
        import torch

        from ntl.models.lora import add_lora, parameters

        model_config, lora = config.model, config.model.lora
        rows = 0 if getattr(model_config, "vocab_size", 0) else config.tokenizer.vocab_size
        with torch.device("meta"):
            # That of model=hf has no shapes of its own: they are in the folder.
            path = model_config.path if isinstance(model_config, HFConfig) else ""
            shape = replace(model_config, pretrained=False, path=path, dropout=model_config.dropout or 0.0)
            model: Any = build(shape, tokenizer=_Tokenizer(rows))
            if config.objective.adds:
                model = locate(config.objective.adds)(model, config.objective, "", lambda line: None)
            model = add_lora(model, lora) if lora.rank else model
        stored = _stored(Path(model_config.path)) if model_config.path and model_config.pretrained else 0
        weights = stored or parameters(model)
        trained = sum(each.numel() for each in model.parameters() if each.requires_grad) if lora.rank else weights
        _sizes[key] = weights, trained
    return _sizes[key]


def _stored(folder: Path) -> int:
    from safetensors import SafetensorError, safe_open

    total = 0
    for path in folder.glob("*.safetensors"):
        with suppress(OSError, SafetensorError), safe_open(path, "pt") as file:  # the run reports a damaged file
            total += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return total


def dry_run(
    demanded: Sequence[Demand], todo: Sequence[Run], measured: Mapping[Kind, float], at_once: int | None
) -> dict[str, Any]:
    """Return runs, optimizer steps, core-hours and bytes of disk of each table, and of all with each run once.

    ``todo`` are the runs that would be made, ``at_once`` of them at the same time, None: all, as on Slurm.
    """

    def row(name: str, runs: Mapping[str, Config]) -> dict[str, Any]:
        lacking = [run for run in todo if run.id in runs]
        counts = {"runs": len(runs), "done": len(runs) - len(lacking), "missing": len(lacking)}
        known = all(run.max_steps or not runs[run.id].trainer.epochs for run in lacking)
        steps = sum(run.max_steps for run in lacking) if known else None
        hours, not_measured = core_hours([(runs[run.id], 1.0) for run in lacking], measured)
        took = {"steps": steps, "core_hours": hours, "not_measured": not_measured}
        disk = {"disk_bytes": disk_needed(lacking, runs, at_once), "slurm_disk_bytes": disk_needed(lacking, runs, None)}
        return {"table": name, "scale": demanded[0].scale, **counts, **took, **disk}

    every = {key: config for demand in demanded for key, config in demand.runs.items()}
    rows = [row(demand.spec.name, demand.runs) for demand in demanded]
    return {"tables": rows, "total": row("all", every), "added": list(computing(demanded[0].spec.added))}


def dry_run_text(result: Mapping[str, Any]) -> str:
    """Format for a terminal: one line for each table, and the sum of several."""
    keys = ["table", "scale", "runs", "done", "missing"]
    grid = [[*keys, "steps", "core-hours", "disk", "disk on Slurm"]]
    for row in [*result["tables"], *([result["total"]] if len(result["tables"]) > 1 else [])]:
        steps = "unknown" if row["steps"] is None else f"{row['steps']:,}"
        hours = hours_text(row["core_hours"], row["not_measured"])
        disk = [gigabytes(row[key]) for key in ("disk_bytes", "slurm_disk_bytes")]
        grid.append([*(str(row[key]) for key in keys), steps, hours, *disk])
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in grid]
    if result["added"]:
        lines.append(f"Every run with {', '.join(result['added'])}; what is measured was measured without.")
    return "\n".join(lines)
