"""The metrics of a run from its predictions.jsonl alone, and its worst answers, as the commands print them."""

import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ntl.evaluation.predictions import json_value
from ntl.results.record import RECORD, find_run, read_record
from ntl.results.spec import REFERENCES, RIDGE
from ntl.system.errors import UserError
from ntl.system.files import sha256_of

PREDICTIONS = "predictions.jsonl"
UNBOUNDED = 10_000
OTHER_FILE = (
    "warning: {path}: not the predictions that {record} was computed from (its predictions_sha256 differs): edited, "
    "cut, of another run, or decoded again; restore them, or remove the record and train again."
)


def find_predictions(run: str, outputs: Path) -> Path:
    """The predictions file of a path, a run folder, or a run id under `outputs`. UserError names the nearest id.

    A warning is printed where it is not the file that the record beside it was computed from.
    """
    path = Path(run) if Path(run).is_file() else find_run(run, outputs) / PREDICTIONS
    if not path.is_file():
        raise UserError(f"{path.parent}: no {PREDICTIONS} in this run folder; decode it with scripts/predict.py")
    record = path.with_name(RECORD)
    known = read_record(record).predictions_sha256 if path.name == PREDICTIONS and record.is_file() else ""
    if known and known != sha256_of(path):
        print(OTHER_FILE.format(path=path, record=record), file=sys.stderr)
    return path


def print_metrics(path: Path, *, as_json: bool = False, rule: str = "") -> None:
    """Print the metrics of a predictions file: one table per split, or one flat object; by this rule of answers, too.

    UserError: a bad file.
    """
    from ntl.evaluation.scores import score_predictions  # numpy, which the help does without

    metrics = score_predictions(path, rule).metrics
    if rule and not any(name.endswith(f"@{rule}") for name in metrics):
        raise UserError(f"--rule {rule}: answers of this run are no numbers, which a rule could read; leave it out")
    if as_json:
        print(json.dumps({name: json_value(value) for name, value in metrics.items()}, allow_nan=False, indent=1))
    else:
        _print_tables(metrics, rule)


def _print_tables(metrics: Mapping[str, float], rule: str) -> None:
    """One table per split: each metric under each rule and for constant answers. Headings are suffixes of keys."""
    from ntl.evaluation.numeric import CONSTANTS

    suffixes = ("", "@paper", f"@{rule}", *(f":{name}" for name in (*CONSTANTS, *REFERENCES)))
    shown = [suffix for suffix in suffixes if any(name.endswith(suffix) for name in metrics)]
    for split in dict.fromkeys(name.partition("/")[0] for name in metrics):
        names = (name.partition("/")[2] for name in metrics if name.startswith(f"{split}/"))
        known = dict.fromkeys(name.partition("@")[0].partition(":")[0] for name in names)
        rows = ([name, *(_cell(metrics.get(f"{split}/{name}{suffix}")) for suffix in shown)] for name in known)
        _print_table(split, ["metric", *(suffix or "default" for suffix in shown)], rows, left=1)
    if any("/misread@paper" in name for name in metrics):
        print("misread: the share of right answers that the rule reads as other numbers, as 234 for 1,234")
    if constants := [suffix for suffix in shown if suffix[:1] == ":" and suffix != f":{RIDGE}"]:
        print(f"{', '.join(constants)}: constant answers, taken from the training targets")
    if f":{RIDGE}" in shown:
        print(f":{RIDGE}: a linear model of the characters of the question (ntl.evaluation.ridge)")


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return "undefined" if math.isnan(value) else f"{value:.5g}"


def _print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> None:
    """The first ``left`` columns are aligned on the left, the others on the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for index, name in enumerate(headings):
        table.add_column(name, overflow="fold", no_wrap=name == "metric", justify="left" if index < left else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    # A file or a pipe has no width: each row is a line, for grep and sort.
    Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else UNBOUNDED).print(table)


def print_worst(path: Path, count: int, *, as_json: bool = False) -> None:
    """Print the ``count`` worst answers of each split, with their questions. UserError: of ``wrong_answers``."""
    from ntl.evaluation.worst import wrong_answers

    worst = wrong_answers(path, count)["worst"]
    if as_json:
        print(json.dumps(worst, indent=1))
        return
    headings = ["question", "answer", "prediction", "error"]
    for split, found in worst.items():
        rows = ([*(row[name] for name in headings[:3]), _error(row["error"])] for row in found)
        _print_table(f"{split}, the worst", headings, rows, left=3)


def _error(value: float | str | None) -> str:
    return "-" if value is None else f"{float(value):.6g}"
