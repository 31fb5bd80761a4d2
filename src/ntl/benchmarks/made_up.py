"""Random labels for benchmarks of losses, and the names of the losses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from ntl.benchmarks.timing import BASELINE
from ntl.config import composition
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError


@dataclass(frozen=True)
class Setting:
    """The shape (batch, length, vocab), type and device of the logits, and the share of labels that are digits."""

    device: str = "cpu"
    dtype: str = "float32"
    batch: int = 16
    length: int = 64
    vocab: int = 32_128
    share: float = 0.8


def number_vocabulary(size: int) -> NumberVocabulary:
    """Return a vocabulary of ``size`` token ids with ten digits, evenly spread."""
    values = torch.full((size,), math.nan)
    values[torch.arange(10) * (size // 10) + size // 20] = torch.arange(10.0)
    return NumberVocabulary.from_values(values)


def draw_labels(setting: Setting, vocab: NumberVocabulary) -> Tensor:
    """Return random labels (B, T) with exactly the given share of digits, rounded; the others are text tokens."""
    total = setting.batch * setting.length
    text = torch.arange(setting.vocab)[vocab.values.isnan()]
    labels = text[torch.randint(len(text), (total,))]
    positions = torch.randperm(total)[: round(setting.share * total)]
    labels[positions] = vocab.token_ids[torch.randint(len(vocab.token_ids), (len(positions),))]
    return labels.reshape(setting.batch, setting.length)


def token_losses() -> list[str]:
    """Return the names in config/loss that use a language-model head, cross-entropy first."""
    names = []
    for path in (composition.CONFIG_DIR / "loss").glob("*.yaml"):
        config: Any = OmegaConf.load(path)
        if "lm" in config.get("heads", ["lm"]):
            names.append(path.stem)
    return sorted(names, key=lambda name: (name != BASELINE, name))


def check_losses(names: Sequence[str]) -> None:
    """Raise UserError for a name that is not one of ``token_losses``."""
    known = token_losses()
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"--losses {unknown[0]}: choose from {', '.join(known)}")


def check(device: str, rounds: int) -> None:
    """Raise UserError for a device that is not available, or for too few rounds."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device; choose --device cpu")
    if rounds < 2:
        raise UserError(f"--rounds {rounds}: the spread needs at least 2")
