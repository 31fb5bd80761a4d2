"""From decoded text to predictions.jsonl, and finished runs that are restored and decoded again."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from ntl.config import UserError, compose, run_id
from ntl.data.dataset import dataset_named
from ntl.data.prepared import Prepared
from ntl.decoding import point, predictions
from ntl.decoding.batches import Answer
from ntl.decoding.checks import EXTRA_TOKENS, check_lengths, max_new_tokens
from ntl.decoding.extra import decode_extra
from ntl.decoding.likelihood import answer_bits
from ntl.decoding.predictions import decode_splits
from ntl.decoding.predictor import restore
from ntl.evaluation import read_predictions
from ntl.launch.plan import Run, to_make
from ntl.results import read_record
from ntl.runs.parts import RunParts
from ntl.training.train import train


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the decoder was called with. It says 1 for every example of even place, and nothing for the others."""
    seen: list[dict[str, Any]] = []

    def decode(config: Any, *, progress: Any, **arguments: Any) -> list[Answer]:
        seen.append(arguments)
        progress(len(arguments["examples"]))
        # The tokens are the label's own, the end left out.
        labels = [example["answer_ids"].tolist()[:-1] for example in arguments["examples"]]
        return [Answer("1" if index % 2 == 0 else "", label) for index, label in enumerate(labels)]

    monkeypatch.setattr(predictions, "decode", decode)
    return seen


def test_every_example_with_what_is_known_of_it(parts, calls, tmp_path: Path) -> None:
    made = parts("decoding.batch_size=7")
    scores = decode_splits(made, ["test"], tmp_path / "predictions.jsonl")
    header, lines = read_predictions(tmp_path / "predictions.jsonl")
    rows = made.rows("test")
    assert lines == [
        {
            "split": "test",
            "id": row["id"],
            "answer": row["answer"],
            "prediction": "1" if index % 2 == 0 else "",
            "truth": made.dataset.truth(row["question"]),
        }
        for index, row in enumerate(rows)
    ]
    assert (header["dataset"], header["metrics"], header["decoding"]["batch_size"]) == ("noisy_numbers", "number", 7)
    # One more for the end token. The length comes from the training answers.
    assert max_new_tokens(made) == longest(made, "train", "answer") + 1 + EXTRA_TOKENS == calls[0]["max_new_tokens"]
    assert max_new_tokens(parts("decoding.max_new_tokens=3")) == 3
    assert scores.metrics["test/unparsable"] == 0.5
    assert scores.metrics["test/accuracy"] == sum(int(row["answer"]) == 1 for row in list(rows)[::2]) / 30


def test_decodings_by_number_share_their_searches(parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where their batches differ; what is searched in another way is searched anew."""
    search, prompts = point.read_numbers, []

    def counted(model: Any, inputs: Any, *given: Any, **limits: Any) -> Any:
        prompts.append(len(inputs["input_ids"]))
        return search(model, inputs, *given, **limits)

    monkeypatch.setattr(point, "read_numbers", counted)
    made = parts("decoding=median", "extra_decodings=points", "decoding.batch_size=7")
    total, searches, extra = len(made.rows("test")), {}, made.config.extra_decodings
    own = decode_splits(made, ["test"], tmp_path / "own.jsonl", searches=searches)
    found, errors = decode_extra(made, extra, tmp_path, searches)
    total += len(made.rows("validation"))  # which all read, too
    assert sum(prompts) == total
    assert found["test/mae@median"] == own.metrics["test/mae"]
    assert found["validation/mae@median"] == found["validation/mae"]
    assert errors["test@median"].mean() == pytest.approx(own.metrics["test/mae"])
    assert {*errors} == {f"{split}{at}" for split in ("test", "validation") for at in ("@median", "@expectation")} | {
        "validation"
    }
    total = len(made.rows("test"))
    prompts.clear()
    for name in ("expectation", "median"):
        decode_splits(made, ["test"], alone := tmp_path / f"{name}.jsonl", extra[name])
        assert read_predictions(alone) == read_predictions(tmp_path / predictions.predictions_name(extra[name]))
    assert sum(prompts) == 2 * total
    extra["median"].num_beams = 3
    decode_splits(made, ["test"], alone, extra["median"], searches)
    assert sum(prompts) == 3 * total


def test_bits_of_the_right_answer(parts) -> None:
    """-log2 of its tokens' probabilities, one by one, with the end token; of validation, of an evaluation's rows."""
    made = parts("trainer.eval_rows=5", "trainer.eval_batch_size=4")
    found = answer_bits(made, {split: predictions.decoded_examples(made, split) for split in ("validation", "test")})
    for split, count in (("validation", 5), ("test", len(made.rows("test")))):
        bits = []
        for index in range(count):
            example, total = made.encoded(split)[index], 0.0
            ids = example["question_ids"].tolist()
            for token in example["answer_ids"].tolist():
                with torch.no_grad():
                    logits = made.model(torch.tensor([ids])).logits[0, -1].double()
                total -= float(logits.log_softmax(-1)[token]) / math.log(2)
                ids = [*ids, token]
            assert token == made.tokenizer.eos_token_id
            bits.append(total)
        assert found[f"{split}/bits"] == pytest.approx(fmean(bits), rel=1e-5)
        assert found[f"{split}/probability"] == pytest.approx(fmean(2**-each for each in bits), rel=1e-5)


def longest(parts: RunParts, split: str, part: str) -> int:
    """Tokens, without an end token."""
    return max(len(parts.tokenizer.tokenize(row[part])) for row in parts.rows(split))


def test_a_model_with_too_few_positions_is_told_before_training(parts) -> None:
    """The longest test question and what may be generated; the last token is not read."""
    made = parts()
    needed = longest(made, "test", "question") + max_new_tokens(made) - 1
    check_lengths(parts(f"model.n_positions={needed}"))
    with pytest.raises(UserError, match=rf"reads {needed - 1} tokens, and noisy_numbers test needs {needed}"):
        check_lengths(parts(f"model.n_positions={needed - 1}"))
    with pytest.raises(UserError, match="noisy_numbers test needs"):  # also for another decoding beside it
        check_lengths(
            parts(
                f"model.n_positions={needed}",
                "extra_decodings=median",
                f"extra_decodings.median.max_new_tokens={needed}",
            )
        )


def test_a_window_that_drafts_do_not_fit_into_is_told_before_training(parts) -> None:
    made = parts("objective=mtp", "model.n_layer=2", "decoding=speculative")
    needed = longest(made, "test", "question") + max_new_tokens(made)
    made.model.config.sliding_window = needed
    check_lengths(made)
    made.model.config.sliding_window -= 1
    with pytest.raises(UserError, match=rf"attends to the last {needed - 1} tokens, and .* have up to {needed};"):
        check_lengths(made)


@pytest.mark.parametrize("how", ["decoding=expectation", "extra_decodings=median"])
def test_a_model_without_the_cache_of_a_decoding_is_told_before_training(how: str, settings) -> None:
    """Also one of random weights."""
    words = [word for word in settings() if not word.startswith("model.")]
    config = compose([*words, "model=qwen2_tiny", "model.architecture=mamba", how])
    config.model.settings = {"hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    with pytest.raises(UserError, match="mamba has no cache of keys and values, which it needs; use decoding=greedy"):
        train(config)
    assert not (Path(config.output_dir) / run_id(config)).exists()


EXTRA = ("extra_decodings=expectation", "extra_decodings.expectation.num_beams=20")


@pytest.mark.slow
def test_a_finished_run_is_read_again_not_trained_again(
    finished: Path, small, settings, without_times, caplog, second_rank
) -> None:
    run = Run.of([*settings(*EXTRA), f"output_dir={finished.parent}"])
    assert [each.id for each in to_make([run])] == [finished.name]
    weights = {path: path.read_bytes() for path in finished.glob("checkpoints/*/model.safetensors")}
    with second_rank():  # the first one decodes for all
        before = (finished / "record.json").read_bytes()
        assert train(small(*EXTRA)) == finished / "record.json"
        assert (finished / "record.json").read_bytes() == before
    assert train(small(*EXTRA)) == finished / "record.json"
    printed = caplog.text
    assert "decoding it also by expectation" in printed
    assert "test MAE from greedy" in " ".join(printed.split())  # as a run that had this reading from its start
    assert {path: path.read_bytes() for path in weights} == weights
    both = train(small(*EXTRA, f"output_dir={finished.parent / 'both'}"))
    assert without_times(finished / "record.json") == without_times(both)
    assert to_make([run]) == []
    assert "finished already" not in caplog.text
    train(small(*EXTRA))
    assert "finished already" in caplog.text


def test_a_reading_is_of_the_weights_that_the_record_scores(finished: Path, small) -> None:
    (finished / "checkpoints" / "checkpoint-12" / "model.safetensors").write_bytes(b"cut")
    before = (finished / "record.json").read_bytes()
    with pytest.raises(UserError, match="its record is of step 12, and the newest whole checkpoint is checkpoint-6"):
        train(small(*EXTRA))
    assert (finished / "record.json").read_bytes() == before


def test_the_run_folder_is_enough(finished: Path, tmp_path: Path) -> None:
    """Moved, without the cache that its tokenizer was trained into, and with a token that only its folder knows."""
    moved = finished.rename(tmp_path / "elsewhere")
    tokenizer = AutoTokenizer.from_pretrained(moved / "tokenizer")
    tokenizer.add_tokens(["marked"])
    tokenizer.save_pretrained(moved / "tokenizer")
    restored, _ = restore(moved, [f"data_dir={tmp_path / 'no-cache'}"])
    assert "marked" in restored.tokenizer.get_vocab()
    assert not (tmp_path / "no-cache" / ".tokenizers").exists()


FEW = ["dataset.validation_rows=4", "dataset.test_rows=4", "trainer.max_steps=2", "trainer.warmup_steps=1"]
FEW += ["trainer.batch_size=4", "trainer.save_steps=0", "tracking=none", "device=cpu", "tokenizer.vocab_size=80"]


@pytest.fixture
def folders(tmp_path: Path, packages: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("NTL_DATA_DIR", raising=False)
    packages(tmp_path / "data")
    return [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}"]


def mean_distance(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    return sum(p * q * abs(a - b) for a, p in one for b, q in other)


@pytest.mark.slow
def test_a_distribution_is_scored_against_that_of_the_raters(
    folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    scored: list[tuple[Any, Any, list[float]]] = []
    real = predictions.crps
    monkeypatch.setattr(predictions, "crps", lambda *given: scored.append(given) or real(*given))
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
    assert f"crps {metrics['test/crps']:.4g}" in caplog.text


@pytest.mark.slow
def test_melting_points_have_a_constant_and_ridge_beside_the_model(folders: list[str], caplog) -> None:
    record_path = train(compose(["model=gpt2_tiny_regression", "dataset=melting_points", *FEW, *folders]))
    metrics, (_, lines) = read_record(record_path).metrics, read_predictions(record_path.with_name("predictions.jsonl"))
    errors = [abs(float(line["ridge"]) - float(line["answer"])) for line in lines]
    assert metrics["test/mae:ridge"] == pytest.approx(sum(errors) / len(errors))
    assert {"test/mae", "test/mae:median", "test/mae:mean"} <= metrics.keys()
    assert f"test, linear model: rmse {metrics['test/rmse:ridge']:.4g} (ridge), mae" in caplog.text
