"""The one list of metrics: which end of each is the better one, its unit, how it is printed, and its rules' versions.

Tables, sweeps, figures and the choice of the best checkpoint read it. It imports nothing, so that every room may.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any

from ntl.system.errors import UserError


class Better(Enum):
    """Which values of a metric are the better ones; one with ``neither`` is never best."""

    higher = 1
    lower = -1
    neither = 0


@dataclass(frozen=True)
class Metric:
    """``format`` is a Python format spec; ``label`` is what headings call the metric.

    ``factor`` takes a stored value to ``unit``. ``values`` makes of N compared answers (``ntl.evaluation.rules.Pairs``)
    the values (N,) whose mean the metric is; other metrics are computed where they are returned.
    """

    name: str
    better: Better
    unit: str
    format: str
    label: str
    factor: float = 1.0
    values: Callable[[Any], Any] | None = None

    @property
    def heading(self) -> str:
        """The label, with the unit where that is not plain from it."""
        return f"{self.label} (%)" if self.unit == "%" else self.label


# Whoever changes a rule raises its version: records with different versions are not comparable.
NUMBER_VERSIONS = {
    # 2 took the last ####; 3 read fewer notations (docs/evaluate_elsewhere.md), and centered values in float64.
    "default": 4,
    "paper": 1,
}
# Of the probability; a decoding by number that has found less speaks for a part of what the model says.
COVERED = 0.9
RULE_OPTIONS = ("magnitudes", "percent")  # of the default rule of numbers
CONSTANTS = ("mode", "median", "mean")  # answers, of the training numbers
# Printed with the constant answers, and none themselves: a rule that is wrong in a known way
# (``TextDataset.shortcut``), and a linear model of the question's characters (``ntl.evaluation.ridge``).
SHORTCUT, RIDGE = REFERENCES = ("shortcut", "ridge")
LIST_VERSIONS = {"default": 1}
TEXT_VERSIONS = {"default": 2, "paper": 2}  # default: 1 divided texts as the paper's does

HIGHER, LOWER, NEITHER = Better.higher, Better.lower, Better.neither
COUNT = Metric("count", NEITHER, "examples", ",.0f", "examples")
# Of numeric answers: what number_metrics returns, in its order.
NUMBER = (
    Metric("accuracy", HIGHER, "share", ".3f", "accuracy", values=lambda pairs: pairs.correct),
    Metric("mae", LOWER, "of the answer", ".3f", "MAE"),
    Metric("mse", LOWER, "of the answer, squared", ".3f", "MSE"),
    Metric("rmse", LOWER, "of the answer", ".3f", "RMSE"),
    Metric("r2", HIGHER, "1", ".3f", "R²"),
    Metric("median_error", LOWER, "of the answer", ".3f", "median error"),
    Metric("log_mae", LOWER, "decades", ".3f", "log MAE"),
    Metric("log_r2", HIGHER, "1", ".3f", "log R²"),
    Metric("pearson", HIGHER, "1", ".3f", "Pearson"),
    Metric("spearman", HIGHER, "1", ".3f", "Spearman"),
    Metric("mape", LOWER, "%", ".2f", "MAPE"),
    Metric("mape_median", LOWER, "%", ".2f", "median APE"),
    Metric("mape_clipped", LOWER, "%", ".2f", "MAPE clipped at 100"),
    Metric("ape_clipped_10", LOWER, "%", ".2f", "APE clipped at 10"),
    Metric("log_ape", LOWER, "log points", ".3f", "mean log(1 + APE)"),
    Metric("within_1_percent", HIGHER, "share", ".1%", "within 1% of the answer", values=lambda pairs: pairs.within),
    Metric("unparsable", NEITHER, "share", ".1%", "unparsable", values=lambda pairs: ~pairs.valid),
    COUNT,
)
# Of text answers: what text_metrics returns, in its order.
TEXT = (
    Metric("bleu", HIGHER, "1", ".3f", "BLEU", factor=0.01),  # a record has sacreBLEU's 0 to 100
    Metric("rouge1", HIGHER, "1", ".3f", "ROUGE-1"),
    Metric("rouge2", HIGHER, "1", ".3f", "ROUGE-2"),
    Metric("rougeL", HIGHER, "1", ".3f", "ROUGE-L"),
    Metric("exact_match", HIGHER, "share", ".3f", "exact match"),
    COUNT,
)
OTHER = (
    # Of answers, where their data set or decoding has what they need.
    Metric("misread", NEITHER, "share", ".1%", "answers misread by the rule"),
    Metric("rmse_truth", LOWER, "of the answer", ".3f", "RMSE to the noise-free target"),
    Metric("mae_truth", LOWER, "of the answer", ".3f", "MAE to the noise-free target"),
    Metric("crps", LOWER, "of the answer", ".3f", "CRPS"),
    Metric("wrong_as_shortcut", NEITHER, "share", ".1%", "wrong as by the shortcut"),
    # A coverage is right at 0.9, so neither end is better; of calibrated intervals the narrower ones are.
    Metric("coverage_90", NEITHER, "share", ".3f", "coverage of 90% intervals"),
    Metric("width_90", LOWER, "of the answer", ".3f", "width of 90% intervals"),
    Metric("token_accuracy", HIGHER, "share", ".3f", "token accuracy"),
    Metric("marked", NEITHER, "share", ".1%", "with ####"),
    Metric("malformed", LOWER, "share", ".1%", "malformed"),
    # Of the right answer, as it is written.
    Metric("bits", LOWER, "bits", ".3f", "bits of the answer"),
    Metric("probability", HIGHER, "probability", ".3f", "probability of the answer"),
    Metric("covered", NEITHER, "probability", ".3f", "covered"),
    Metric("represented", NEITHER, "probability", ".3f", "represented"),
    Metric("tokens_per_forward", HIGHER, "tokens", ".3f", "tokens a forward pass"),
    Metric("accepted", HIGHER, "share", ".1%", "kept"),
    # Of plain text.
    Metric("perplexity", LOWER, "1", ".2f", "perplexity"),
    Metric("bits_per_byte", LOWER, "bits a byte", ".3f", "bits per byte"),
    Metric("digit_mae_mean", LOWER, "of the digit", ".3f", "MAE of the mean digit"),
    Metric("number_accuracy", HIGHER, "share", ".3f", "number accuracy"),
    Metric("number_mae", LOWER, "of the number", ".3f", "number MAE"),
    Metric("number_mae_mean", LOWER, "of the number", ".3f", "MAE of the mean number"),
    Metric("tokens", NEITHER, "tokens", ",.0f", "tokens"),
    Metric("digits", NEITHER, "tokens", ",.0f", "digits"),
    Metric("numbers", NEITHER, "tokens", ",.0f", "numbers"),
    # Of validation, without decoding.
    Metric("loss", LOWER, "nats", ".3f", "loss"),
    Metric("ce", LOWER, "nats", ".3f", "CE"),
    Metric("ntl", LOWER, "of the loss", ".3f", "NTL"),
    Metric("ntl_was", LOWER, "of the digit", ".3f", "NTL-WAS"),
    Metric("digit_accuracy", HIGHER, "share", ".3f", "digit accuracy"),
    Metric("digit_mae", LOWER, "of the digit", ".3f", "digit MAE"),
    # Of curves.
    Metric("steps_until_ce", LOWER, "optimizer steps", ",.0f", "steps until CE"),
    Metric("epochs_until", LOWER, "epochs", ".3f", "epochs"),
)
METRICS = {metric.name: metric for metric in (*NUMBER, *TEXT, *OTHER)}
# A threshold, a draft head, a position, and another rule, decoding or constant answer are no part of a metric's name.
_NAME = re.compile(r"(?P<name>\w+?)(_\d+\.\d+)?(/(head)?\d+)?([@:].*)?")


def find_metric(name: str) -> Metric:
    """The metric of that name. UserError: the list has none, and nobody knows which end of it is the better one."""
    if name in METRICS:
        return METRICS[name]
    hint = "".join(f" (did you mean {near!r}?)" for near in get_close_matches(name, METRICS, n=1))
    raise UserError(
        f"unknown metric {name!r}{hint}; to add it, say in src/ntl/evaluation/metrics.py which values of it are better."
    )


def metric_of(key: str) -> Metric:
    """The metric of a record's key: ``test/mae``, ``test/mae@paper``, ``test/mae:median``, ``validation/ce/head2``.

    The number after ``test/mae/`` is the position in a list of numbers.

    UserError as of ``find_metric``.
    """
    match = _NAME.fullmatch(name := key.partition("/")[2])
    return find_metric(match["name"] if match else name)
