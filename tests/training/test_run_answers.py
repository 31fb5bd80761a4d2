"""Sentences with a number, and several numbers, from a file to the record."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from ntl import NumberTokenLoss
from ntl.config import compose
from ntl.config.folders import CONFIG_DIR
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training.train import train

evaluate = runpy.run_path(str(CONFIG_DIR.parent / "scripts" / "evaluate.py"))["main"]
LEARNED = ["model.n_embd=32", "trainer.max_steps=100", "trainer.lr=1e-2", "trainer.save_steps=50"]
SENTENCE = ["dataset.answers=sentence", "decoding.interval_rows=9"]
NUMBERS = ["dataset.answers=numbers", "trainer.best=mae", "trainer.eval_steps=50"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "words", "scored"),
    [
        ("The total is 122 dollars.", SENTENCE, {"mae": 0, "mae:median": 0, "mae:ridge": 0, "coverage_90": 1}),
        ("128, 0, 4096", [*NUMBERS, "objective=mtp", "decoding=beam"], {"mae": 0, "mae/2": 0, "mae/3": 0}),
        ('{"sum": 6, "product": 8}', [*NUMBERS, "objective.mask.fraction=0.1"], {"mae": 0, "mae/1": 0, "mae/2": 0}),
    ],
)
def test_answers_as_they_come_are_learned_and_scored(
    answer: str, words: list[str], scored: dict[str, float], settings: Callable, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"question": f"{n}?", "answer": answer}) + "\n" for n in range(200)))
    own = [each for each in settings(*LEARNED) if not each.startswith("dataset")]
    record = train(compose([*own, "dataset=file", f"dataset.path={path}", "loss=ntl_was", *words]))
    folder, metrics = record.parent, read_record(record).metrics
    assert {name: metrics[f"test/{name}"] for name in scored} == pytest.approx(scored, abs=1e-3)
    assert metrics["test/accuracy"] == 1
    assert {row["prediction"] for row in read_predictions(folder / "predictions.jsonl")[1]} == {answer}
    loss = NumberTokenLoss.from_tokenizer(AutoTokenizer.from_pretrained(folder / "tokenizer"), shift=True)
    assert loss.coverage([answer]).share == 1
    capsys.readouterr()
    evaluate([str(folder), "--worst", "3", "--json"])
    assert json.loads(capsys.readouterr().out) == {"test": []}
