"""From generated text to metrics: needs predictions.jsonl, but neither torch nor a model."""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.evaluation.numeric import NUMBER_METRICS as NUMBER_METRICS
    from ntl.evaluation.numeric import constant_baselines as constant_baselines
    from ntl.evaluation.numeric import number_metrics as number_metrics
    from ntl.evaluation.predictions import read_predictions as read_predictions
    from ntl.evaluation.predictions import write_predictions as write_predictions
    from ntl.evaluation.rules import RULES as RULES
    from ntl.evaluation.rules import extract_answer as extract_answer
    from ntl.evaluation.scores import Scores as Scores
    from ntl.evaluation.scores import score_predictions as score_predictions
    from ntl.evaluation.textual import text_metrics as text_metrics
    from ntl.evaluation.textual import token_matches as token_matches

__getattr__, __all__ = exports(__name__, __file__)
