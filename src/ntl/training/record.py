"""The record of a finished run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import PretrainedConfig

from ntl.config.trainer import OF_NUMBERS, OF_TEXT
from ntl.losses.diagnostics import DIAGNOSTICS
from ntl.models.lora import parameters
from ntl.results import RunRecord, pack_errors, thin_curve
from ntl.results.match import override_key
from ntl.results.packing import PROBE
from ntl.results.spec import RIDGE
from ntl.system.machine import device_name, packages, peak_memory_bytes
from ntl.training.decode import described
from ntl.training.tracking import METRICS, read_metrics

if TYPE_CHECKING:
    from ntl.training.parts import RunParts
    from ntl.training.trainer import ObjectiveTrainer

# Settings of places and of tracking, which do not affect the result.
UNRECORDED = ("output_dir", "data_dir", "tracking", "keep_steps")
# The metrics that the last lines of a run print.
SUMMARY = (
    *("accuracy", "mae", "rmse", "mape_clipped", "exact_match", "bleu", "rouge1", "crps", "unparsable"),
    *("covered", "coverage_90", "width_90"),
    *("perplexity", "bits_per_byte", "digit_accuracy", "digit_mae", "digit_mae_mean", "number_accuracy", "number_mae"),
)
MEANS = ("ce", "ntl", *DIAGNOSTICS, *OF_NUMBERS, *OF_TEXT)
CURVES = ("loss", "ce", "ntl", "eval_loss", *(f"eval_{name}" for name in MEANS), "learning_rate", "grad_norm")


def _curves(lines: list[dict[str, float]]) -> dict[str, list[list[float]]]:
    series = {name: [(line["step"], line[name]) for line in lines if name in line] for name in CURVES}
    probes = [(line["step"], values) for line in lines if isinstance(values := line.get("probe"), dict)]
    for group in sorted({group for _, values in probes for group in values}):
        series[f"{PROBE}{group}"] = [(step, values[group]) for step, values in probes if group in values]
    return {name: thin_curve(points) for name, points in series.items() if points}


def longer_than_train(parts: "RunParts") -> dict[str, float]:
    """Return test split -> fraction of its examples with more tokens than any training example.

    Tokens of question and answer are counted together: positions beyond the longest training example, for instance, are
    not learned. A split without examples is left out.
    """
    encoded = {split: parts.encoded(split) for split in ("train", *parts.dataset.test_splits)}
    lengths = {split: rows.lengths(np.arange(len(rows))) for split, rows in encoded.items()}
    longest = int(lengths.pop("train").max(initial=0))
    return {split: round(float(np.mean(tokens > longest)), 4) for split, tokens in lengths.items() if tokens.size}


def _model(parts: "RunParts", trainer: "ObjectiveTrainer") -> dict[str, Any]:
    found: dict[str, Any] = {"parameters": parameters(parts.model)}
    if parts.config.base:
        found["base"] = {"run": parts.config.base, "sha256": trainer.run["made_of"]["base"]}
    if parts.config.model.pretrained:
        found |= {"weights": parts.loaded, "shape": shape(parts.model.config)}
    if trainer.best:
        best = trainer.best.best
        found["best"] = {"metric": trainer.best.metric, "step": best.step, "value": best.value}
    return found if isinstance(parts.config.trainer.bf16, bool) else {**found, "bf16": trainer.args.bf16}


def shape(config: Any) -> dict[str, Any]:
    """Return the architecture in a model's config: its own integers, and other values of its own if not defaults."""
    own = {name: value for name, value in config.to_dict().items() if isinstance(value, int | float | str)}
    common, default = PretrainedConfig().to_dict(), type(config)().to_dict()
    kept = {
        name: value
        for name, value in own.items()
        if name not in common and not name.endswith("_token_id") and (type(value) is int or value != default.get(name))
    }
    return {"model_type": config.model_type, **kept}


def build_record(
    parts: "RunParts",
    trainer: "ObjectiveTrainer",
    validation: Mapping[str, float],
    scores: Any,
    *,
    folder: Path,
    overrides: Sequence[str],
    values: Mapping[str, Any],
    git: dict[str, Any],
    seen: tuple[int, int],
) -> RunRecord:
    """Build the record of a run: everything that a table, a figure or a paired test reads.

    Args:
        parts: The parts of the run.
        trainer: The trainer, after training.
        validation: ``eval_ce``, ``eval_ntl``, diagnostics and decoded metrics at the step that is scored, as far as
            there are any.
        scores: The result of ``ntl.evaluation.score_predictions``.
        folder: The run's folder; its name is the run's id, and it contains metrics.jsonl.
        overrides: The overrides of the command line.
        values: The config as ``ntl.config.identity.recorded`` returns it.
        git: The state of the source tree at the start of the run (``git_state``).
        seen: Number of examples and of tokens trained on, over all ranks, repeats included.
    """
    config = parts.config
    values = {**values, "decoding": described(parts.model, config.decoding)}
    device: torch.device = trainer.args.device
    of_heads = [key.removeprefix("eval_") for key in validation if "/head" in key]
    names = [name for name in MEANS if f"eval_{name}" in validation] + of_heads
    losses = {f"validation/{name}": validation[f"eval_{name}"] for name in names}
    return RunRecord(
        id=folder.name,
        overrides=[each for each in overrides if override_key(each).split(".")[0] not in UNRECORDED],
        config=values,
        seed=config.seed,
        metrics={**losses, **scores.metrics},
        git=git,
        packages=packages(),
        device=device_name(device),
        model=_model(parts, trainer),
        num_devices=trainer.args.world_size,
        data={**parts.fingerprint, "longer_than_train": longer_than_train(parts)},
        steps=trainer.state.global_step,
        examples_seen=seen[0],
        tokens_seen=seen[1],
        wall_time_s=round(trainer.wall_time(), 3),
        peak_memory_bytes=peak_memory_bytes(device),
        groups=scores.groups,
        curves=_curves(read_metrics(folder / METRICS)),
        correct=scores.correct,
        errors={split: pack_errors(errors) for split, errors in scores.errors.items()},
        digit_histograms=scores.digits,
        ids_sha256=scores.ids_sha256,
        predictions_sha256=scores.predictions_sha256,
        rules=scores.rules,
    )


def summary(record: RunRecord, splits: Sequence[str], rule: str = "") -> list[str]:
    """Return the last lines that a run prints: its main metrics by split.

    ``rule`` is the suffix of the metrics' names: "@paper" for the scoring rules of the paper's authors.
    """
    lines = []
    for split in splits:
        named = {name: f"{split}/{name}{rule}" for name in SUMMARY}
        shown = [f"{name} {_text(record.metrics[key])}" for name, key in named.items() if key in record.metrics]
        lines.append(f"{split}: {', '.join(shown)}")
        for of, references in {"constant answers": ("mean", "median", "mode"), "linear model": (RIDGE,)}.items():
            known = [
                f"{name} {_text(record.metrics[key])} ({reference})"
                for name in ("rmse", "mae")
                for reference in references
                if (key := f"{split}/{name}:{reference}") in record.metrics
            ]
            if known:
                lines.append(f"{split}, {of}: {', '.join(known)}")
    return lines


def _text(value: float | None) -> str:
    return "undefined" if value is None or math.isnan(value) else f"{value:.4g}"
