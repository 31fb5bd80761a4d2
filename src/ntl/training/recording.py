"""The record of a run that ended well."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PretrainedConfig

from ntl.models.lora import LORA
from ntl.results import RunRecord, pack_errors, thin_curve
from ntl.results.match import override_key
from ntl.results.record import PROBE
from ntl.training.environment import device_name, packages, peak_memory_bytes
from ntl.training.prediction import described
from ntl.training.tracking import METRICS, read_metrics

if TYPE_CHECKING:
    from ntl.training.session import Session
    from ntl.training.trainer import ObjectiveTrainer

# Where things are, and who watches: no part of what was computed.
UNRECORDED = ("output_dir", "data_dir", "tracking", "keep_steps")
CURVES = ("loss", "ce", "ntl", "eval_loss", "eval_ce", "eval_ntl", "learning_rate", "grad_norm")


def _curves(lines: list[dict[str, float]]) -> dict[str, list[list[float]]]:
    series = {name: [(line["step"], line[name]) for line in lines if name in line] for name in CURVES}
    probes = [(line["step"], values) for line in lines if isinstance(values := line.get("probe"), dict)]
    for group in sorted({group for _, values in probes for group in values}):
        series[f"{PROBE}{group}"] = [(step, values[group]) for step, values in probes if group in values]
    return {name: thin_curve(points) for name, points in series.items() if points}


def _is_recorded(override: str) -> bool:
    return override_key(override).split(".")[0] not in UNRECORDED


def longer_than_train(session: "Session") -> dict[str, float]:
    """Test split -> the share of its examples that have more tokens than any training example.

    A model with learned positions, for one, cannot know those behind the last that it was trained on. Question and
    answer are counted together, in the tokens of the run.
    """
    longest = int(_lengths(session, "train").max(initial=0))
    lengths = {split: _lengths(session, split) for split in session.dataset.test_splits}
    return {split: round(float(np.mean(tokens > longest)), 4) for split, tokens in lengths.items() if tokens.size}


def _lengths(session: "Session", split: str) -> np.ndarray:
    encoded = session.encoded(split)
    return encoded.lengths(np.arange(len(encoded)))


def _model(session: "Session") -> dict[str, Any]:
    named = session.model.named_parameters()
    found: dict[str, Any] = {"parameters": sum(each.numel() for name, each in named if LORA not in name)}
    if session.config.base:
        found["base"] = {"run": session.config.base, "sha256": session.run_description["made_of"]["base"]}
    if session.config.model.pretrained:
        found |= {"weights": session.loaded, "shape": shape(session.model.config)}
    return found


def shape(config: Any) -> dict[str, Any]:
    """The numbers in a model's config that are its architecture's own, and what else of that is not as by default."""
    own = {name: value for name, value in config.to_dict().items() if isinstance(value, int | float | str)}
    common, default = PretrainedConfig().to_dict(), type(config)().to_dict()
    kept = {
        name: value
        for name, value in own.items()
        if name not in common and not name.endswith("_token_id") and (type(value) is int or value != default.get(name))
    }
    return {"model_type": config.model_type, **kept}


def build_record(
    session: "Session",
    trainer: "ObjectiveTrainer",
    validation: Mapping[str, float],
    scores: Any,
    *,
    git: dict[str, Any],
    seen: tuple[int, int],
    seconds: float,
) -> RunRecord:
    """Everything that a table, a figure or a paired test reads.

    Args:
        validation: ``eval_ce`` and ``eval_ntl`` at the last step, where there are such.
        scores: What ``ntl.evaluation.score_predictions`` found.
        git: The source that the run was started from (``git_state``).
        seen: Examples and tokens that were trained on, over all ranks, repeats included.
        seconds: This process' wall time.
    """
    config = session.config
    values = session.recorded | {"decoding": described(session, config.decoding)}
    device: torch.device = trainer.args.device
    names = [name for name in ("ce", "ntl") if f"eval_{name}" in validation]
    losses = {f"validation/{name}": validation[f"eval_{name}"] for name in names}
    return RunRecord(
        id=session.folder.name,
        overrides=[override for override in session.overrides if _is_recorded(override)],
        config=values,
        seed=config.seed,
        metrics={**losses, **scores.metrics},
        git=git,
        packages=packages(),
        device=device_name(device),
        model=_model(session),
        num_devices=trainer.args.world_size,
        data={**session.fingerprint, "longer_than_train": longer_than_train(session)},
        steps=trainer.state.global_step,
        examples_seen=seen[0],
        tokens_seen=seen[1],
        wall_time_s=round(seconds, 3),
        peak_memory_bytes=peak_memory_bytes(device),
        groups=scores.groups,
        curves=_curves(read_metrics(session.folder / METRICS)),
        correct=scores.correct,
        errors={split: pack_errors(errors) for split, errors in scores.errors.items()},
        digit_histograms=scores.digits,
        ids_sha256=scores.ids_sha256,
        predictions_sha256=scores.predictions_sha256,
        rules=scores.rules,
    )
