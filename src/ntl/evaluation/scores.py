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

from ntl.evaluation.interval import Calibration, errors_of
from ntl.evaluation.metrics import LIST_VERSIONS, NUMBER_VERSIONS, RIDGE, SHORTCUT, TEXT_VERSIONS, metric_of
from ntl.evaluation.numeric import list_metrics, pair_metrics
from ntl.evaluation.predictions import TOKENS, read_predictions
from ntl.evaluation.rules import RULES, AnswerRule, get_rule
from ntl.evaluation.textual import (
    TEXT_RULES,
    TokenCounts,
    exact_matches,
    likelihood_metrics,
    text_metrics,
    token_accuracy,
)
from ntl.numbers.answers import ANSWER_MARK
from ntl.system.errors import UserError
from ntl.system.files import sha256_of

GROUP_METRICS = ("accuracy", "mape", "mae", "count")
TRUTH_METRICS = ("rmse", "mae")  # also against the noise-free truth
CONSTANT_METRICS = (
    *("accuracy", "rmse", "mae", "r2", "log_mae", "log_r2"),
    *("mape_clipped", "mape_median", "within_1_percent", "log_ape"),
)
DEFAULT = "default"
_RULE = RULES[DEFAULT]  # of groups, truths and reference answers
_ANY_TEXT = ("utf-8", "surrogatepass")
Prediction = Mapping[str, Any]
# Metrics, correctness, groups and errors of a split.
Found = tuple[dict[str, float], NDArray[np.bool_], dict[str, dict[str, float]], NDArray[np.float64] | None]
ERRORS = 1000  # the most of a split that a record keeps


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a predictions file. NaN is an undefined metric, inf one beyond float64.

    metrics: "<split>/<metric>" under the default rule and "<split>/<metric>@paper"; for numbers also the scores of
        reference answers: "<split>/rmse:mean" and so on for mode, median and mean of the training targets, and, where
        every row has them, ":shortcut" (of a shortcut rule) and ":ridge" (of a linear model). Of what rows or header
        have: "rmse_truth" and "mae_truth" (the noise-free truth), "wrong_as_shortcut" (the share of wrong predictions
        that equal it), "misread" (the share of answers that the rule reads as other numbers than the default rule),
        "crps", "coverage_90" and "width_90" (`ntl.evaluation.interval`), "marked" (the share of predictions with
        "####"), "malformed", "covered", "represented", `speculation_metrics`; for texts "token_accuracy"; of lists
        of numbers `list_metrics`, of plain text `likelihood_metrics` alone.
    groups: split -> group -> accuracy, mape, mae, count (default rule); of texts exact_match, count.
    correct: split -> correctness of every example in file order, default rule.
    errors: split -> absolute errors of at most ``ERRORS`` rows of numbers, NaN where there is none.
    ids_sha256: split -> hash of all ids in file order.
    predictions_sha256: of the file's bytes. rules: version of every rule behind the metrics.
    """

    metrics: dict[str, float]
    groups: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    correct: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    errors: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    ids_sha256: dict[str, str] = field(default_factory=dict)
    predictions_sha256: str = ""
    rules: dict[str, int] = field(default_factory=dict)


def score_predictions(path: str | Path, rule: str = "") -> Scores:
    """Score a predictions.jsonl, from that file alone; numbers by this rule (`get_rule`), too, where it is given.

    UserError for a file that cannot be scored.
    """
    path, rules = Path(path), [*RULES.values(), *([get_rule(rule)] if rule else [])]
    header, rows = read_predictions(path)
    if not rows:
        raise UserError(f"{path}: no predictions after the header; decode the run again")
    versions = {"number": NUMBER_VERSIONS, "numbers": LIST_VERSIONS, "text": TEXT_VERSIONS}
    scores = Scores({}, predictions_sha256=sha256_of(path), rules=dict(versions.get(header["metrics"], {})))
    splits: dict[str, list[Prediction]] = {}
    for row in rows:
        splits.setdefault(row["split"], []).append(row)
    for name, mine in splits.items():
        # Runs with equal hashes can be paired example by example.
        scores.ids_sha256[name] = hashlib.sha256("\n".join(row["id"] for row in mine).encode(*_ANY_TEXT)).hexdigest()
        metrics: dict[str, float] = {}
        if malformed := _whole_column(mine, "malformed"):
            metrics["malformed"] = fmean(count > 0 for count in malformed)
        for column in ("covered", "represented"):
            if values := _whole_column(mine, column):
                metrics[column] = fmean(values)
        if counted := _whole_column(mine, "speculation"):
            metrics |= speculation_metrics(counted)
        if header["metrics"] == "likelihood":
            size, digits = header["bytes"].get(name, 0), header.get("digits") is True
            metrics |= likelihood_metrics(mine, size, digits=digits)
        else:
            score = {"number": _score_numbers, "numbers": _score_lists, "text": _score_texts}[header["metrics"]]
            answer_metrics, correct, groups, errors = score(mine, header, f"{path}: {name}", rules)
            metrics, scores.correct[name] = metrics | answer_metrics, correct
            if errors is not None:
                kept = sorted(sorted(range(len(mine)), key=lambda index: sample_key(mine[index]["id"]))[:ERRORS])
                scores.errors[name] = errors[kept]
            if groups:
                scores.groups[name] = groups
        for metric, value in metrics.items():
            metric_of(key := f"{name}/{metric}")  # an error where the list of metrics lacks it
            scores.metrics[key] = value
    return scores


def speculation_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Tokens a forward pass, and of each head k the share of passes with drafts that kept head k's: ``accepted/headk``.

    The first pass of an answer has no drafts to verify. NaN where no pass had any.
    """
    tokens, forwards = (sum(row[name] for row in rows) for name in ("tokens", "forwards"))
    verified, kept = forwards - len(rows), zip(*(row["accepted"] for row in rows), strict=False)
    shares = {
        f"accepted/head{head}": sum(counts) / verified if verified else math.nan for head, counts in enumerate(kept, 2)
    }
    return {"tokens_per_forward": tokens / forwards, **shares}


def _score_numbers(rows: Sequence[Prediction], header: Prediction, where: str, rules: Sequence[AnswerRule]) -> Found:
    texts, groups = [row["prediction"] for row in rows], [row.get("group") for row in rows]
    metrics: dict[str, float] = {}

    def add(values: Mapping[str, float], suffix: str, names: Sequence[str] = ()) -> None:
        metrics.update({f"{name}{suffix}": values[name] for name in names or values})

    def numbers(key: str, rule: AnswerRule = _RULE, rows: Sequence[Prediction] = rows) -> list[Any]:
        values = [rule.extract(row[key]) for row in rows]
        if None in values:
            row = rows[values.index(None)]
            raise UserError(f"{where} {row['id']}: {key!r} holds no number: {row[key]!r}; is this a text data set?")
        return values

    compared = {}
    for rule in rules:
        predictions, answers = [rule.extract(text) for text in texts], numbers("answer", rule)
        compared[rule.name] = predictions, answers, rule.compare(predictions, answers)
        add(pair_metrics(compared[rule.name][-1], rule, groups), _suffix(rule.name))
    for rule, (_, read, _) in compared.items():
        if wrong := fmean(float(one) != float(other) for one, other in zip(read, compared[DEFAULT][1], strict=True)):
            metrics[f"misread{_suffix(rule)}"] = wrong
    if any(ANSWER_MARK in row["answer"] for row in rows):
        metrics["marked"] = fmean(ANSWER_MARK in text for text in texts)
    predictions, answers, pairs = compared[DEFAULT]
    if (stored := header.get("calibration")) and rows[0]["split"] != "validation":
        calibration, spreads = Calibration.from_header(stored), [row.get("sd") for row in rows]
        metrics |= calibration.metrics(errors_of(pairs, calibration.scale), spreads, predictions)
    # Answers that no model has given: constants, and columns of the file.
    constants = {f":{name}": Decimal(text) for name, text in header["baselines"].items()}
    references: dict[str, list[Decimal]] = {suffix: [value] * len(rows) for suffix, value in constants.items()}
    references |= {f":{key}": numbers(key) for key in (SHORTCUT, RIDGE) if _whole_column(rows, key)}
    for suffix, values in references.items():
        add(pair_metrics(_RULE.compare(values, answers), _RULE, groups), suffix, CONSTANT_METRICS)
    if taken := references.get(f":{SHORTCUT}"):
        wrong = [p == t for p, t, right in zip(predictions, taken, pairs.correct, strict=True) if not right]
        metrics |= {"wrong_as_shortcut": fmean(wrong)} if wrong else {}
    if scored := [row["crps"] for row in rows if "crps" in row]:
        metrics["crps"] = fmean(scored)
    if noisy := [row for row in rows if "truth" in row]:
        truths = numbers("truth", rows=noisy)
        ours = {"": [_RULE.extract(row["prediction"]) for row in noisy]}
        for suffix, values in (ours | {suffix: [value] * len(noisy) for suffix, value in constants.items()}).items():
            add(pair_metrics(_RULE.compare(values, truths), _RULE), f"_truth{suffix}", TRUTH_METRICS)
    of_groups = {group: pair_metrics(pairs.take(mine), _RULE) for group, mine in _members(rows)}
    groups_of = {group: {name: of[name] for name in GROUP_METRICS} for group, of in of_groups.items()}
    return metrics, pairs.correct, groups_of, pairs.error


def _score_lists(rows: Sequence[Prediction], _header: Prediction, where: str, _rules: Any) -> Found:
    try:
        return *list_metrics(*([row[name] for row in rows] for name in ("prediction", "answer"))), {}, None
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _score_texts(rows: Sequence[Prediction], *_: Any) -> Found:
    predictions, answers = ([row[name] for row in rows] for name in ("prediction", "answer"))
    counts, metrics = list(map(TokenCounts, *(_whole_column(rows, name) for name in TOKENS))), {}
    for rule in TEXT_RULES:
        scores = text_metrics(predictions, answers, rule=rule)
        scores |= {"token_accuracy": token_accuracy(counts, rule=rule)} if counts else {}
        metrics |= {f"{name}{_suffix(rule)}": value for name, value in scores.items()}
    matches = np.array(exact_matches(predictions, answers))
    of_groups = {group: matches[mine] for group, mine in _members(rows)}
    groups = {g: {"exact_match": float(m.mean()), "count": float(len(m))} for g, m in of_groups.items()}
    return metrics, matches, groups, None


def _members(rows: Sequence[Prediction]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Each group, and which rows are in it."""
    groups = np.array([row.get("group") for row in rows], dtype=object)
    for group in sorted({group for group in groups if group is not None}):
        yield group, groups == group


def _whole_column(rows: Sequence[Prediction], key: str) -> list[Any]:
    """A column that all rows have, else nothing."""
    return [row[key] for row in rows] if all(key in row for row in rows) else []


def _suffix(rule: str) -> str:
    return "" if rule == DEFAULT else f"@{rule}"


def sample_key(id: str) -> bytes:
    """What samples of examples are sorted by: it depends on the id alone, so that every run has the same."""
    return hashlib.sha1(id.encode(*_ANY_TEXT)).digest()
