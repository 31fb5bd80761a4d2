"""Language modelling on plain text: whole runs on a corpus of a hundred sentences."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import Config, UserError, compose
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training.parts import RunParts
from ntl.training.predictor import of_run, predict, restore
from ntl.training.train import train


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 documents of one to three lines, with numbers in them."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    lines = [
        [f"Day {day}: {day % 7} of {number} ships came.", "None left."][: 1 + day % 2]
        for day in range(100)
        for number in (day, 3, 17)
    ]
    path.write_text("\n\n".join("\n".join(document) for document in lines))
    return path


@pytest.fixture
def text(settings: Callable[..., list[str]], corpus: Path) -> Callable[..., Config]:
    """The config of a run of a second on the corpus."""

    def make(*overrides: str) -> Config:
        own = [each for each in settings() if not each.startswith("dataset")]
        return compose([*own, "dataset=text", f"dataset.path={corpus}", "trainer.max_input_length=24", *overrides])

    return make


@pytest.mark.slow
def test_an_epoch_is_all_blocks(text) -> None:
    config = text()
    config.trainer.epochs = 1
    record = read_record(train(config))
    blocks = len(RunParts(text(), print).encoded("train"))
    assert record.data["rows"]["train"] != blocks
    assert record.examples_seen == blocks


@pytest.mark.slow
def test_from_the_file_to_the_record(text, corpus: Path) -> None:
    config = text()
    path = train(config)
    record = read_record(path)
    assert (record.config["decoding"]["name"], record.steps) == ("likelihood", 12)
    assert sum(record.data["rows"].values()) == 300
    metrics: Any = record.metrics
    assert metrics["test/perplexity"] == pytest.approx(math.exp(metrics["test/ce"]))
    assert metrics["test/count"] == record.data["rows"]["test"]
    assert 0 <= metrics["test/digit_accuracy"] <= 1
    header, rows = read_predictions(path.with_name("predictions.jsonl"))
    assert [row["id"] for row in rows] == [f"test/{number:05d}" for number in range(len(rows))]
    parts, _ = restore(path.parent, say=lambda line: None)
    assert header["bytes"] == {"test": sum(len(row["answer"].encode()) for row in parts.rows("test"))}
    # Decoded again, the same file.
    before = path.with_name("predictions.jsonl").read_bytes()
    assert predict(path.parent, ["decoding=likelihood"], say=lambda line: None).read_bytes() == before
    with pytest.raises(UserError, match="this run learned plain text, without questions"):
        of_run(path.parent)
