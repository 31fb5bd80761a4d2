"""What missing runs take, ``--dry-run``, and how far the runs of tables are, ``--status``."""

import json
import math
import re
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
_sizes: dict[str, tuple[int, int]] = {}


def figure(value: float) -> str:
    """Format with two significant digits, without an exponent: 0.35, 3.0, 1,400."""
    places = 1 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{round(value, places):,.{max(0, places)}f}"


def gigabytes(size: float) -> str:
    return f"{figure(size / 1e9)} GB"


# ---- core-hours


def core_seconds(records: Iterable[RunRecord]) -> dict[tuple[str, ...], float]:
    """Return kind of run -> the median of wall time x CPU threads over its records. Records of GPUs are left out."""
    found: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        if record.wall_time_s and record.device.lower().startswith("cpu"):
            threads = re.search(r"(\d+) of \d+ threads", record.device)
            seconds = record.wall_time_s * record.num_devices * (int(threads[1]) if threads else 1)
            found.setdefault(_kind(record.config), []).append(seconds)
    return {kind: median(seconds) for kind, seconds in found.items()}


def _kind(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What runs that are expected to take equally long have in common, of a config as in a record."""
    names = [str(config.get(group, {}).get("name", "")) for group in ("dataset", "model", "scale")]
    trainer = config.get("trainer", {})
    length = f"{epochs:g} epochs" if (epochs := trainer.get("epochs", 0)) else f"{trainer.get('max_steps', 0)} steps"
    return (*names, length, f"{config.get('objective', {}).get('heads', 1)} heads")


def hours_left(runs: Sequence[Run], measured: Measured) -> tuple[float, int]:
    """Return the core-hours of the steps that runs have yet to make, and how many runs have no record of their kind."""
    known = [(run, measured.get(_kind(plain(run.config)))) for run in runs]
    hours = [each / 3600 * (1 - min(1.0, run.step / run.steps) if run.steps else 1) for run, each in known if each]
    return sum(hours), len(known) - len(hours)


def hours_text(hours: float, not_measured: int) -> str:
    """Format what ``hours_left`` returned: ``0.35``, or ``0.35 + runs not measured: 4``."""
    return f"{figure(hours)} + runs not measured: {not_measured}" if not_measured else figure(hours)


# ---- disk


def disk_needed(runs: Sequence[Run], at_once: int | None) -> int:
    """Return the most bytes that the checkpoints of runs take beyond those that are there: their number x their size.

    ``at_once`` of the runs train at the same time, None: all. A run that trains has more checkpoints than it keeps.
    """
    sizes = [_checkpoints(run.config) for run in runs]
    needed = sum(kept for kept, _ in sizes) + sum(sorted((more for _, more in sizes), reverse=True)[:at_once])
    for run in runs:
        with suppress(OSError):  # a run that trains may delete one meanwhile
            needed -= sum(path.stat().st_size for path in (run.folder / CHECKPOINTS).rglob("*") if path.is_file())
    return max(0, needed)


def _checkpoints(config: Config) -> tuple[int, int]:
    """The bytes of a run's checkpoints once it has ended, and those that it has besides while it trains."""
    weights, trained = _parameters(config)
    trainer = config.trainer
    if not (trainer.max_steps or trainer.epochs):
        return WEIGHT * weights, 0
    # The best one, and those that other runs start from, may be older than the newest.
    older = bool(trainer.best) + sum(step != trainer.max_steps for step in config.keep_steps)
    kept = min(trainer.keep_checkpoints_after, trainer.keep_checkpoints)
    # The newest is written before the oldest is deleted.
    most = trainer.keep_checkpoints + 1 if trainer.save_steps or trainer.best else 1
    size = WEIGHT * weights + MOMENTS * trained
    return size * (older + kept), size * (most - kept)


def _parameters(config: Config) -> tuple[int, int]:
    """The numbers of weights and of trained ones, of the model built without storage.

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
        parameters = list(model.parameters())
        trained = sum(each.numel() for each in parameters if each.requires_grad or not settings.lora.rank)
        _sizes[key] = sum(each.numel() for each in parameters), trained
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


# ---- what is printed


def dry_run(
    demanded: Sequence[Demand], todo: Sequence[Run], measured: Measured, at_once: int | None
) -> list[dict[str, Any]]:
    """Return runs, optimizer steps, core-hours and bytes of disk of each table, and of all with each run once.

    ``todo`` are the runs that would be made, ``at_once`` of them at the same time, None: all.
    """
    tables = [(demand.spec.name, demand.runs) for demand in demanded]
    if len(tables) > 1:
        tables.append(("all", {name: config for _, runs in tables for name, config in runs.items()}))
    found = []
    for name, runs in tables:
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


def statuses(demanded: Sequence[Demand], todo: Sequence[Run]) -> list[dict[str, str]]:
    """Return id, state and detail, its step or the last line of its log, of each run; ``todo`` have no record."""
    missing = {run.id: run for run in todo}
    ids = dict.fromkeys(name for demand in demanded for name in demand.runs)
    states = {name: _state(missing[name]) if name in missing else ("done", "") for name in ids}
    return [{"id": name, "state": state, "detail": detail} for name, (state, detail) in states.items()]


def _state(run: Run) -> tuple[str, str]:
    if is_taken(run.folder):
        return "running", f"step {run.step}/{run.steps or '?'}"
    with suppress(OSError):
        lines = [line for line in run.log.read_text(errors="replace").splitlines() if line.strip()]
        return "failed", " ".join(lines[-1].split())[:300] if lines else "its log is empty"
    return "missing", ""


def status_text(found: Sequence[Mapping[str, str]], todo: Sequence[Run], measured: Measured) -> str:
    """The number of runs in each state, the core-hours left, then every running or failed run."""
    counts = Counter(each["state"] for each in found)
    lines = [", ".join(f"{counts[state]} {state}" for state in STATES) + f" of {len(found)} runs"]
    if todo:
        left = hours_text(*hours_left(todo, measured))
        lines.append(f"Core-hours left, as records of such runs measured them: {left}.")
    told = [each for state in ("running", "failed") for each in found if each["state"] == state]
    return "\n".join([*lines, *(f"{each['state']:<8}{each['id']}: {each['detail']}" for each in told)])
