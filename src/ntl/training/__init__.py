"""The Hugging Face Trainer around our objective: one call trains, decodes, scores and records."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.training.command import predict as predict
    from ntl.training.runner import run as run
    from ntl.training.trainer import ObjectiveTrainer as ObjectiveTrainer

_EXPORTS = {"ObjectiveTrainer": "trainer", "predict": "command", "run": "runner"}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
