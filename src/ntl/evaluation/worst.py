"""Wrong answers of a run, with their questions: the worst ones, and a sample that depends on the ids alone."""

import math
from pathlib import Path
from typing import Any

from ntl.config import build
from ntl.config.composition import read_config
from ntl.data.prepared import Prepared
from ntl.evaluation.predictions import json_value, read_predictions
from ntl.evaluation.rules import RULES
from ntl.evaluation.scores import sample_key
from ntl.evaluation.textual import exact_matches, rouge_scores
from ntl.results.record import RECORD, read_record
from ntl.system.errors import UserError

Row = dict[str, Any]


def wrong_answers(path: Path, count: int) -> dict[str, dict[str, list[Row]]]:
    """Up to ``count`` wrong answers of each split of a predictions file: ``{"worst": {split: [...]}, "typical": ...}``.

    Each has its "question", "answer", "prediction" and "error": of a number |prediction - answer|, both read by the
    default rule, or None without a number, which stands last; of a text 1 - ROUGE-1.

    UserError: the predictions are those of plain text; or the data of the run is not here, or is not the same.
    """
    header, rows = read_predictions(path)
    if header["metrics"] == "likelihood":
        raise UserError(f"{path}: plain text has no answers")
    errors = _of_numbers(rows) if header["metrics"] == "number" else _of_texts(rows)
    wrong = [{**row, "error": error} for error, row in zip(errors, rows, strict=True) if error is not None]
    orders = {
        "worst": sorted(wrong, key=lambda row: math.inf if math.isnan(row["error"]) else -row["error"]),
        "typical": sorted(wrong, key=lambda row: sample_key(row["id"])),
    }
    splits = dict.fromkeys(row["split"] for row in rows)
    chosen = {
        name: {split: [row for row in order if row["split"] == split][:count] for split in splits}
        for name, order in orders.items()
    }
    keys = {(split, row["id"]) for part in chosen.values() for split, found in part.items() for row in found}
    asked = _questions(path.parent, keys)

    def described(row: Row) -> Row:
        answers = {name: row[name] for name in ("answer", "prediction")}
        return {"question": asked[row["split"], row["id"]], **answers, "error": json_value(row["error"])}

    return {
        name: {split: [described(row) for row in found] for split, found in part.items()}
        for name, part in chosen.items()
    }


def _of_numbers(rows: list[Row]) -> list[float | None]:
    # The error of each row; None where the answer is right, or cannot be read itself.
    rule = RULES["default"]
    pairs = [(rule.extract(row["prediction"]), rule.extract(row["answer"])) for row in rows]
    return [
        None if answer is None or prediction == answer else float(rule.compare([prediction], [answer]).error[0])
        for prediction, answer in pairs
    ]


def _of_texts(rows: list[Row]) -> list[float | None]:
    texts = [row["prediction"] for row in rows], [row["answer"] for row in rows]
    scored = zip(exact_matches(*texts), rouge_scores(*texts), strict=True)
    return [None if is_right else 1.0 - rouge["rouge1"].fmeasure for is_right, rouge in scored]


def _questions(folder: Path, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The questions by split and id, from the data that the run was trained on."""
    config, record = read_config(folder), folder / RECORD
    prepared = Prepared(build(config.dataset), config.data_dir)
    files = read_record(record).data.get("files") if record.is_file() else None
    if isinstance(files, dict) and (changes := prepared.changes_since(files)):
        raise UserError(f"{folder}: no questions: the data has changed since the run was trained: {changes}")
    prepared.prepare(lambda line: None, download=False)
    splits = {split for split, _ in wanted}
    rows = ((split, row) for split in splits for row in prepared.rows(split))
    found = {key: row["question"] for split, row in rows if (key := (split, row["id"])) in wanted}
    if lost := sorted(wanted - found.keys()):
        raise UserError(f"{folder}: no questions: {lost[0][1]} is not one of {lost[0][0]}")
    return found
