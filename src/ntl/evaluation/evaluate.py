"""The metrics of a run from its predictions.jsonl alone, and its worst answers, as the commands print them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from ntl.evaluation.predictions import json_value
from ntl.results.load import find_run
from ntl.results.spec import REFERENCES, RIDGE
from ntl.system.errors import UserError

PREDICTIONS = "predictions.jsonl"


def find_predictions(run: str, outputs: Path) -> Path:
    """The predictions file of a path, a run folder, or a run id under `outputs`. UserError names the nearest id."""
    if Path(run).is_file():
        return Path(run)
    folder = find_run(run, outputs)
    if not (folder / PREDICTIONS).is_file():
        raise UserError(f"{folder}: no {PREDICTIONS} in this run folder; decode it with scripts/predict.py")
    return folder / PREDICTIONS


def print_metrics(path: Path, *, as_json: bool = False) -> None:
    """Print the metrics of a predictions file: one table per split, or one flat object. UserError: a bad file."""
    from ntl.evaluation.scores import score_predictions  # numpy, which the help does without

    metrics = score_predictions(path).metrics
    if as_json:
        print(json.dumps({name: json_value(value) for name, value in metrics.items()}, allow_nan=False, indent=1))
    else:
        _print_tables(metrics)


def _print_tables(metrics: Mapping[str, float]) -> None:
    """One table per split: each metric under both rules and for constant answers. Headings are suffixes of keys."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from ntl.evaluation.numeric import CONSTANTS

    console = Console()
    suffixes = ("", "@paper", *(f":{name}" for name in (*CONSTANTS, *REFERENCES)))
    shown = [suffix for suffix in suffixes if any(name.endswith(suffix) for name in metrics)]
    for split in dict.fromkeys(name.partition("/")[0] for name in metrics):
        table = Table(title=split, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("metric", overflow="fold")
        for suffix in shown:
            table.add_column(suffix or "default", justify="right", overflow="fold")
        names = (name.partition("/")[2] for name in metrics if name.startswith(f"{split}/"))
        for metric in dict.fromkeys(name.partition("@")[0].partition(":")[0] for name in names):
            table.add_row(metric, *(_cell(metrics.get(f"{split}/{metric}{suffix}")) for suffix in shown))
        console.print(table)
    if constants := [suffix for suffix in shown[2:] if suffix != f":{RIDGE}"]:
        console.print(f"{', '.join(constants)}: constant answers, taken from the training targets")
    if f":{RIDGE}" in shown:
        console.print(f":{RIDGE}: a linear model of the characters of the question (ntl.evaluation.ridge)")


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return "undefined" if math.isnan(value) else f"{value:.5g}"


def print_worst(path: Path, count: int, *, as_json: bool = False) -> None:
    """Print the ``count`` worst answers of each split, with their questions. UserError: of ``wrong_answers``."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ntl.evaluation.worst import wrong_answers

    worst = wrong_answers(path, count)["worst"]
    if as_json:
        print(json.dumps(worst, indent=1))
        return
    for split, rows in worst.items():
        table = Table(title=f"{split}, the worst", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for name in ("question", "answer", "prediction", "error"):
            table.add_column(name, overflow="fold", justify="right" if name == "error" else "left")
        for row in rows:
            error = "-" if row["error"] is None else f"{float(row['error']):.6g}"
            table.add_row(*map(Text, (row["question"], row["answer"], row["prediction"], error)))
        Console().print(table)
