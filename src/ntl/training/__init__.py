"""Training: one call trains with the Hugging Face Trainer, decodes, scores and writes the record."""

from typing import TYPE_CHECKING

from ntl.system.lazy import exports

if TYPE_CHECKING:
    from ntl.training.predictor import predict as predict
    from ntl.training.train import run as run
    from ntl.training.trainer import ObjectiveTrainer as ObjectiveTrainer

__getattr__, __all__ = exports(__name__, __file__)
