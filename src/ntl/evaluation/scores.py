"""All scores of a predictions.jsonl, as a run record stores them."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.interval import Calibration
from ntl.evaluation.metrics import NUMBER_VERSIONS, TEXT_VERSIONS, metric_of
from ntl.evaluation.numeric import CONSTANTS, pair_metrics
from ntl.evaluation.predictions import FIRST_ROW_LINE, TOKENS, read_predictions
from ntl.evaluation.rules import ANSWER_MARK, RULES, AnswerRule
from ntl.evaluation.textual import (
    TEXT_RULES,
    TokenCounts,
    exact_matches,
    likelihood_metrics,
    text_metrics,
    token_accuracy,
)
from ntl.results import pack_bits
from ntl.results.spec import RIDGE, SHORTCUT
from ntl.system.errors import UserError

GROUP_METRICS = ("accuracy", "mape", "mae", "count")
TRUTH_METRICS = ("rmse", "mae")  # also against the noise-free truth
CONSTANT_METRICS = (
    *("accuracy", "rmse", "mae", "r2", "log_mae", "log_r2"),
    *("mape_clipped", "mape_median", "within_1_percent"),
)
DEFAULT = "default"
_RULE = RULES[DEFAULT]  # of groups, truths and reference answers
ERROR_SAMPLE = 1000
_ERROR_DIGITS = 6  # enough for paired tests, and a record stays small
_ANY_TEXT = ("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a predictions file. NaN is an undefined metric, inf one beyond float64.

    metrics: "<split>/<metric>" under the default rule and "<split>/<metric>@paper"; for numbers also
        "<split>/rmse_truth" and "/mae_truth" where a noise-free truth is known, and the scores of constant answers
        "<split>/rmse:mean", "<split>/mae_truth:median" and so on for mode, median and mean of the training targets;
        where every row has the answer of a shortcut rule, "<split>/rmse:shortcut" and so on, and
        "<split>/wrong_as_shortcut", the share of wrong predictions that equal it; where every row has the answer of a
        linear model, "<split>/mae:ridge" and so on; where rows have a "crps", its mean over these;
        where the header has the scores of validation answers, "<split>/coverage_90" and "<split>/width_90"
        (`ntl.evaluation.interval`);
        where the answers have "####", "<split>/marked", the share of predictions with that mark;
        for texts "<split>/token_accuracy" where every row counts its tokens; "<split>/malformed", the share of
        predictions with a malformed number, and "<split>/covered", the mean probability of all numbers that a decoding
        found, where every row has these; of drafted answers `speculation_metrics`; of plain text `likelihood_metrics`
        alone.
    groups: split -> group -> accuracy, mape, mae, count (default rule); of texts exact_match, count.
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
    """The rows of one split by their line numbers, and where its scores go."""

    name: str
    rows: Mapping[int, Mapping[str, Any]]
    path: Path
    header: Mapping[str, Any]
    scores: Scores
    error_sample: int  # number of errors that a record keeps of this split

    def with_key(self, key: str) -> "_Split":
        return replace(self, rows={line: row for line, row in self.rows.items() if key in row})

    def column(self, key: str) -> list[Any]:
        return [row[key] for row in self.rows.values()]

    def whole_column(self, key: str) -> list[Any]:
        """A column that all rows have, else nothing."""
        return self.column(key) if all(key in row for row in self.rows.values()) else []

    @property
    def groups(self) -> list[str | None]:
        return [row.get("group") for row in self.rows.values()]

    def numbers(self, key: str, rule: AnswerRule) -> list[Decimal]:
        values: list[Decimal] = []
        for line, row in self.rows.items():
            value = rule.extract(row[key])
            if value is None:
                raise UserError(f"{self.path}:{line}: {key!r} holds no number: {row[key]!r}; is this a text data set?")
            values.append(value)
        return values

    def add(self, values: Mapping[str, float], suffix: str = "", metrics: Sequence[str] = ()) -> None:
        for metric in metrics or values:
            key = f"{self.name}/{metric}{suffix}"
            metric_of(key)  # an error where the list of metrics lacks it
            self.scores.metrics[key] = values[metric]

    def add_reference(
        self, given: Sequence[Decimal], answers: Sequence[Decimal], metrics: Sequence[str], suffix: str
    ) -> None:
        """Scores of reference answers, which no model has given."""
        self.add(pair_metrics(_RULE.compare(given, answers), _RULE, self.groups), suffix, metrics)


def score_predictions(path: str | Path) -> Scores:
    """Score a predictions.jsonl, from that file alone. UserError with file:line for a file that cannot be scored."""
    path = Path(path)
    header, rows = read_predictions(path)
    if not rows:
        raise UserError(f"{path}:{FIRST_ROW_LINE}: no predictions after the header; decode the run again")
    versions, score = _KINDS[header["metrics"]]
    scores = Scores(
        metrics={},
        predictions_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        rules=dict(versions),
    )
    splits: dict[str, dict[int, Mapping[str, Any]]] = {}
    for line, row in enumerate(rows, FIRST_ROW_LINE):
        splits.setdefault(row["split"], {})[line] = row
    for name, mine in splits.items():
        split = _Split(name, mine, path, header, scores, ERROR_SAMPLE // len(splits))
        # Runs with equal hashes can be paired example by example.
        scores.ids_sha256[name] = hashlib.sha256("\n".join(split.column("id")).encode(*_ANY_TEXT)).hexdigest()
        if malformed := split.whole_column("malformed"):
            split.add({"malformed": fmean(count > 0 for count in malformed)})
        if covered := split.whole_column("covered"):
            split.add({"covered": fmean(covered)})
        if counted := split.whole_column("speculation"):
            split.add(speculation_metrics(counted))
        score(split)
    return scores


def speculation_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Tokens a forward pass, and of each head k the share of passes with drafts that kept head k's: ``accepted/headk``.

    The first pass of an answer has no drafts to verify. NaN where no pass had any.
    """
    tokens, forwards = (sum(row[name] for row in rows) for name in ("tokens", "forwards"))
    verified, kept = forwards - len(rows), zip(*(row["accepted"] for row in rows), strict=False)
    shares = {
        f"accepted/head{head}": sum(each) / verified if verified else math.nan for head, each in enumerate(kept, 2)
    }
    return {"tokens_per_forward": tokens / forwards, **shares}


def _score_numbers(split: _Split) -> None:
    texts, groups, name = split.column("prediction"), split.groups, split.name
    compared = {}
    for rule in RULES.values():
        predictions, answers = [rule.extract(text) for text in texts], split.numbers("answer", rule)
        compared[rule.name] = predictions, answers, rule.compare(predictions, answers)
        split.add(pair_metrics(compared[rule.name][-1], rule, groups), _suffix(rule.name))
    if any(ANSWER_MARK in answer for answer in split.column("answer")):
        split.add({"marked": fmean(ANSWER_MARK in text for text in texts)})
    predictions, answers, pairs = compared[DEFAULT]
    if (calibration := split.header.get("calibration")) and name != "validation":
        split.add(
            Calibration.from_header(calibration).metrics(pairs.error, [row.get("sd") for row in split.rows.values()])
        )
    split.scores.correct[name] = pack_bits(pairs.correct)
    split.scores.errors[name] = sample_errors(split.column("id"), pairs.error, split.error_sample)
    split.scores.digits[name] = {"prediction": count_digits(predictions), "answer": count_digits(answers)}
    for group, mine in _members(groups):
        values = pair_metrics(pairs.take(mine), _RULE)
        split.scores.groups.setdefault(name, {})[group] = {metric: values[metric] for metric in GROUP_METRICS}
    _score_constants(split, answers, CONSTANT_METRICS)
    if split.whole_column("shortcut"):
        taken = split.numbers("shortcut", _RULE)
        split.add_reference(taken, answers, CONSTANT_METRICS, f":{SHORTCUT}")
        wrong = [p == t for p, t, right in zip(predictions, taken, pairs.correct, strict=True) if not right]
        if wrong:
            split.add({"wrong_as_shortcut": fmean(wrong)})
    if split.whole_column(RIDGE):
        split.add_reference(split.numbers(RIDGE, _RULE), answers, CONSTANT_METRICS, f":{RIDGE}")
    if scored := split.with_key("crps").column("crps"):
        split.add({"crps": fmean(scored)})
    known = split.with_key("truth")
    if known.rows:
        truths = known.numbers("truth", _RULE)
        pairs = _RULE.compare([_RULE.extract(text) for text in known.column("prediction")], truths)
        split.add(pair_metrics(pairs, _RULE), "_truth", TRUTH_METRICS)
        _score_constants(known, truths, TRUTH_METRICS, "_truth")


def _score_constants(split: _Split, answers: Sequence[Decimal], metrics: Sequence[str], key: str = "") -> None:
    for name, text in split.header["baselines"].items():
        constant = _RULE.extract(text) if isinstance(text, str) else None
        if name not in CONSTANTS or constant is None:
            raise UserError(
                f"{split.path}:1: baseline {name!r}: {text!r} must be a number as a string, "
                f"under one of {', '.join(CONSTANTS)}"
            )
        split.add_reference([constant] * len(answers), answers, metrics, f"{key}:{name}")


def _score_texts(split: _Split) -> None:
    predictions, answers = split.column("prediction"), split.column("answer")
    known = split.with_key(TOKENS[0]).rows.values()
    counts = [TokenCounts(row[TOKENS[0]], row[TOKENS[1]], row.get(TOKENS[2])) for row in known]
    if counts and len(counts) < len(split.rows):
        raise UserError(f"{split.path}: {len(counts)} of {len(split.rows)} {split.name} rows count their tokens")
    for rule in TEXT_RULES:
        split.add(text_metrics(predictions, answers, rule=rule), _suffix(rule))
        # Older files lack the length of an answer, which the padding of the paper's rule depends on.
        if counts and (rule == DEFAULT or all(row.generated is not None for row in counts)):
            split.add({"token_accuracy": token_accuracy(counts, rule=rule)}, _suffix(rule))
    matches = np.array(exact_matches(predictions, answers))
    split.scores.correct[split.name] = pack_bits(matches)
    for group, mine in _members(split.groups):
        values = {"exact_match": float(matches[mine].mean()), "count": float(mine.sum())}
        split.scores.groups.setdefault(split.name, {})[group] = values


def _members(groups: Sequence[str | None]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each group, and which rows are in it."""
    each = np.array(groups, dtype=object)
    for group in sorted({group for group in groups if group is not None}):
        yield group, each == group


def _score_likelihood(split: _Split) -> None:
    size, digits = split.header["bytes"].get(split.name, 0), split.header.get("digits") is True
    split.add(likelihood_metrics(list(split.rows.values()), size, digits=digits))


_KINDS: dict[str, tuple[Mapping[str, int], Callable[[_Split], None]]] = {
    "number": (NUMBER_VERSIONS, _score_numbers),
    "text": (TEXT_VERSIONS, _score_texts),
    "likelihood": ({}, _score_likelihood),
}


def _suffix(rule: str) -> str:
    return "" if rule == DEFAULT else f"@{rule}"


def sample_key(id: str) -> bytes:
    """What samples of examples are sorted by: it depends on the id alone, so that every run has the same."""
    return hashlib.sha1(id.encode(*_ANY_TEXT)).digest()


def sample_errors(ids: Sequence[str], errors: NDArray[np.float64], limit: int) -> list[float | None]:
    """Errors of the first ``limit`` examples in the order of sha1(id), to 6 significant digits; None where undefined.

    The sample depends on the ids alone, so that runs on the same examples keep the same ones.
    """
    order = sorted(range(len(ids)), key=lambda i: sample_key(ids[i]))
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
