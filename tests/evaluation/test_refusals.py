"""What the metrics refuse: the argument, or the place in the file, is named in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.evaluation import extract_answer, number_metrics, score_predictions, text_metrics, write_predictions
from ntl.evaluation.metrics import metric_of
from ntl.evaluation.ridge import Ridge

LARGE = [{"question": f"n {index}", "answer": f"{index}e160"} for index in range(40)]
HUGE = [{"question": f"n {index}", "answer": "1e400"} for index in range(5)]
CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: number_metrics(["1"], ["1"], groups=["a", "b"]), ValueError, "lengths must be equal"),
    (lambda: number_metrics(["1", "2"], ["1", "x"]), ValueError, "'x'"),
    (lambda: number_metrics(["1"], ["1"], rule="Paper"), ValueError, "unknown answer rule"),
    (lambda: text_metrics(["a"], ["a", "b"]), ValueError, "argument"),
    (lambda: text_metrics(["a"], ["a"], rule="batch"), ValueError, "'batch'"),
    (lambda: extract_answer("1", "paper+percent"), ValueError, "default, paper"),
    (lambda: extract_answer("1", "default+"), ValueError, "default, paper"),
    (lambda: Ridge(HUGE, HUGE), ValueError, "infinity"),
    (lambda: Ridge(LARGE, LARGE), ValueError, "overflows"),
    (lambda: metric_of("test/closeness@paper"), UserError, "evaluation/metrics.py"),
    (lambda: metric_of("test/"), UserError, "evaluation/metrics.py"),
]


@pytest.mark.parametrize(("call", "error", "named"), CALLS)
def test_arguments(call: Callable[[], Any], error: type[Exception], named: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(error) as caught:
        call()
    assert named in str(caught.value)


ROW = {"split": "test", "id": "9", "answer": "1", "prediction": "1"}


@pytest.mark.parametrize(
    ("rows", "kind", "named"),
    [
        ([], "number", "p.jsonl: no predictions"),
        ([ROW | {"answer": "a cat"}], "number", "test 9: 'answer'"),
        ([ROW | {"truth": "?"}], "number", "test 9: 'truth'"),
        ([ROW | {"answer": "one"}], "numbers", "'one'"),
    ],
)
def test_rows_that_cannot_be_scored(rows: list[dict[str, str]], kind: str, named: str, tmp_path: Path) -> None:
    header = {"schema": 1, "dataset": "gsm8k", "metrics": kind, "decoding": {"name": "greedy"}, "baselines": {}}
    write_predictions(tmp_path / "p.jsonl", header, rows)
    with pytest.raises(UserError) as caught:
        score_predictions(tmp_path / "p.jsonl")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
