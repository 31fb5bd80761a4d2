"""What of a run is put on record."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ntl.results import RunRecord, unpack_errors
from ntl.training.recording import build_record, longer_than_train
from ntl.training.session import Session
from ntl.training.tracking import METRICS

GIT = {"commit": "c" * 40, "dirty": True}
TRAINER: Any = SimpleNamespace(
    args=SimpleNamespace(device=torch.device("cpu"), world_size=3), state=SimpleNamespace(global_step=12)
)
SCORES = SimpleNamespace(
    metrics={"test/accuracy": 0.25, "test/rmse": None},
    groups={"test": {"3x2": {"accuracy": 0.5}}},
    correct={"test": "AQ=="},
    errors={"test": [0.0, 1.5, None]},
    digits={"test": {"1": 3}},
    ids_sha256={"test": "i" * 64},
    predictions_sha256="p" * 64,
    rules={"default": 2, "paper": 1},
)
LINES = [
    {"step": 4, "loss": 3.0, "ce": 2.0, "ntl": 1.0, "learning_rate": 0.5, "grad_norm": 0.25, "epoch": 1.0},
    {"step": 4, "eval_loss": 2.5, "eval_ce": 2.25, "eval_ntl": 0.5, "eval_runtime": 9.0},
    {"step": 8, "loss": 1.0, "ce": 0.75, "ntl": 0.5, "learning_rate": 0.25, "grad_norm": 0.125, "epoch": 2.0},
]


@pytest.fixture
def record(small, tmp_path: Path) -> RunRecord:
    folder = tmp_path / "some-run"
    folder.mkdir()
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in LINES))
    session = Session(small("seed=5", "tracking=wandb", "tracking.tags=[a]"), folder, ["seed=5"], say=lambda line: None)
    validation = {"eval_ce": 0.5, "eval_ntl": 0.125, "eval_runtime": 9.0}
    return build_record(session, TRAINER, validation, SCORES, git=GIT, seen=(191, 2345), seconds=1.23456)


def test_what_was_computed(record: RunRecord) -> None:
    assert (record.id, record.seed, record.overrides, record.git) == ("some-run", 5, ["seed=5"], GIT)
    assert (record.steps, record.examples_seen, record.tokens_seen) == (12, 191, 2345)
    assert (record.num_devices, record.wall_time_s) == (3, 1.235)
    assert record.metrics == {
        "validation/ce": 0.5,
        "validation/ntl": 0.125,
        "test/accuracy": 0.25,
        "test/rmse": None,
    }
    assert record.groups == SCORES.groups
    assert (record.correct, record.digit_histograms) == (SCORES.correct, SCORES.digits)
    assert (record.ids_sha256, record.predictions_sha256) == (SCORES.ids_sha256, "p" * 64)
    assert record.rules == {"default": 2, "paper": 1}
    assert record.data["rows"] == {"train": 96, "validation": 20, "test": 30}
    assert all(len(digest) == 64 for digest in record.data["files"].values())
    assert record.data["longer_than_train"] == {"test": 0.0}  # every question has two digits


def test_examples_longer_than_any_that_was_trained_on_are_counted_in_tokens() -> None:
    """Of 4, 5 and 6 tokens one is longer than 5; as long is not longer; a split without examples has no share."""

    class Encoded(list):
        def lengths(self, indices: np.ndarray) -> np.ndarray:
            return np.array(self, dtype=np.int64)[indices]

    tokens = {"train": [2, 5, 3], "test": [5, 1], "far": [4, 5, 6], "none": []}
    session: Any = SimpleNamespace(
        dataset=SimpleNamespace(test_splits=("test", "far", "none")), encoded=lambda split: Encoded(tokens[split])
    )
    assert longer_than_train(session) == {"test": 0.0, "far": 0.3333}


def test_where_it_lies_and_who_watches_are_left_out(record: RunRecord) -> None:
    groups = {"model", "tokenizer", "loss", "objective", "dataset", "scale", "trainer", "decoding"}
    assert set(record.config) == groups | {"seed", "paper_compat"}
    assert record.config["trainer"]["schedule"] == "linear"


def test_curves_are_the_lines_of_the_metrics_file(record: RunRecord) -> None:
    assert {name: [list(point) for point in points] for name, points in record.curves.items()} == {
        "loss": [[4, 3.0], [8, 1.0]],
        "ce": [[4, 2.0], [8, 0.75]],
        "ntl": [[4, 1.0], [8, 0.5]],
        "eval_loss": [[4, 2.5]],
        "eval_ce": [[4, 2.25]],
        "eval_ntl": [[4, 0.5]],
        "learning_rate": [[4, 0.5], [8, 0.25]],
        "grad_norm": [[4, 0.25], [8, 0.125]],
    }


def test_errors_are_packed(record: RunRecord) -> None:
    unpacked = unpack_errors(record.errors["test"])
    assert [unpacked[0], unpacked[1]] == [0.0, 1.5]
    assert len(unpacked) == 3
