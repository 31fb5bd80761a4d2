"""Schema of training: optimization, evaluation, checkpoints, parallelism."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ntl.config.settings import Rule, Schema, nearest, setting
from ntl.config.validation import LISTS, NUMERIC, PLAIN
from ntl.evaluation.metrics import NUMBER, TEXT, Better

# A setting in epochs, or in a share of all steps -> the setting in steps that follows from it (``in_steps``).
DERIVED = {"epochs": "max_steps", "eval_epochs": "eval_steps", "save_epochs": "save_steps"}
DERIVED |= {"warmup_ratio": "warmup_steps"}
WARMUP = ("warmup_steps", "warmup_ratio")
LOSS = "loss"
# The decoded validation metrics that ``best`` may name, by the kind of answers.
OF_NUMBERS, OF_TEXT = (
    tuple(metric.name for metric in metrics if metric.better is not Better.neither) for metrics in (NUMBER, TEXT)
)
OF_LISTS = ("accuracy", "mae")
TORCH_OPTIMIZERS = ("adamw", "adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop")
# The optimizers of transformers (``OptimizerNames``) that need neither a package nor settings of their own.
OPTIMIZERS = (*TORCH_OPTIMIZERS, "adafactor")

CODE = "original code"


def _steps(default: int, meaning: str, min: int = 0, **about: Any) -> Any:
    return setting(default, meaning, "optimizer steps", min=min, **about)


def _epochs(meaning: str, other: str) -> Any:
    return setting(0.0, f"{meaning}, in place of `{other}`; 0: use `{other}`.", "epochs", min=0, max=1_000_000)


def _count(default: int, meaning: str, unit: str = "", min: int = 1, origin: str = CODE) -> Any:
    return setting(default, meaning, unit, origin=origin, min=min)


@dataclass
class TrainerConfig(Schema, schema="trainer/base"):
    """Optimization, evaluation and checkpoints. Most values come from ``scale=``."""

    name: str = setting("default", "The choice of the group.")
    max_steps: int = _steps(1000, "How long to train; 0 scores the model as it is.")
    epochs: float = _epochs("How long to train", "max_steps")
    batch_size: int = _count(32, "Examples of one forward pass, on each device.", "examples", origin="paper")
    max_tokens_per_batch: int = setting(
        0, "Compute each batch in parts of at most so many tokens: less memory, the same gradient.", "tokens", min=0
    )
    accumulation_steps: int = _count(1, "Forward passes of one optimizer step.", "batches")
    optim: str = setting("adamw", "An optimizer of transformers; `adamw` is their default.", choices=OPTIMIZERS)
    lr: float = setting(1e-4, "The highest learning rate.", origin=CODE, above=0)
    schedule: str = setting(
        "plateau",
        "`plateau`: times `factor` after `patience` evaluations without a lower loss.",
        origin=CODE,
        choices=("plateau", "linear", "cosine", "constant"),
    )
    warmup_steps: int = _steps(0, "The learning rate first rises from 0 over so many steps.", origin=CODE)
    warmup_ratio: float = setting(0.0, "A share of all steps, in place of `warmup_steps`.", min=0, max=1)
    patience: int = _count(5, "See `schedule`.", "evaluations")
    factor: float = setting(0.5, "See `schedule`.", origin=CODE, above=0, max=1)
    weight_decay: float = setting(0.01, "Weight decay of AdamW.", origin=CODE, min=0)
    max_grad_norm: float = setting(
        1.0, "A larger norm of the gradient is scaled down to this.", origin=CODE, above=0, max=math.inf
    )
    normalization: str = setting(
        "step",
        "`step` divides the loss by the labels of the whole step; `micro_batch`: mean of means, as the paper.",
        choices=("step", "micro_batch"),
    )
    # Any, since omegaconf does not merge a typed union.
    bf16: Any = setting(
        False,
        "bfloat16, with float32 weights; `auto`: where a device can.",
        origin=CODE,
        choices=(True, False, "auto"),
    )
    tf32: bool = setting(False, "float32 matrix products by TF32 on a GPU: faster, with 10 bits of a mantissa.")
    gradient_checkpointing: bool = setting(False, "Recompute activations in the backward pass: less memory, slower.")
    eval_steps: int = _steps(0, "Validate every so many steps; 0: only at the end.")
    eval_epochs: float = _epochs("Validate every so many epochs", "eval_steps")
    eval_decoded: bool = setting(False, "Also decode the `eval_rows` at each validation, as the test sets are decoded.")
    best: str = setting("", "Metric, `loss` or decoded, whose best checkpoint is scored; empty: score the last.")
    early_stopping: int = _count(0, "Stop after N without a new `best`; 0: never.", "evaluations", min=0, origin="")
    eval_batch_size: int = _count(64, "Examples of one forward pass of validation, on each device.", "examples")
    eval_rows: int = setting(0, "Validate on the first so many rows; 0: on all.", "rows", min=0)
    save_steps: int = _steps(500, "Write a checkpoint every so many steps; 0: none, so no decoding again.")
    save_epochs: float = _epochs("A checkpoint every so many epochs", "save_steps")
    logging_steps: int = _steps(50, "Log the training loss every so many steps.", min=1)
    keep_checkpoints: int = _count(2, "How many of the newest checkpoints are kept during training.")
    keep_checkpoints_after: int = _count(1, "How many are kept once the run has finished.", origin="")
    length_bucketing: bool = setting(False, "Batches of similar length: less padding, but less random batches.")
    max_input_length: int = setting(
        512, "The beginning of a longer question is cut off, with a warning.", "tokens", origin=f"{CODE} (T5's)", min=8
    )
    num_workers: int = setting(0, "Further processes that load data, for each device.", "processes", min=0)
    parallel: str = setting(
        "auto",
        "`ddp` copies the model, `fsdp` shards it; `auto` is ddp where torchrun started several processes.",
        choices=("auto", "ddp", "fsdp"),
    )

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        answers, trains = config.dataset.answers, self.max_steps or self.epochs
        if self.parallel == "fsdp":
            if self.optim not in TORCH_OPTIMIZERS:
                yield ".optim .parallel", f"take one of {', '.join(TORCH_OPTIMIZERS)}, or trainer=ddp."
            if not trains:
                yield ".max_steps .parallel", "nothing is trained; use trainer=ddp."
            if is_decoded(self):
                line = "sharded weights are not decoded; set trainer.eval_decoded=false trainer.best=loss, or use ddp."
                yield ".parallel .eval_decoded .best", line
            if self.max_tokens_per_batch:
                yield ".parallel .max_tokens_per_batch", "set trainer.max_tokens_per_batch=0, or trainer=ddp."
            if config.probe_steps:
                yield ".parallel probe_steps", "sharded weights are not decoded; set probe_steps=0, or trainer=ddp."
        is_blind = trains and not (self.eval_steps or self.eval_epochs)
        if is_blind and self.schedule == "plateau":
            yield ".schedule .eval_steps", "it needs validations; set trainer.eval_steps, or trainer.schedule=constant."
        if answers == PLAIN and self.eval_decoded:
            yield ".eval_decoded dataset", "plain text has no answers to decode; leave it out."
        fitting = (LOSS, *{PLAIN: (), LISTS: OF_LISTS, **dict.fromkeys(NUMERIC, OF_NUMBERS)}.get(answers, OF_TEXT))
        if self.best and self.best not in fitting:
            line = f"no metric of these answers; choose one of {', '.join(fitting)}.{nearest(self.best, fitting)}"
            yield ".best dataset", line
        if self.best and is_blind:
            yield ".best .eval_steps", "only evaluations say which is best; set trainer.eval_epochs=1, or leave it out."
        if self.early_stopping and not self.best:
            yield ".early_stopping .best", "it watches a metric; set trainer.best=loss, or another validation metric."
        for key in WARMUP:
            if f"trainer.{key}" in typed and getattr(self, key) and self.schedule == "plateau":
                yield f".{key} .schedule", "it has no warm-up; leave one of the two out."
        for length, steps in DERIVED.items():
            if getattr(self, length) and {f"trainer.{length}", f"trainer.{steps}"} <= {*typed}:
                yield f".{length} .{steps}", f"trainer.{steps} follows from trainer.{length}; leave one of them out."


def in_steps(config: TrainerConfig, rows: int, processes: int = 1) -> TrainerConfig:
    """The config with the steps of ``DERIVED``, for ``rows`` training examples.

    An epoch ends with a step of the examples that are left, however few: n epochs are n times the steps of one.
    """
    epoch = -(-rows // (config.batch_size * config.accumulation_steps * processes))
    config = replace(config)
    for name, steps in DERIVED.items():
        if share := getattr(config, name):
            whole = config.max_steps if name == "warmup_ratio" else epoch
            setattr(config, steps, math.ceil(Fraction(str(share)) * whole))  # exact: 0.1 x 30 is 3
    return config


def is_decoded(config: TrainerConfig) -> bool:
    """Whether evaluations decode the validation examples, for the log or to choose the best checkpoint."""
    return config.eval_decoded or chooses_decoded(config)


def chooses_decoded(config: TrainerConfig) -> bool:
    """Whether decoded answers decide which checkpoint is scored."""
    return config.best not in ("", LOSS)
