"""The metrics of a run from its predictions.jsonl alone, and its worst answers, as the commands print them."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ntl.config.composition import read_config
from ntl.data.prepared import Prepared
from ntl.evaluation.metrics import CONSTANTS, REFERENCES, RIDGE
from ntl.evaluation.numeric import list_metrics
from ntl.evaluation.predictions import json_value, read_predictions
from ntl.evaluation.rules import RULES
from ntl.evaluation.scores import sample_key, score_predictions
from ntl.evaluation.textual import exact_matches, rouge_scores
from ntl.system.errors import UserError

PREDICTIONS = "predictions.jsonl"
UNBOUNDED = 10_000
TOLD = ("question", "answer", "prediction")  # of a wrong answer, beside its error
Prediction = dict[str, Any]


def print_metrics(path: Path, *, as_json: bool = False, rule: str = "") -> None:
    """Print the metrics of a predictions file: one table per split, or one flat object; by this rule of answers, too.

    UserError: a bad file.
    """
    metrics = score_predictions(path, rule).metrics
    if rule and not any(name.endswith(f"@{rule}") for name in metrics):
        raise UserError(f"--rule {rule}: answers of this run are not one number each, which a rule reads; leave it out")
    if as_json:
        print(json.dumps({name: json_value(value) for name, value in metrics.items()}, allow_nan=False, indent=1))
    else:
        _print_tables(metrics, rule)


def _print_tables(metrics: Mapping[str, float], rule: str) -> None:
    """One table per split: each metric under each rule and for constant answers. Headings are suffixes of keys."""
    suffixes = ("", "@paper", f"@{rule}", *(f":{name}" for name in (*CONSTANTS, *REFERENCES)))
    shown = [suffix for suffix in suffixes if any(name.endswith(suffix) for name in metrics)]
    for split in dict.fromkeys(name.partition("/")[0] for name in metrics):
        names = (name.partition("/")[2] for name in metrics if name.startswith(f"{split}/"))
        stems = dict.fromkeys(name.partition("@")[0].partition(":")[0] for name in names)
        rows = ([name, *(_cell(metrics.get(f"{split}/{name}{suffix}", "")) for suffix in shown)] for name in stems)
        _print_table(split, ["metric", *(suffix or "default" for suffix in shown)], rows, left=1)
    if any("/misread@paper" in name for name in metrics):
        print("misread: the share of right answers that the rule reads as other numbers, as 234 for 1,234")
    if constants := [suffix for suffix in shown if suffix[:1] == ":" and suffix != f":{RIDGE}"]:
        print(f"{', '.join(constants)}: constant answers, taken from the training targets")
    if f":{RIDGE}" in shown:
        print(f":{RIDGE}: a linear model of the characters of the question (ntl.evaluation.ridge)")


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else "undefined" if math.isnan(value) else f"{value:.5g}"


def _print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> None:
    """The first ``left`` columns are aligned on the left, the others on the right."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, name in enumerate(headings):
        table.add_column(name, overflow="fold", no_wrap=name == "metric", justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    # A file or a pipe has no width: each row is a line, for grep and sort.
    Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNBOUNDED).print(table)


def print_worst(path: Path, count: int, files: Any = None, *, as_json: bool = False) -> None:
    """Print the ``count`` worst answers of each split, with their questions. UserError: of ``wrong_answers``."""
    worst = wrong_answers(path, count, files)["worst"]
    if as_json:
        print(json.dumps(worst, indent=1))
        return
    for split, answers in worst.items():
        errors = ("-" if row["error"] is None else f"{float(row['error']):.6g}" for row in answers)
        rows = ([row[name] for name in TOLD] + [error] for row, error in zip(answers, errors, strict=True))
        _print_table(f"{split}, the worst", [*TOLD, "error"], rows, left=3)


def wrong_answers(path: Path, count: int, files: Any = None) -> dict[str, dict[str, list[Prediction]]]:
    """Up to ``count`` wrong answers of each split of a predictions file: ``{"worst": {split: [...]}, "typical": ...}``.

    Typical ones are a sample that depends on the ids alone. Each has its "question", "answer", "prediction" and
    "error": of a number |prediction - answer|, both read by the default rule, or None without a number, which stands
    last; of several numbers the mean; of a text 1 - ROUGE-1. ``files`` is ``data["files"]`` of the run's record.

    UserError: the predictions are of plain text; or the data of the run is not here, or is not the same.
    """
    header, rows = read_predictions(path)
    if header["metrics"] == "likelihood":
        raise UserError(f"{path}: plain text has no answers")
    errors = {"number": _of_numbers, "numbers": _of_lists, "text": _of_texts}[header["metrics"]](rows)
    wrong = [{**row, "error": error} for row, error in zip(rows, errors, strict=True) if error is not None]
    orders = {
        "worst": sorted(wrong, key=lambda row: math.inf if math.isnan(row["error"]) else -row["error"]),
        "typical": sorted(wrong, key=lambda row: sample_key(row["id"])),
    }
    splits = dict.fromkeys(row["split"] for row in rows)
    chosen = {
        name: {split: [row for row in order if row["split"] == split][:count] for split in splits}
        for name, order in orders.items()
    }
    asked = _questions(
        path.parent, files, [row for part in chosen.values() for answers in part.values() for row in answers]
    )

    def told(row: Prediction) -> Prediction:
        row = {**row, "question": asked[row["split"], row["id"]]}
        return {name: row[name] for name in TOLD} | {"error": json_value(row["error"])}

    return {name: {split: [*map(told, answers)] for split, answers in part.items()} for name, part in chosen.items()}


def _of_numbers(rows: list[Prediction]) -> list[float | None]:
    # The error of each row; None where the answer is right, or cannot be read itself.
    rule = RULES["default"]
    pairs = [(rule.extract(row["prediction"]), rule.extract(row["answer"])) for row in rows]
    return [
        None if answer is None or prediction == answer else float(rule.compare([prediction], [answer]).error[0])
        for prediction, answer in pairs
    ]


def _of_lists(rows: list[Prediction]) -> list[float | None]:
    scored = (list_metrics([row["prediction"]], [row["answer"]]) for row in rows)
    return [None if correct.all() else metrics["mae"] for metrics, correct in scored]


def _of_texts(rows: list[Prediction]) -> list[float | None]:
    texts = [row["prediction"] for row in rows], [row["answer"] for row in rows]
    scored = zip(exact_matches(*texts), rouge_scores(*texts), strict=True)
    return [None if is_right else 1.0 - rouge["rouge1"].fmeasure for is_right, rouge in scored]


def _questions(folder: Path, files: Any, answers: Sequence[Prediction]) -> dict[tuple[str, str], str]:
    """The questions by split and id, from the data that the run was trained on."""
    config = read_config(folder)
    prepared = Prepared(config.dataset, config.data_dir)
    if isinstance(files, dict) and (changes := prepared.changes_since(files)):
        raise UserError(f"{folder}: no questions: the data has changed since the run was trained: {changes}")
    if not prepared.find():  # else what training told of it would be told again
        prepared.prepare(download=False)
    wanted = {(row["split"], row["id"]): row["answer"] for row in answers}
    rows = ((split, row) for split in {split for split, _ in wanted} for row in prepared.rows(split))
    questions = {key: row["question"] for split, row in rows if wanted.get(key := (split, row["id"])) == row["answer"]}
    if lost := sorted(wanted.keys() - questions.keys()):
        raise UserError(f"{folder}: no questions: {lost[0][1]} is not of the {lost[0][0]} questions of this run")
    return questions
