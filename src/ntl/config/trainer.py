"""Schema of training: optimization, evaluation, checkpoints, parallelism."""

from dataclasses import dataclass, field
from enum import Enum


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

    ``bf16`` computes in bfloat16 with float32 weights; ``gradient_checkpointing`` recomputes activations instead of
    storing them. ``length_bucketing`` makes batches of similar length: less padding, but less random batches.
    ``keep_checkpoints`` is how many are kept during training, ``keep_checkpoints_after`` after it has finished.
    """

    name: str = "default"
    max_steps: int = _count(1000)
    batch_size: int = _count(32)
    accumulation_steps: int = _count(1)
    lr: float = field(default=1e-4, metadata={"above": 0})
    schedule: Schedule = Schedule.plateau
    warmup_steps: int = field(default=0, metadata={"min": 0})
    patience: int = _count(5)
    factor: float = field(default=0.5, metadata={"above": 0, "max": 1})
    weight_decay: float = field(default=0.01, metadata={"min": 0})
    max_grad_norm: float = field(default=1.0, metadata={"above": 0})
    normalization: Normalization = Normalization.step
    bf16: bool = False
    gradient_checkpointing: bool = False
    eval_steps: int = field(default=0, metadata={"min": 0})
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
