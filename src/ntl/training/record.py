"""What a run says of itself: the lines that it prints, metrics.jsonl and its mirror in W&B, and its record."""

import json
import math
import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import TrainerCallback

from ntl.config.identity import plain
from ntl.config.root import TrackingConfig
from ntl.config.trainer import OF_NUMBERS, OF_TEXT
from ntl.decoding.batches import SECONDS_BETWEEN
from ntl.decoding.predictions import described
from ntl.evaluation import Scores
from ntl.evaluation.metrics import CONSTANTS, RIDGE
from ntl.losses.sums import DIAGNOSTICS
from ntl.models.lora import parameters
from ntl.results import RunRecord, thin_curve
from ntl.results.match import override_key
from ntl.results.record import PROBE, pack_bits, pack_errors
from ntl.runs.folder import is_first
from ntl.runs.parts import RunParts
from ntl.system.errors import needs, redact, redacted
from ntl.system.files import write_atomically
from ntl.system.machine import device_name, precision, uses_bf16
from ntl.system.messages import logger
from ntl.training.trainer import ObjectiveTrainer

METRICS = "metrics.jsonl"
# How long the beginning and the end of a run wait for W&B.
SECONDS_TO_BEGIN, SECONDS_TO_FINISH = 30.0, 15.0
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
    trained = sum(parameter.numel() for parameter in parts.model.parameters() if parameter.requires_grad)
    rows = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    tokens = rows * float(np.mean(train.lengths(np.arange(len(train)))))
    validation, tests = len(cast(Any, trainer.eval_dataset)), ", ".join(parts.dataset.test_splits)
    devices = f"{args.world_size} x {device_name(args.device)}" if args.world_size > 1 else device_name(args.device)
    is_slow = args.device.type == "cuda" and not args.bf16 and uses_bf16("auto", args.device)
    faster = "; trainer.bf16=auto is several times as fast here" if is_slow else ""
    return [
        folder.name,
        f"  model   {config.model.name}, {size:,} parameters{'' if trained == size else f', {trained:,} trained'}",
        f"  device  {devices}",
        f"  rows    {config.dataset.name}: {len(train):,} to train on, {validation:,} to validate; tests: {tests}",
        f"  steps   {f'{step:,} of ' if step else ''}{args.max_steps:,}{' done' if step else ''}, "
        f"each of {rows:,} rows, about {float(f'{tokens:.2g}'):,.0f} tokens",
        f"  precision  {_precision(parts, trainer)}{faster}",
        f"  folder  {folder}",
    ]


def _precision(parts: RunParts, trainer: ObjectiveTrainer) -> str:
    args = trainer.args
    return precision(args.bf16, parts.config.trainer.tf32, args.device, sharded=trainer.is_fsdp_enabled)


class ProgressLines(TrainerCallback):
    """Prints lines such as ``step 250/500  loss 1.2340  ce 1.1000  ntl 0.4000  31.0 steps/s  8 s left``."""

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
        logger.info(f"step {state.global_step:,}/{state.max_steps:,}  {shown}  {rate:.3g} steps/s  {left:.0f} s left")


class MetricsFile(TrainerCallback):
    """Appends every log line to metrics.jsonl, and passes it on to ``mirror``.

    A line has step, epoch, and loss, ce, ntl or eval_loss, eval_ce, eval_ntl.
    """

    def __init__(self, path: Path, mirror: Callable[[Mapping[str, float]], None]) -> None:
        self.path, self.mirror = path, mirror

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Rewrite the file from the checkpoint's history, which drops later lines, and replay it to the mirror.

        So W&B's folder of the last process has everything, which is the only one that stays when it is offline.
        """
        if state.is_world_process_zero:
            write_atomically(self.path, "".join(_line(entry["step"], entry) for entry in state.log_history))
            for entry in state.log_history:
                self.mirror(entry)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Append one line of JSON; the summary that the Trainer logs at its end is left out."""
        if not state.is_world_process_zero or logs is None or "train_runtime" in logs:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(state.global_step, logs))
        self.mirror({"step": state.global_step, **logs})


def _line(step: float, logs: Mapping[str, float]) -> str:
    # Sorted, as a checkpoint stores its history with sorted keys: a line stays the same after a resume.
    return json.dumps({"step": step, **dict(sorted(logs.items()))}) + "\n"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read the lines of a metrics file; a last line that was cut off by a kill is left out."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _public(values: Mapping[str, Any]) -> dict[str, Any]:
    """Under the names that W&B shows: ce is train/ce, eval_ce is validation/ce, interpolate/mae is a test's."""

    def named(name: str) -> str:
        if "/" not in name:
            return f"validation/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"
        return name if name.startswith(("validation/", "test/")) else f"test/{name}"

    return {named(name): value for name, value in values.items() if isinstance(value, int | float)}


class Mirror:
    """Mirrors metrics.jsonl to a W&B run of the run's id, if the config asks for it; the first rank alone.

    Whatever the service raises, the run continues: one warning is logged, and nothing more is sent.
    """

    def __init__(self, tracking: TrackingConfig) -> None:
        self.tracking = tracking
        self.works = tracking.to_wandb and is_first()
        if tracking.name == "auto" and not tracking.to_wandb and tracking != TrackingConfig():
            logger.warning(
                "W&B is off: neither WANDB_API_KEY nor WANDB_MODE turns it on; add tracking=wandb to use tracking.*=."
            )

    def start(self, folder: Path, names: Sequence[str], values: Mapping[str, Any]) -> None:
        """Begin the run of a folder, with its config's values; nothing is sent or written before.

        ``names`` are tags, with ``tracking.tags``.
        """
        self._try(lambda: self._start(folder, names, values))

    def log(self, line: Mapping[str, float]) -> None:
        """Show one line of metrics.jsonl."""
        values = _public({name: value for name, value in line.items() if name != "step"})
        self._try(lambda: self._run.log(values, step=int(line["step"])))

    def finish(self, summary: Mapping[str, float | None]) -> None:
        """Show the final metrics, and close."""
        self._try(lambda: self._run.summary.update(_public(summary)))
        self._try(lambda: self._run.finish())

    def _try(self, action: Callable[[], object]) -> None:
        if self.works:
            try:
                action()
            except Exception as error:
                self.works = False
                reason = redact((str(error) or type(error).__name__).splitlines()[0])
                logger.warning(f"W&B failed; nothing more is sent to it ({reason}); {METRICS} has everything.")

    def _start(self, folder: Path, names: Sequence[str], values: Mapping[str, Any]) -> None:
        os.environ.setdefault("WANDB_SILENT", "true")
        with needs("train"):
            import wandb

        # Without a key the client would prompt for one.
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        if mode == "offline":  # what an interrupted process has left is replayed, so that one folder has everything
            for left in folder.glob(f"wandb/offline-run-*-{folder.name}"):
                shutil.rmtree(left, ignore_errors=True)
        self._run: Any = wandb.init(
            project=self.tracking.project,
            entity=self.tracking.entity or None,
            group=self.tracking.group or None,  # None: WANDB_RUN_GROUP, if it is set
            job_type="train",
            tags=list(dict.fromkeys([*self.tracking.tags, *names])),
            id=folder.name,
            name=folder.name,
            dir=str(folder),
            config=redacted({key: value for key, value in values.items() if key != "tracking"}),
            mode=mode,
            resume="allow",
            # An earlier run of this process that failed must not receive the metrics of this one.
            reinit="finish_previous",
            # Also bounds the wait at the exit of the process, where the client uploads what is left.
            settings={"finish_timeout": SECONDS_TO_FINISH, "init_timeout": SECONDS_TO_BEGIN},
        )


def summary(record: RunRecord, rule: str = "") -> list[str]:
    """Return the last lines that a run prints: its main metrics by split.

    ``rule`` is the suffix of the metrics' names: "@paper" for the scoring rules of the paper's authors.
    """

    def shown(key: str, name: str) -> list[str]:
        value = record.metrics.get(key, math.inf)
        text = "undefined" if value is None or math.isnan(value) else f"{value:.4g}"
        return [name.format(text)] if key in record.metrics else []

    lines = []
    for split in record.ids_sha256:
        scores = [part for name in SUMMARY for part in shown(f"{split}/{name}{rule}", f"{name} {{}}")]
        lines.append(f"{split}: {', '.join(scores)}")
        for of, references in {"constant answers": CONSTANTS, "linear model": (RIDGE,)}.items():
            pairs = [(name, reference) for name in ("rmse", "mae") for reference in references]
            if known := [part for n, r in pairs for part in shown(f"{split}/{n}:{r}", f"{n} {{}} ({r})")]:
                lines.append(f"{split}, {of}: {', '.join(known)}")
    return lines


def build_record(
    parts: RunParts,
    trainer: ObjectiveTrainer,
    validation: Mapping[str, float],
    scores: Scores,
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
        folder: The run's folder; its name is the run's id, and it contains metrics.jsonl.
        values, git: The config (``ntl.config.identity.recorded``) and the source tree at the start of the run.
        seen: Number of examples and of tokens trained on, over all ranks, repeats included.
    """
    config, device = parts.config, trainer.args.device
    # decoding=auto has chosen among these by now.
    extra = {"extra_decodings": plain(config.extra_decodings)} if config.extra_decodings else {}
    of_heads = [key.removeprefix("eval_") for key in validation if "/head" in key]
    names = [name for name in (*MEANS, *of_heads) if f"eval_{name}" in validation]
    losses = {f"validation/{name}": validation[f"eval_{name}"] for name in names}
    scored = asdict(replace(scores, metrics={**losses, **scores.metrics}))
    scored["correct"] = {split: pack_bits(answers) for split, answers in scores.correct.items()}
    scored["errors"] = {split: pack_errors(of_split) for split, of_split in scores.errors.items()}
    return RunRecord(
        id=folder.name,
        overrides=[word for word in overrides if override_key(word).split(".")[0] not in UNRECORDED],
        config={**values, "decoding": described(config.decoding), **extra},
        seed=config.seed,
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
        curves=_curves(read_metrics(folder / METRICS)),
        **scored,
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
    about: dict[str, Any] = {"parameters": parameters(parts.model), "precision": _precision(parts, trainer)}
    if parts.config.base:
        about["base"] = {"run": parts.config.base, "sha256": trainer.run["made_of"]["base"]}
    if parts.config.model.pretrained:
        about["weights"] = parts.loaded
    if parts.validation_errors:
        about["readings"] = parts.validation_errors
    if metric := trainer.saves.metric:
        about["best"] = {"metric": metric, "step": trainer.saves.best.step, "value": trainer.saves.best.value}
    return about if isinstance(parts.config.trainer.bf16, bool) else {**about, "bf16": trainer.args.bf16}


PACKAGES = ("ntl", "torch", "transformers", "tokenizers", "accelerate", "numpy", "sentencepiece", "datasets")


def packages() -> dict[str, str]:
    """Return the versions of Python and of the packages that a result depends on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def reset_peak_memory(device: torch.device) -> None:
    """Begin the peak of a GPU anew, as of another run in this process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak device memory on a GPU, or the peak resident memory of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
