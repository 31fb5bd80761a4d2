"""What of a run is put on record."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ntl.config.identity import recorded
from ntl.results import RunRecord, unpack_errors
from ntl.training.record import build_record, longer_than_train
from ntl.training.tracking import METRICS

GIT = {"commit": "c" * 40, "dirty": True}
TRAINER: Any = SimpleNamespace(
    best=None, args=SimpleNamespace(device=torch.device("cpu"), world_size=3), state=SimpleNamespace(global_step=12)
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
def record(parts, tmp_path: Path) -> RunRecord:
    folder = tmp_path / "some-run"
    folder.mkdir()
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in LINES))
    made = parts("seed=5", "tracking=wandb", "tracking.tags=[a]")
    more: dict[str, Any] = {"overrides": ["seed=5"], "values": recorded(made.config), "made_of": {}, "git": GIT}
    validation = {"eval_ce": 0.5, "eval_ntl": 0.125, "eval_runtime": 9.0}
    return build_record(made, TRAINER, validation, SCORES, folder=folder, seen=(191, 2345), seconds=1.23456, **more)


def test_what_was_computed(record: RunRecord) -> None:
    assert (record.id, record.seed, record.overrides, record.git) == ("some-run", 5, ["seed=5"], GIT)
    assert (record.steps, record.examples_seen, record.tokens_seen) == (12, 191, 2345)
    assert (record.num_devices, record.wall_time_s) == (3, 1.235)
    assert record.metrics == {"validation/ce": 0.5, "validation/ntl": 0.125, "test/accuracy": 0.25, "test/rmse": None}
    assert record.groups == SCORES.groups
    assert (record.correct, record.digit_histograms) == (SCORES.correct, SCORES.digits)
    unpacked = unpack_errors(record.errors["test"])
    assert ([unpacked[0], unpacked[1]], len(unpacked)) == ([0.0, 1.5], 3)
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
    parts: Any = SimpleNamespace(
        dataset=SimpleNamespace(test_splits=("test", "far", "none")), encoded=lambda split: Encoded(tokens[split])
    )
    assert longer_than_train(parts) == {"test": 0.0, "far": 0.3333}


def test_curves_are_the_lines_of_the_metrics_file(record: RunRecord) -> None:
    lines = {name: [line for line in LINES if name in line] for name in record.curves}
    assert {*record.curves, "epoch", "eval_runtime", "step"} == {name for line in LINES for name in line}
    for name, points in record.curves.items():
        assert [tuple(point) for point in points] == [(line["step"], line[name]) for line in lines[name]]


def test_the_parameters_of_a_model_from_scratch(record: RunRecord, parts) -> None:
    rows, width, positions = len(parts().tokenizer), 16, 128
    layers = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    block = 2 * 2 * width + sum((inputs + 1) * outputs for inputs, outputs in layers)
    assert record.model == {"parameters": (rows + positions) * width + block + 2 * width}
