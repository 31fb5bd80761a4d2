"""What a run says of itself: the lines that it prints, and the record of a finished one."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import TrainerCallback

from ntl.config.trainer import OF_NUMBERS, OF_TEXT
from ntl.decoding.batches import SECONDS_BETWEEN
from ntl.losses.sums import DIAGNOSTICS
from ntl.models.lora import parameters
from ntl.results import RunRecord, thin_curve
from ntl.results.match import override_key
from ntl.results.record import PROBE
from ntl.results.spec import RIDGE
from ntl.system.machine import device_name, packages, peak_memory_bytes
from ntl.training.decode import described
from ntl.training.parts import RunParts
from ntl.training.tracking import METRICS, read_metrics
from ntl.training.trainer import ObjectiveTrainer

# Settings of places and of tracking, which do not affect the result.
UNRECORDED = ("output_dir", "data_dir", "tracking", "keep_steps")
# The metrics that the last lines of a run print.
SUMMARY = (
    *("accuracy", "mae", "rmse", "mape_clipped", "exact_match", "bleu", "rouge1", "crps", "unparsable", "misread"),
    *("covered", "coverage_90", "width_90"),
    *("perplexity", "bits_per_byte", "digit_accuracy", "digit_mae", "digit_mae_mean", "number_accuracy", "number_mae"),
)
MEANS = ("ce", "ntl", *DIAGNOSTICS, *OF_NUMBERS, *OF_TEXT)
CURVES = ("loss", "ce", "ntl", "eval_loss", *(f"eval_{name}" for name in MEANS), "learning_rate", "grad_norm")


def banner(parts: RunParts, trainer: ObjectiveTrainer, folder: Path, step: int = 0) -> list[str]:
    """Return the lines that a run prints before its first step; it continues from ``step``."""
    config, args, train = parts.config, trainer.args, parts.encoded("train")
    size = parameters(parts.model)
    trained = sum(each.numel() for each in parts.model.parameters() if each.requires_grad)
    rows = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    tokens = rows * float(np.mean(train.lengths(np.arange(len(train)))))
    validation, tests = len(cast(Any, trainer.eval_dataset)), ", ".join(parts.dataset.test_splits)
    devices = f"{args.world_size} x {device_name(args.device)}" if args.world_size > 1 else device_name(args.device)
    return [
        folder.name,
        f"  model   {config.model.name}, {size:,} parameters{'' if trained == size else f', {trained:,} trained'}",
        f"  device  {devices}",
        f"  rows    {config.dataset.name}: {len(train):,} to train on, {validation:,} to validate; tests: {tests}",
        f"  steps   {f'{step:,} of ' if step else ''}{args.max_steps:,}{' done' if step else ''}, "
        f"each of {rows:,} rows, about {float(f'{tokens:.2g}'):,.0f} tokens",
        f"  folder  {folder}",
    ]


class ProgressLines(TrainerCallback):
    """Prints lines such as ``step 250/500  loss 1.2340  ce 1.1000  ntl 0.4000  31.0 steps/s  8 s left``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock: rate and remaining time count from the first step of this process."""
        self.started = self.last_line = time.monotonic()
        self.first_step = state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Print a line for a training log; evaluations are in metrics.jsonl alone."""
        if logs is None or "loss" not in logs:
            return
        now, done = time.monotonic(), state.global_step - self.first_step
        if now - self.last_line < SECONDS_BETWEEN and state.global_step < state.max_steps:
            return
        self.last_line = now
        rate = done / (now - self.started)
        left = (state.max_steps - state.global_step) / rate
        shown = "  ".join(f"{name} {logs[name]:.4f}" for name in ("loss", "ce", "ntl") if name in logs)
        self.say(f"step {state.global_step:,}/{state.max_steps:,}  {shown}  {rate:.1f} steps/s  {left:.0f} s left")


def summary(record: RunRecord, splits: Sequence[str], rule: str = "") -> list[str]:
    """Return the last lines that a run prints: its main metrics by split.

    ``rule`` is the suffix of the metrics' names: "@paper" for the scoring rules of the paper's authors.
    """

    def shown(key: str, name: str) -> list[str]:
        value = record.metrics.get(key, math.inf)
        text = "undefined" if value is None or math.isnan(value) else f"{value:.4g}"
        return [name.format(text)] if key in record.metrics else []

    lines = []
    for split in splits:
        found = [part for name in SUMMARY for part in shown(f"{split}/{name}{rule}", f"{name} {{}}")]
        lines.append(f"{split}: {', '.join(found)}")
        for of, references in {"constant answers": ("mean", "median", "mode"), "linear model": (RIDGE,)}.items():
            pairs = [(name, reference) for name in ("rmse", "mae") for reference in references]
            if known := [part for n, r in pairs for part in shown(f"{split}/{n}:{r}", f"{n} {{}} ({r})")]:
                lines.append(f"{split}, {of}: {', '.join(known)}")
    return lines


def build_record(
    parts: RunParts,
    trainer: ObjectiveTrainer,
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
        validation: Losses, diagnostics and decoded metrics at the step that is scored, under the trainer's names.
        scores: The result of ``ntl.evaluation.score_predictions``.
        folder: The run's folder; its name is the run's id, and it contains metrics.jsonl.
        values, git: The config (``ntl.config.identity.recorded``) and the source tree at the start of the run.
        seen: Number of examples and of tokens trained on, over all ranks, repeats included.
    """
    config, device = parts.config, trainer.args.device
    of_heads = [key.removeprefix("eval_") for key in validation if "/head" in key]
    names = [name for name in (*MEANS, *of_heads) if f"eval_{name}" in validation]
    losses = {f"validation/{name}": validation[f"eval_{name}"] for name in names}
    return RunRecord(
        id=folder.name,
        overrides=[each for each in overrides if override_key(each).split(".")[0] not in UNRECORDED],
        config={**values, "decoding": described(config.decoding)},
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
        ids_sha256=scores.ids_sha256,
        predictions_sha256=scores.predictions_sha256,
        rules=scores.rules,
    )


def _curves(lines: list[dict[str, float]]) -> dict[str, list[list[float]]]:
    series = {name: [(line["step"], line[name]) for line in lines if name in line] for name in CURVES}
    for line in lines:
        probed: Any = line.get("probe", {})
        for group, value in probed.items():
            series.setdefault(f"{PROBE}{group}", []).append((line["step"], value))
    return {name: thin_curve(points) for name, points in series.items() if points}


def longer_than_train(parts: RunParts) -> dict[str, float]:
    """Return test split -> fraction of its examples with more tokens, question and answer, than any training example.

    A split without examples is left out.
    """
    encoded = {split: parts.encoded(split) for split in ("train", *parts.dataset.test_splits)}
    lengths = {split: rows.lengths(np.arange(len(rows))) for split, rows in encoded.items()}
    longest = int(lengths.pop("train").max(initial=0))
    return {split: round(float(np.mean(tokens > longest)), 4) for split, tokens in lengths.items() if tokens.size}


def _model(parts: RunParts, trainer: ObjectiveTrainer) -> dict[str, Any]:
    found: dict[str, Any] = {"parameters": parameters(parts.model)}
    if parts.config.base:
        found["base"] = {"run": parts.config.base, "sha256": trainer.run["made_of"]["base"]}
    if parts.config.model.pretrained:
        found["weights"] = parts.loaded
    if trainer.best:
        best = trainer.best.best
        found["best"] = {"metric": trainer.best.metric, "step": best.step, "value": best.value}
    return found if isinstance(parts.config.trainer.bf16, bool) else {**found, "bf16": trainer.args.bf16}
