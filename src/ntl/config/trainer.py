"""Schema of training: optimization, evaluation, checkpoints, parallelism."""

from dataclasses import dataclass
from enum import Enum

from ntl.config.settings import setting


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


_STEPS = "optimizer steps"


@dataclass
class TrainerConfig:
    """Optimization, evaluation and checkpoints. Most values come from ``scale=``."""

    name: str = setting("default", "The choice of the group.")
    max_steps: int = setting(1000, "How long to train.", unit=_STEPS, min=1)
    batch_size: int = setting(
        32, "Examples of one forward pass, on each device.", unit="examples", origin="paper", min=1
    )
    accumulation_steps: int = setting(
        1, "Forward passes of one optimizer step.", unit="batches", origin="original code", min=1
    )
    lr: float = setting(1e-4, "The highest learning rate.", origin="original code", above=0)
    schedule: Schedule = setting(
        Schedule.plateau,
        "How the learning rate changes; `plateau` multiplies it by `factor` after `patience` evaluations without a "
        "lower validation loss.",
        origin="original code",
    )
    warmup_steps: int = setting(
        0, "The learning rate first rises from 0 over so many steps.", unit=_STEPS, origin="original code", min=0
    )
    patience: int = setting(5, "See `schedule`.", unit="evaluations", origin="original code", min=1)
    factor: float = setting(0.5, "See `schedule`.", origin="original code", above=0, max=1)
    weight_decay: float = setting(0.01, "Weight decay of AdamW.", origin="original code", min=0)
    max_grad_norm: float = setting(
        1.0, "A larger norm of the gradient is scaled down to this.", origin="original code", above=0
    )
    normalization: Normalization = setting(
        Normalization.step,
        "`step` divides the loss by the label counts of the whole optimizer step; `micro_batch` takes the mean of the "
        "batches' means, as the paper does.",
    )
    bf16: bool = setting(False, "Compute in bfloat16, with float32 weights.", origin="original code")
    gradient_checkpointing: bool = setting(
        False, "Recompute activations in the backward pass instead of storing them: less memory, slower."
    )
    eval_steps: int = setting(0, "Validate every so many steps; 0: only at the end.", unit=_STEPS, min=0)
    eval_batch_size: int = setting(
        64,
        "Examples of one forward pass of validation, on each device.",
        unit="examples",
        origin="original code",
        min=1,
    )
    eval_rows: int = setting(0, "Validate on the first so many rows; 0: on all.", unit="rows", min=0)
    save_steps: int = setting(500, "Write a checkpoint every so many steps; 0: only at the end.", unit=_STEPS, min=0)
    logging_steps: int = setting(50, "Log the training loss every so many steps.", unit=_STEPS, min=1)
    keep_checkpoints: int = setting(
        2, "How many of the newest checkpoints are kept during training.", origin="original code", min=1
    )
    keep_checkpoints_after: int = setting(1, "How many are kept once the run has finished.", min=1)
    length_bucketing: bool = setting(
        False, "Make batches of examples of similar length: less padding, but less random batches."
    )
    max_input_length: int = setting(
        512,
        "Of a longer question the beginning is cut off, with a warning.",
        unit="tokens",
        origin="original code (T5's limit)",
        min=8,
    )
    num_workers: int = setting(0, "Further processes that load data, for each device.", unit="processes", min=0)
    parallel: Parallel = setting(
        Parallel.auto,
        "How several processes share the work: `ddp` copies the model, `fsdp` shards it, `auto` is ddp where torchrun "
        "started several.",
    )
