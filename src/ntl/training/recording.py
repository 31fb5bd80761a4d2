"""The record of a run that ended well."""

from typing import TYPE_CHECKING, Any

import torch

from ntl.config.identity import plain
from ntl.results import RunRecord, pack_errors, thin_curve
from ntl.training.environment import device_name, git_state, packages, peak_memory_bytes
from ntl.training.tracking import METRICS, read_metrics

if TYPE_CHECKING:
    from ntl.training.session import Session
    from ntl.training.trainer import ObjectiveTrainer

# Where a run lies and who watches it is no part of what was computed.
NOT_RECORDED = ("output_dir", "data_dir", "tracking", "resume", "device")
CURVES = ("loss", "ce", "ntl", "eval_loss", "eval_ce", "eval_ntl", "learning_rate", "grad_norm")


def _curves(lines: list[dict[str, float]]) -> dict[str, list[list[float]]]:
    series = {name: [(line["step"], line[name]) for line in lines if name in line] for name in CURVES}
    return {name: thin_curve(points) for name, points in series.items() if points}


def build_record(
    session: "Session",
    trainer: "ObjectiveTrainer",
    validation: dict[str, float],
    scores: Any,
    fingerprint: dict[str, Any],
    seconds: float,
) -> RunRecord:
    """Everything that a table, a figure or a paired test reads; ``seconds`` is this process' wall time."""
    config = session.config
    values = {key: value for key, value in plain(config).items() if key not in NOT_RECORDED}
    device: torch.device = trainer.args.device
    losses = {f"validation/{name}": validation[f"eval_{name}"] for name in ("ce", "ntl")}
    examples = trainer.state.global_step * config.trainer.batch_size * config.trainer.accumulation_steps
    return RunRecord(
        id=session.folder.name,
        overrides=session.overrides,
        config=values,
        seed=config.seed,
        metrics={**losses, **scores.metrics},
        git=git_state(),
        packages=packages(),
        device=device_name(device),
        num_devices=trainer.args.world_size,
        data=fingerprint,
        steps=trainer.state.global_step,
        examples_seen=examples * trainer.args.world_size,
        tokens_seen=int(trainer.tokens_seen),
        wall_time_s=round(seconds, 3),
        peak_memory_bytes=peak_memory_bytes(device),
        groups=scores.groups,
        curves=_curves(read_metrics(session.folder / METRICS)),
        correct=scores.correct,
        errors={split: pack_errors(errors) for split, errors in scores.errors.items()},
        digit_histograms=scores.digits,
        ids_sha256=scores.ids_sha256,
        predictions_sha256=scores.predictions_sha256,
    )
