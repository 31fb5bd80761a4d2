"""Runs on measured numbers: what stands beside the model's own scores."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import compose
from ntl.data.dataset import dataset_named
from ntl.data.prepared import Prepared
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training import decode
from ntl.training.train import train

FEW = ["dataset.validation_rows=4", "dataset.test_rows=4", "trainer.max_steps=2", "trainer.warmup_steps=1"]
FEW += ["trainer.batch_size=4", "trainer.save_steps=0", "tracking=none", "device=cpu", "tokenizer.vocab_size=80"]


@pytest.fixture
def folders(tmp_path: Path, packages: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("NTL_DATA_DIR", raising=False)
    packages(tmp_path / "data")
    return [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]


def mean_distance(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    return sum(p * q * abs(a - b) for a, p in one for b, q in other)


def test_a_distribution_is_scored_against_that_of_the_raters(
    folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scored: list[tuple[Any, Any, list[float]]] = []
    real = decode.crps
    monkeypatch.setattr(decode, "crps", lambda *given: scored.append(given) or real(*given))
    words = ["model=gpt2_tiny", "dataset=sentiment", "decoding=expectation", "decoding.num_beams=20", *FEW, *folders]
    record_path = train(compose(words))
    metrics, (_, lines) = read_record(record_path).metrics, read_predictions(record_path.with_name("predictions.jsonl"))
    prepared = Prepared(dataset_named("sentiment", validation_rows=4, test_rows=4), tmp_path / "data")
    ratings = [json.loads(row.get("labels", "")) for row in prepared.rows("test")]
    assert [labels for *_, labels in scored] == ratings
    expected = []
    for values, shares, labels in scored:
        x, y = [*zip(values, shares, strict=True)], [(label, 1 / len(labels)) for label in labels]
        assert sum(shares) == pytest.approx(1)
        expected.append(mean_distance(x, y) - mean_distance(x, x) / 2 - mean_distance(y, y) / 2)
    assert [line["crps"] for line in lines] == pytest.approx(expected)
    assert metrics["test/crps"] == pytest.approx(sum(expected) / len(expected))
    assert "distribution" not in lines[0]
    assert f"crps {metrics['test/crps']:.4g}" in capsys.readouterr().out


def test_melting_points_have_a_constant_and_ridge_beside_the_model(
    folders: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    record_path = train(compose(["model=gpt2_tiny_regression", "dataset=melting_points", *FEW, *folders]))
    metrics, (_, lines) = read_record(record_path).metrics, read_predictions(record_path.with_name("predictions.jsonl"))
    errors = [abs(float(line["ridge"]) - float(line["answer"])) for line in lines]
    assert metrics["test/mae:ridge"] == pytest.approx(sum(errors) / len(errors))
    assert {"test/mae", "test/mae:median", "test/mae:mean"} <= metrics.keys()
    assert f"test, linear model: rmse {metrics['test/rmse:ridge']:.4g} (ridge), mae" in capsys.readouterr().out
