"""Schema of training: optimization, evaluation, checkpoints, parallelism."""

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Any

# A setting in epochs, or in a share of all steps -> the setting in steps that follows from it (``in_steps``).
DERIVED = {"epochs": "max_steps", "eval_epochs": "eval_steps", "warmup_ratio": "warmup_steps"}
LOSS = "loss"
# The decoded validation metrics that ``best`` may name -> whether higher is better; by the kind of answers.
OF_NUMBERS = {
    **dict.fromkeys(("accuracy", "within_1_percent", "r2", "log_r2", "pearson", "spearman"), True),
    **dict.fromkeys(("mae", "rmse", "median_error", "log_mae", "mape", "mape_median", "mape_clipped"), False),
}
OF_TEXT = dict.fromkeys(("exact_match", "bleu", "rouge1", "rouge2", "rougeL"), True)
HIGHER_IS_BETTER = {LOSS: False, **OF_NUMBERS, **OF_TEXT}
TORCH_OPTIMIZERS = ("adamw", "adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop")
_BITSANDBYTES = (
    *("adamw_bnb_8bit", "adamw_8bit", "ademamix", "ademamix_8bit", "lion_8bit", "lion_32bit", "paged_adamw_32bit"),
    *("paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_32bit", "paged_lion_8bit"),
    *("rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit"),
)
# The optimizers of transformers (``OptimizerNames``) that need no more than a name -> the (module, package) that they
# need. Left out are those that need further settings, another training loop, or a schedule of their own.
OPTIMIZERS = {
    **dict.fromkeys((*TORCH_OPTIMIZERS, "adafactor"), ("", "")),
    **dict.fromkeys(_BITSANDBYTES, ("bitsandbytes", "bitsandbytes")),
    **dict.fromkeys(("adamw_torch_4bit", "adamw_torch_8bit"), ("torchao", "torchao")),
    "grokadamw": ("grokadamw", "grokadamw"),
    "stable_adamw": ("optimi", "torch-optimi"),
}


class Schedule(Enum):
    """``plateau`` is the paper's: the rate times ``factor`` after ``patience`` evaluations without improvement."""

    plateau = "plateau"
    linear = "linear"
    cosine = "cosine"
    constant = "constant"


class Normalization(Enum):
    """``step`` divides by the label counts of the whole optimizer step, ``micro_batch`` is a mean of means."""

    step = "step"
    micro_batch = "micro_batch"


class Parallel(Enum):
    """``auto`` is ddp where torchrun started several processes; ``fsdp`` shards weights, gradients, optimizer state."""

    auto = "auto"
    ddp = "ddp"
    fsdp = "fsdp"


def _count(default: int) -> int:
    return field(default=default, metadata={"min": 1})


@dataclass
class TrainerConfig:
    """Batch sizes are per device; intervals are in optimizer steps, 0 means never (evaluation: only at the end).

    Where they are not 0, ``epochs`` replaces ``max_steps``, ``eval_epochs`` replaces ``eval_steps``, and
    ``warmup_ratio``, a share of all steps, ``warmup_steps``. ``max_steps`` 0 scores the model as it is.
    ``optim`` is one of ``OPTIMIZERS``; ``adamw`` is the default of transformers. ``bf16`` computes in bfloat16 with
    float32 weights, ``auto`` does so where the device has it (``ntl.system.machine.uses_bf16``).
    ``eval_decoded``: every evaluation also decodes its ``eval_rows`` examples (0: all) as the test sets are decoded.
    ``best`` names the validation metric whose best checkpoint is kept and scored, ``loss`` or a decoded one; without it
    the last one is scored. ``early_stopping`` ends the training after so many evaluations without a better one.
    ``gradient_checkpointing`` recomputes activations instead of storing them. ``length_bucketing`` makes batches of
    similar length: less padding, but less random batches.
    ``keep_checkpoints`` is how many are kept during training, ``keep_checkpoints_after`` after it has finished.
    """

    name: str = "default"
    max_steps: int = field(default=1000, metadata={"min": 0})
    epochs: float = field(default=0.0, metadata={"min": 0})
    batch_size: int = _count(32)
    accumulation_steps: int = _count(1)
    optim: str = "adamw"
    lr: float = field(default=1e-4, metadata={"above": 0})
    schedule: Schedule = Schedule.plateau
    warmup_steps: int = field(default=0, metadata={"min": 0})
    warmup_ratio: float = field(default=0.0, metadata={"min": 0, "max": 1})
    patience: int = _count(5)
    factor: float = field(default=0.5, metadata={"above": 0, "max": 1})
    weight_decay: float = field(default=0.01, metadata={"min": 0})
    max_grad_norm: float = field(default=1.0, metadata={"above": 0})
    normalization: Normalization = Normalization.step
    bf16: Any = False  # True or "auto"; omegaconf does not merge a typed union
    gradient_checkpointing: bool = False
    eval_steps: int = field(default=0, metadata={"min": 0})
    eval_epochs: float = field(default=0.0, metadata={"min": 0})
    eval_decoded: bool = False
    best: str = ""
    early_stopping: int = field(default=0, metadata={"min": 0})
    eval_batch_size: int = _count(64)
    eval_rows: int = field(default=0, metadata={"min": 0})
    save_steps: int = field(default=500, metadata={"min": 0})
    logging_steps: int = _count(50)
    keep_checkpoints: int = _count(2)
    keep_checkpoints_after: int = _count(1)
    length_bucketing: bool = False
    max_input_length: int = field(default=512, metadata={"min": 8})
    num_workers: int = field(default=0, metadata={"min": 0})
    parallel: Parallel = Parallel.auto


def in_steps(config: TrainerConfig, rows: int, processes: int = 1) -> TrainerConfig:
    """The config with the steps of ``DERIVED``, for ``rows`` training examples.

    An epoch ends with a step of the examples that are left, however few: n epochs are n times the steps of one.
    """
    epoch = -(-rows // (config.batch_size * config.accumulation_steps * processes))

    def part_of(steps: int, share: float) -> int:
        return math.ceil(Fraction(str(share)) * steps)  # exact: 0.1 x 30 is 3

    max_steps = part_of(epoch, config.epochs) if config.epochs else config.max_steps
    eval_steps = part_of(epoch, config.eval_epochs) if config.eval_epochs else config.eval_steps
    warmup = part_of(max_steps, config.warmup_ratio) if config.warmup_ratio else config.warmup_steps
    return replace(config, max_steps=max_steps, eval_steps=eval_steps, warmup_steps=warmup)


def is_decoded(config: TrainerConfig) -> bool:
    """Whether evaluations decode the validation examples, for the log or to choose the best checkpoint."""
    return config.eval_decoded or chooses_decoded(config)


def chooses_decoded(config: TrainerConfig) -> bool:
    """Whether decoded answers decide which checkpoint is scored."""
    return config.best not in ("", LOSS)
