"""Metrics of plain text from the sums of its documents."""

import math
from pathlib import Path

import pytest

from ntl.evaluation import score_predictions, write_predictions
from ntl.evaluation.textual import likelihood_metrics

HEADER = {
    "schema": 1,
    "dataset": "text",
    "metrics": "likelihood",
    "decoding": {"name": "likelihood"},
    "baselines": {},
    "bytes": {"test": 12, "other": 1},
    "digits": True,
}
ROWS = [
    {"split": "test", "id": "a", "tokens": 3, "ce": 3.0, "numbers": 2, "right": 1, "error": 4.0, "mean_error": 1.5},
    {"split": "test", "id": "b", "tokens": 5, "ce": 9.0, "numbers": 2, "right": 2, "error": 0.0, "mean_error": 0.5},
    {"split": "other", "id": "a", "tokens": 1, "ce": 0.0, "numbers": 0, "right": 0, "error": 0.0, "mean_error": 0.0},
]


def test_by_hand() -> None:
    found = likelihood_metrics(ROWS[:2], 12, digits=True)
    assert found == {
        "ce": 1.5,  # 12 nats, 8 tokens
        "perplexity": pytest.approx(4.4816890703, rel=1e-10),
        "bits_per_byte": pytest.approx(1.4426950408889634, rel=1e-15),  # 1 / ln 2
        "digit_accuracy": 0.75,
        "digit_mae": 1.0,
        "digit_mae_mean": 0.5,
        "count": 2.0,
        "tokens": 8.0,
        "digits": 4.0,
    }
    assert likelihood_metrics(ROWS[:2], 12, digits=False)["number_mae"] == 1.0


def test_a_file_is_scored_by_split(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    write_predictions(path, HEADER, ROWS)
    scores = score_predictions(path)
    assert (scores.metrics["test/ce"], scores.metrics["other/perplexity"]) == (1.5, 1.0)
    assert scores.metrics["test/bits_per_byte"] == pytest.approx(1 / math.log(2))
    assert (scores.correct, scores.rules) == ({}, {})
    assert len(scores.ids_sha256["test"]) == 64
