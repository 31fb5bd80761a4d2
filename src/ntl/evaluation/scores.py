"""All scores of a predictions.jsonl, as a run record stores them."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntl.evaluation.interval import Calibration
from ntl.evaluation.metrics import NUMBER_VERSIONS, TEXT_VERSIONS, metric_of
from ntl.evaluation.numeric import pair_metrics
from ntl.evaluation.predictions import TOKENS, read_predictions
from ntl.evaluation.rules import ANSWER_MARK, RULES, AnswerRule, get_rule
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
_ANY_TEXT = ("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a predictions file. NaN is an undefined metric, inf one beyond float64.

    metrics: "<split>/<metric>" under the default rule and "<split>/<metric>@paper"; for numbers also the scores of
        reference answers: "<split>/rmse:mean" and so on for mode, median and mean of the training targets, and, where
        every row has them, ":shortcut" (of a shortcut rule) and ":ridge" (of a linear model). Of what rows or header
        have: "rmse_truth" and "mae_truth" (the noise-free truth), "wrong_as_shortcut" (the share of wrong predictions
        that equal it), "misread" (the share of answers that the rule reads as other numbers than the default rule),
        "crps", "coverage_90" and "width_90" (`ntl.evaluation.interval`), "marked" (the share of predictions with
        "####"), "malformed", "covered", `speculation_metrics`; for texts "token_accuracy"; of plain
        text `likelihood_metrics` alone.
    groups: split -> group -> accuracy, mape, mae, count (default rule); of texts exact_match, count.
    correct: split -> packed correctness of every example in file order (`ntl.results.pack_bits`), default rule.
    ids_sha256: split -> hash of all ids in file order.
    predictions_sha256: of the file's bytes. rules: version of every rule behind the metrics.
    """

    metrics: dict[str, float]
    groups: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    correct: dict[str, str] = field(default_factory=dict)
    ids_sha256: dict[str, str] = field(default_factory=dict)
    predictions_sha256: str = ""
    rules: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Split:
    """The rows of one split, and where its scores go."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    path: Path
    header: Mapping[str, Any]
    scores: Scores
    rules: Sequence[AnswerRule]

    def column(self, key: str) -> list[Any]:
        return [row[key] for row in self.rows]

    def whole_column(self, key: str) -> list[Any]:
        """A column that all rows have, else nothing."""
        return self.column(key) if all(key in row for row in self.rows) else []

    @property
    def groups(self) -> list[str | None]:
        return [row.get("group") for row in self.rows]

    def numbers(self, key: str, rule: AnswerRule, rows: Sequence[Mapping[str, Any]] = ()) -> list[Decimal]:
        values: list[Decimal] = []
        for row in rows or self.rows:
            value = rule.extract(row[key])
            if value is None:
                where = f"{self.path}: {self.name} {row['id']}"
                raise UserError(f"{where}: {key!r} holds no number: {row[key]!r}; is this a text data set?")
            values.append(value)
        return values

    def add(self, values: Mapping[str, float], suffix: str = "", metrics: Sequence[str] = ()) -> None:
        for metric in metrics or values:
            key = f"{self.name}/{metric}{suffix}"
            metric_of(key)  # an error where the list of metrics lacks it
            self.scores.metrics[key] = values[metric]

    def add_reference(
        self, given: Sequence[Decimal], answers: Sequence[Decimal], suffix: str, metrics: Sequence[str] = ()
    ) -> None:
        """Scores of reference answers, which no model has given."""
        found = pair_metrics(_RULE.compare(given, answers), _RULE, self.groups if not metrics else None)
        self.add(found, suffix, metrics or CONSTANT_METRICS)

    def add_constants(self, answers: Sequence[Decimal], key: str = "", metrics: Sequence[str] = ()) -> None:
        for name, text in self.header["baselines"].items():
            self.add_reference([Decimal(text)] * len(answers), answers, f"{key}:{name}", metrics)


def score_predictions(path: str | Path, rule: str = "") -> Scores:
    """Score a predictions.jsonl, from that file alone; numbers by this rule (`get_rule`), too, where it is given.

    UserError for a file that cannot be scored.
    """
    path, rules = Path(path), [*RULES.values(), *([get_rule(rule)] if rule else [])]
    header, rows = read_predictions(path)
    if not rows:
        raise UserError(f"{path}: no predictions after the header; decode the run again")
    versions, score = _KINDS[header["metrics"]]
    scores = Scores({}, predictions_sha256=hashlib.sha256(path.read_bytes()).hexdigest(), rules=dict(versions))
    splits: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        splits.setdefault(row["split"], []).append(row)
    for name, mine in splits.items():
        split = _Split(name, mine, path, header, scores, rules)
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
    for rule in split.rules:
        predictions, answers = [rule.extract(text) for text in texts], split.numbers("answer", rule)
        compared[rule.name] = predictions, answers, rule.compare(predictions, answers)
        split.add(pair_metrics(compared[rule.name][-1], rule, groups), _suffix(rule.name))
    for rule, (_, read, _) in compared.items():
        if wrong := fmean(float(one) != float(other) for one, other in zip(read, compared[DEFAULT][1], strict=True)):
            split.add({"misread": wrong}, _suffix(rule))
    if any(ANSWER_MARK in answer for answer in split.column("answer")):
        split.add({"marked": fmean(ANSWER_MARK in text for text in texts)})
    predictions, answers, pairs = compared[DEFAULT]
    if (stored := split.header.get("calibration")) and name != "validation":
        split.add(Calibration.from_header(stored).metrics(pairs.error, [row.get("sd") for row in split.rows]))
    split.scores.correct[name] = pack_bits(pairs.correct)
    for group, mine in _members(groups):
        values = pair_metrics(pairs.take(mine), _RULE)
        split.scores.groups.setdefault(name, {})[group] = {metric: values[metric] for metric in GROUP_METRICS}
    split.add_constants(answers)
    if split.whole_column("shortcut"):
        taken = split.numbers("shortcut", _RULE)
        split.add_reference(taken, answers, f":{SHORTCUT}")
        wrong = [p == t for p, t, right in zip(predictions, taken, pairs.correct, strict=True) if not right]
        if wrong:
            split.add({"wrong_as_shortcut": fmean(wrong)})
    if split.whole_column(RIDGE):
        split.add_reference(split.numbers(RIDGE, _RULE), answers, f":{RIDGE}")
    if scored := [row["crps"] for row in split.rows if "crps" in row]:
        split.add({"crps": fmean(scored)})
    if known := [row for row in split.rows if "truth" in row]:
        truths = split.numbers("truth", _RULE, known)
        pairs = _RULE.compare([_RULE.extract(row["prediction"]) for row in known], truths)
        split.add(pair_metrics(pairs, _RULE), "_truth", TRUTH_METRICS)
        split.add_constants(truths, "_truth", TRUTH_METRICS)


def _score_texts(split: _Split) -> None:
    predictions, answers = split.column("prediction"), split.column("answer")
    counts = list(map(TokenCounts, *map(split.whole_column, TOKENS)))
    for rule in TEXT_RULES:
        split.add(text_metrics(predictions, answers, rule=rule), _suffix(rule))
        if counts:
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
    split.add(likelihood_metrics(split.rows, size, digits=digits))


_KINDS = {
    "number": (NUMBER_VERSIONS, _score_numbers),
    "text": (TEXT_VERSIONS, _score_texts),
    "likelihood": ({}, _score_likelihood),
}


def _suffix(rule: str) -> str:
    return "" if rule == DEFAULT else f"@{rule}"


def sample_key(id: str) -> bytes:
    """What samples of examples are sorted by: it depends on the id alone, so that every run has the same."""
    return hashlib.sha1(id.encode(*_ANY_TEXT)).digest()
