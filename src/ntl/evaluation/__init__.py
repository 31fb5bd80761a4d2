"""From generated text to metrics, on any machine: no torch, no model, only predictions.jsonl."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ntl.evaluation.baselines import constant_baselines as constant_baselines
    from ntl.evaluation.numeric import NUMBER_METRICS as NUMBER_METRICS
    from ntl.evaluation.numeric import number_metrics as number_metrics
    from ntl.evaluation.predictions import read_predictions as read_predictions
    from ntl.evaluation.predictions import write_predictions as write_predictions
    from ntl.evaluation.rules import RULES as RULES
    from ntl.evaluation.rules import AnswerRule as AnswerRule
    from ntl.evaluation.rules import extract_answer as extract_answer
    from ntl.evaluation.scores import Scores as Scores
    from ntl.evaluation.scores import score_predictions as score_predictions
    from ntl.evaluation.textual import TEXT_METRICS as TEXT_METRICS
    from ntl.evaluation.textual import text_metrics as text_metrics
    from ntl.evaluation.textual import token_matches as token_matches

_EXPORTS = {
    "AnswerRule": "rules",
    "NUMBER_METRICS": "numeric",
    "RULES": "rules",
    "Scores": "scores",
    "TEXT_METRICS": "textual",
    "constant_baselines": "baselines",
    "extract_answer": "rules",
    "number_metrics": "numeric",
    "read_predictions": "predictions",
    "score_predictions": "scores",
    "text_metrics": "textual",
    "token_matches": "textual",
    "write_predictions": "predictions",
}
__all__ = [
    "NUMBER_METRICS",
    "RULES",
    "TEXT_METRICS",
    "AnswerRule",
    "Scores",
    "constant_baselines",
    "extract_answer",
    "number_metrics",
    "read_predictions",
    "score_predictions",
    "text_metrics",
    "token_matches",
    "write_predictions",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
