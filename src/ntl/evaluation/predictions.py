"""predictions.jsonl: a header line, then one line for every decoded example.

{"header": {"schema": 1, "dataset": "...", "metrics": "number", "numbers", "text" or "likelihood",
            "decoding": {...}, "baselines": {...}}}
{"split": "test", "id": "7", "answer": "123", "prediction": " 124"}          and, where known, "group", "truth",
                                                                             "shortcut", "ridge"

A row of a text data set may have the integers "tokens_correct", "tokens_total" and "tokens_generated"
(`textual.TokenCounts`). For tokenizers that write numbers in tokens of their own, "malformed" is the number of errors
in a prediction's numbers. For a prediction from a distribution over numbers, "represented" is the total probability of
the numbers that were found, "covered" the part of it that was read to the end; unless "represented" is 0, there are
also "sd" and "quantiles" {"0.05": ..., ...} of the distribution, given that the answer is one of them, and its "crps"
(`numeric.crps`). For an answer whose tokens were drafted, "speculation" is {"tokens": of the answer, "forwards": passes
of the model, "accepted": [drafts kept of head 2, ...]}.

The header has "calibration" where intervals are scored (`ntl.evaluation.interval.Calibration.header`).

Plain text has no answers and no predictions: a line has the sums over the tokens of one document, which
``ntl.evaluation.textual.likelihood_metrics`` reads. The header has "bytes" {split: UTF-8 bytes of its documents} and
"digits", whether a number token is one digit.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ntl.system.errors import UserError
from ntl.system.files import atomic_writer, regular

SCHEMA = 1
_HEADER = {"schema", "dataset", "metrics", "decoding", "baselines"}
_ANSWER = {"split", "id", "answer", "prediction"}
_ROWS = {
    "number": _ANSWER,
    "numbers": _ANSWER,
    "text": _ANSWER,
    "likelihood": {"split", "id", "tokens", "numbers", "right", "ce", "error", "mean_error"},
}
TOKENS = ("tokens_correct", "tokens_total", "tokens_generated")


def write_predictions(path: str | Path, header: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the file atomically: to a temporary file, which is synced and then replaces the old one."""
    with atomic_writer(Path(path)) as file:
        for record in ({"header": dict(header)}, *map(dict, rows)):
            file.write(json.dumps(record, allow_nan=False).encode("ascii") + b"\n")


def read_predictions(path: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read (header, rows); row i is line i + 2. UserError with file:line for a file that is not as described above.

    Also refused is an id that occurs twice in a split, since examples of two runs are paired by their ids.
    """
    try:
        *lines, rest = regular(Path(path)).read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot read the predictions: {error.strerror}; decode the run again") from None
    if rest or not lines:
        raise UserError(f"{path}: the file is empty or its last line is cut off; decode the run again")
    header, *rows = (_parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1))
    header = header.get("header")
    if not isinstance(header, dict) or _HEADER - header.keys() or header["metrics"] not in _ROWS:
        raise UserError(f"{path}:1: no header of predictions; decode the run again")
    if header["schema"] != SCHEMA:
        raise UserError(f"{path}:1: schema {header['schema']} is not {SCHEMA}, the one this version reads")
    seen: dict[tuple[str, str], int] = {}
    for number, row in enumerate(rows, 2):
        if lacking := sorted(_ROWS[header["metrics"]] - row.keys()):
            raise UserError(f"{path}:{number}: the row lacks {lacking[0]!r}")
        if wrong := next((name for name in sorted(_ANSWER) if not isinstance(row.get(name, ""), str)), ""):
            raise UserError(f"{path}:{number}: {wrong!r} is {row[wrong]!r}, not a text in quotes")
        first = seen.setdefault((row["split"], row["id"]), number)
        if first != number:
            raise UserError(f"{path}:{number}: id {row['id']!r} of split {row['split']!r} is on line {first} already")
    return header, rows


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a line of JSON ({error})") from None
    if not isinstance(record, dict):
        raise UserError(f"{where}: a JSON object was expected, not {type(record).__name__}")
    return record


def json_value(value: float) -> float | str | None:
    """A value as JSON: undefined is null, infinities are the strings "inf" and "-inf"."""
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else value
