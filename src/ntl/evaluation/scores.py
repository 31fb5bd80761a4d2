"""All scores of a predictions.jsonl, as a run record stores them."""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.numeric import CONSTANTS, summarize
from ntl.evaluation.pairs import Pairs
from ntl.evaluation.predictions import FIRST_ROW_LINE, TOKENS, read_predictions
from ntl.evaluation.rules import ANSWER_MARK, RULES, AnswerRule
from ntl.evaluation.textual import TEXT_RULES, TokenCounts, exact_matches, text_metrics, token_accuracy
from ntl.results import pack_bits
from ntl.results.spec import SHORTCUT
from ntl.system.errors import UserError

GROUP_METRICS = ("accuracy", "mape", "mae", "count")
TRUTH_METRICS = ("rmse", "mae")  # also against the noise-free truth
CONSTANT_METRICS = (
    *("accuracy", "rmse", "mae", "r2", "log_mae", "log_r2"),
    *("mape_clipped", "mape_median", "within_1_percent"),
)
DEFAULT = "default"
ERROR_SAMPLE = 1000
_ERROR_DIGITS = 6  # enough for paired tests, and a record stays small


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a predictions file. NaN is an undefined metric, inf one beyond float64.

    metrics: "<split>/<metric>" under the default rule and "<split>/<metric>@paper"; for numbers also
        "<split>/rmse_truth" and "/mae_truth" where a noise-free truth is known, and the scores of constant answers
        "<split>/rmse:mean", "<split>/mae_truth:median" and so on for mode, median and mean of the training targets;
        where every row has the answer of a shortcut rule, "<split>/rmse:shortcut" and so on, and
        "<split>/wrong_as_shortcut", the share of wrong predictions that equal it;
        where the answers have "####", "<split>/marked", the share of predictions with that mark;
        for texts "<split>/token_accuracy" where every row counts its tokens; "<split>/malformed", the share of
        predictions with a malformed number, and "<split>/covered", the mean probability of all numbers that a decoding
        found, where every row has these.
    groups: split -> group -> accuracy, mape, mae, count (default rule; numbers only).
    correct: split -> packed correctness of every example in file order (`ntl.results.pack_bits`), default rule.
    errors: split -> absolute errors of a fixed 1,000 examples in all (`sample_errors`); numbers only.
    ids_sha256: split -> hash of all ids in file order.
    digits: split -> "prediction" and "answer" -> "leading" and "last" -> counts of 0..9; numbers only.
    predictions_sha256: of the file's bytes. rules: version of every rule behind the metrics.
    """

    metrics: dict[str, float]
    groups: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    correct: dict[str, str] = field(default_factory=dict)
    errors: dict[str, list[float | None]] = field(default_factory=dict)
    ids_sha256: dict[str, str] = field(default_factory=dict)
    digits: dict[str, dict[str, dict[str, list[int]]]] = field(default_factory=dict)
    predictions_sha256: str = ""
    rules: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Split:
    """The rows of one split, with their line numbers and file for error messages."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    lines: Sequence[int]
    path: Path
    sample: int  # number of errors that a record keeps of this split

    def column(self, key: str) -> list[str]:
        return [row[key] for row in self.rows]

    @property
    def groups(self) -> list[str | None]:
        return [row.get("group") for row in self.rows]

    def numbers(self, key: str, rule: AnswerRule) -> list[Decimal]:
        values: list[Decimal] = []
        for row, line in zip(self.rows, self.lines, strict=True):
            value = rule.extract(row[key])
            if value is None:
                raise UserError(f"{self.path}:{line}: {key!r} holds no number: {row[key]!r}; is this a text data set?")
            values.append(value)
        return values


def score_predictions(path: str | Path) -> Scores:
    """Score a predictions.jsonl, from that file alone. UserError with file:line for a file that cannot be scored."""
    path = Path(path)
    header, rows = read_predictions(path)
    if not rows:
        raise UserError(f"{path}:{FIRST_ROW_LINE}: no predictions after the header; decode the run again")
    score, rules = _SCORERS[header["metrics"]]
    scores = Scores(
        metrics={},
        predictions_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rules={name: rule.version for name, rule in rules.items()},
    )
    for split in _by_split(path, rows):
        scores.ids_sha256[split.name] = hash_ids(split.column("id"))
        if all("malformed" in row for row in split.rows):
            scores.metrics[f"{split.name}/malformed"] = fmean(row["malformed"] > 0 for row in split.rows)
        if all("covered" in row for row in split.rows):
            scores.metrics[f"{split.name}/covered"] = fmean(row["covered"] for row in split.rows)
        score(split, header, scores)
    return scores


def _by_split(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[_Split]:
    lines: dict[str, list[int]] = {}
    for line, row in enumerate(rows, FIRST_ROW_LINE):
        lines.setdefault(row["split"], []).append(line)
    sample = ERROR_SAMPLE // len(lines)
    return [
        _Split(name, [rows[line - FIRST_ROW_LINE] for line in mine], mine, path, sample) for name, mine in lines.items()
    ]


def _score_numbers(split: _Split, header: Mapping[str, Any], scores: Scores) -> None:
    texts, groups = split.column("prediction"), split.groups
    compared = {}
    for rule in RULES.values():
        predictions, answers = [rule.extract(text) for text in texts], split.numbers("answer", rule)
        compared[rule.name] = predictions, answers, rule.compare(predictions, answers)
        suffix = "" if rule.name == DEFAULT else f"@{rule.name}"
        for metric, value in summarize(compared[rule.name][-1], rule, groups).items():
            scores.metrics[f"{split.name}/{metric}{suffix}"] = value
    if any(ANSWER_MARK in answer for answer in split.column("answer")):
        scores.metrics[f"{split.name}/marked"] = fmean(ANSWER_MARK in text for text in texts)
    predictions, answers, pairs = compared[DEFAULT]
    scores.correct[split.name] = pack_bits(pairs.correct)
    scores.errors[split.name] = sample_errors(split.column("id"), pairs.error, split.sample)
    scores.digits[split.name] = {"prediction": count_digits(predictions), "answer": count_digits(answers)}
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        if group is not None:
            members.setdefault(group, []).append(index)
    if members:
        scores.groups[split.name] = {group: _score_group(pairs.take(members[group])) for group in sorted(members)}
    _score_constants(split, header, scores, answers)
    _score_shortcut(split, scores, predictions, answers, pairs)
    _score_truth(split, header, scores)


def _score_group(pairs: Pairs) -> dict[str, float]:
    values = summarize(pairs, RULES[DEFAULT])
    return {metric: values[metric] for metric in GROUP_METRICS}


def _score_shortcut(
    split: _Split, scores: Scores, predictions: Sequence[Decimal | None], answers: Sequence[Decimal], pairs: Pairs
) -> None:
    if not all("shortcut" in row for row in split.rows):
        return
    taken = split.numbers("shortcut", RULES[DEFAULT])
    _score_reference(split, scores, taken, answers, CONSTANT_METRICS, f":{SHORTCUT}")
    wrong = [p == t for p, t, right in zip(predictions, taken, pairs.correct, strict=True) if not right]
    if wrong:
        scores.metrics[f"{split.name}/wrong_as_shortcut"] = fmean(wrong)


def _score_truth(split: _Split, header: Mapping[str, Any], scores: Scores) -> None:
    known = [(row, line) for row, line in zip(split.rows, split.lines, strict=True) if "truth" in row]
    if not known:
        return
    rule = RULES[DEFAULT]
    with_truth = _Split(split.name, [row for row, _ in known], [line for _, line in known], split.path, split.sample)
    truths = with_truth.numbers("truth", rule)
    pairs = rule.compare([rule.extract(text) for text in with_truth.column("prediction")], truths)
    values = summarize(pairs, rule)
    for metric in TRUTH_METRICS:
        scores.metrics[f"{split.name}/{metric}_truth"] = values[metric]
    _score_constants(with_truth, header, scores, truths, TRUTH_METRICS, key="_truth")


def _score_constants(
    split: _Split,
    header: Mapping[str, Any],
    scores: Scores,
    answers: Sequence[Decimal],
    metrics: Sequence[str] = CONSTANT_METRICS,
    key: str = "",
) -> None:
    rule = RULES[DEFAULT]
    for name, text in header["baselines"].items():
        constant = rule.extract(text) if isinstance(text, str) else None
        if name not in CONSTANTS or constant is None:
            raise UserError(
                f"{split.path}:1: baseline {name!r}: {text!r} must be a number as a string, "
                f"under one of {', '.join(CONSTANTS)}"
            )
        _score_reference(split, scores, [constant] * len(answers), answers, metrics, f"{key}:{name}")


def _score_reference(
    split: _Split,
    scores: Scores,
    given: Sequence[Decimal],
    answers: Sequence[Decimal],
    metrics: Sequence[str],
    suffix: str,
) -> None:
    """Scores of reference answers, which no model has given."""
    rule = RULES[DEFAULT]
    values = summarize(rule.compare(given, answers), rule, split.groups)
    for metric in metrics:
        scores.metrics[f"{split.name}/{metric}{suffix}"] = values[metric]


def _score_texts(split: _Split, _: Mapping[str, Any], scores: Scores) -> None:
    predictions, answers = split.column("prediction"), split.column("answer")
    known = [row for row in split.rows if TOKENS[0] in row]
    counts = [TokenCounts(row[TOKENS[0]], row[TOKENS[1]], row.get(TOKENS[2])) for row in known]
    if counts and len(counts) < len(split.rows):
        raise UserError(f"{split.path}: {len(counts)} of {len(split.rows)} {split.name} rows count their tokens")
    for rule in TEXT_RULES:
        suffix = "" if rule == DEFAULT else f"@{rule}"
        for metric, value in text_metrics(predictions, answers, rule=rule).items():
            scores.metrics[f"{split.name}/{metric}{suffix}"] = value
        # Older files lack the length of an answer, which the padding of the paper's rule depends on.
        if counts and (rule == DEFAULT or all(row.generated is not None for row in counts)):
            scores.metrics[f"{split.name}/token_accuracy{suffix}"] = token_accuracy(counts, rule=rule)
    scores.correct[split.name] = pack_bits(exact_matches(predictions, answers))


_SCORERS: dict[str, tuple[Callable[[_Split, Mapping[str, Any], Scores], None], Mapping[str, Any]]] = {
    "number": (_score_numbers, RULES),
    "text": (_score_texts, TEXT_RULES),
}


def hash_ids(ids: Iterable[str]) -> str:
    """sha256 of all ids in order. Runs with equal hashes can be paired example by example."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()


def sample_errors(ids: Sequence[str], errors: NDArray[np.float64], limit: int = ERROR_SAMPLE) -> list[float | None]:
    """Errors of the first ``limit`` examples in the order of sha1(id), to 6 significant digits; None where undefined.

    The sample depends on the ids alone, so that runs on the same examples keep the same ones.
    """
    order = sorted(range(len(ids)), key=lambda i: hashlib.sha1(ids[i].encode("utf-8", "surrogatepass")).digest())
    chosen = (float(errors[index]) for index in order[:limit])
    return [None if math.isnan(error) else float(f"{error:.{_ERROR_DIGITS}g}") for error in chosen]


def count_digits(values: Iterable[Decimal | None]) -> dict[str, list[int]]:
    """Counts of 0..9 as the leading (first significant) and as the last written digit; None is not counted."""
    leading, last = [0] * 10, [0] * 10
    for value in values:
        if value is None:
            continue
        _, digits, exponent = value.as_tuple()
        leading[digits[0]] += 1
        last[0 if isinstance(exponent, int) and exponent > 0 else digits[-1]] += 1
    return {"leading": leading, "last": last}
