"""What Hydra composes of groups, each combination once: a table composes hundreds of runs of few combinations."""

import pickle
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

Compose = Callable[[Sequence[str]], DictConfig]


@lru_cache(maxsize=256)
def _pickled(compose: Compose, overrides: tuple[str, ...], folder: Path) -> bytes:
    # A pickle is read several times as fast as a DictConfig is copied. ``folder`` is there for the cache's key.
    return pickle.dumps(compose(overrides))


def _copy(compose: Compose, overrides: Sequence[str], folder: Path) -> DictConfig:
    return pickle.loads(_pickled(compose, tuple(overrides), folder))


@cache
def _rest(compose: Compose, loss: str, folder: Path) -> Any:
    """What the files of a loss leave of the other groups."""
    raw = _copy(compose, [loss], folder)
    values: Any = OmegaConf.to_container(raw)
    return {key: value for key, value in values.items() if key != "loss"}


@cache
def _independent(compose: Compose, loss: str, others: tuple[str, ...], folder: Path) -> bool:
    """Whether the files of a loss set nothing else, and those of the other groups nothing of the loss."""
    raw = _copy(compose, others, folder)
    default = f"loss={raw.loss.name}"
    untouched = raw.loss == _copy(compose, [default], folder).loss
    return untouched and _rest(compose, loss, folder) == _rest(compose, default, folder)


def of_groups(compose: Compose, overrides: Sequence[str], folder: Path) -> DictConfig:
    """A copy of what ``compose`` makes of the overrides; ``folder`` is that of the config's files.

    The rows of a table differ by their losses: a loss is put into what the other overrides give.
    """
    losses = [word for word in overrides if re.fullmatch(r"loss=\w+", word)]
    others = tuple(word for word in overrides if word not in losses)
    if len(losses) != 1 or not _independent(compose, losses[0], others, folder):
        return _copy(compose, overrides, folder)
    raw = _copy(compose, others, folder)
    raw.loss = _copy(compose, losses, folder).loss
    return raw
