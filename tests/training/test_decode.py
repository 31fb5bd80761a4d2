"""From decoded text to predictions.jsonl, and finished runs that are restored and decoded again."""

import json
import shutil
from itertools import groupby
from pathlib import Path
from statistics import mean, median_low
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from ntl.config import UserError, compose
from ntl.config.model import T5Config
from ntl.decoding.batches import Answer
from ntl.evaluation import read_predictions
from ntl.launch.plan import plan_runs
from ntl.results import read_record
from ntl.system.errors import Busy
from ntl.training import decode as module
from ntl.training import run
from ntl.training.decode import EXTRA_TOKENS, check_lengths, decode_splits, described, max_new_tokens, restore
from ntl.training.folder import only_one
from ntl.training.parts import RunParts

AS_IT_SAYS = {"name": "model", "_target_": "ntl.decoding.generation.generate_as_the_model_says", "num_beams": 0}


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

    monkeypatch.setattr(module, "decode", decode)
    return seen


def test_every_example_with_what_is_known_of_it(parts, calls, tmp_path: Path) -> None:
    said: list[str] = []
    made = parts("decoding.batch_size=7", say=said.append)
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
    assert header["decoding"]["batch_size"] == 7
    assert (header["dataset"], header["metrics"]) == ("noisy_numbers", "number")
    assert scores.metrics["test/unparsable"] == 0.5
    assert scores.metrics["test/accuracy"] == sum(int(row["answer"]) == 1 for row in rows[::2]) / 30
    assert said[-1] == "decoded test: 30 examples"
    (call,) = calls
    assert call["model"] is made.model
    assert len(call["examples"]) == 30


def test_a_models_own_generation_config_acts_where_it_is_asked_to(settings, finished: Path, tmp_path: Path) -> None:
    """In a folder of weights, as published ones bring it."""
    weights = shutil.copytree(finished / "checkpoints" / "checkpoint-12", tmp_path / "weights")
    model = [f"model.path={weights}", "model.pretrained=true", f"tokenizer.path={finished / 'tokenizer'}"]
    # Shapes are those of the weights.
    words = [word for word in settings(*model) if not word.startswith("model.n_")]
    tokenizer = AutoTokenizer.from_pretrained(finished / "tokenizer")
    others = sorted(set(range(len(tokenizer))) - {tokenizer.convert_tokens_to_ids("7")})
    own = {"suppress_tokens": others, "num_beams": 2, "eos_token_id": 9}

    def decode(*overrides: str) -> tuple[list[str], dict[str, Any], list[str]]:
        said: list[str] = []
        parts = RunParts(compose([*words, *overrides]), said.append)
        decode_splits(parts, ["test"], path := tmp_path / "predictions.jsonl")
        header, lines = read_predictions(path)
        assert header["decoding"] == described(parts.model, parts.config.decoding)
        return [line["prediction"] for line in lines], header["decoding"], said

    greedy, settings, said = decode()
    assert not any("generation config" in line for line in said)
    assert decode("decoding=model")[:2] == (greedy, {**settings, **AS_IT_SAYS, "own": {}})
    (weights / "generation_config.json").write_text(json.dumps(own))
    again, same, told = decode()
    assert (again, same) == (greedy, settings)
    changes = f"num_beams=2, suppress_tokens={others}"
    assert told[-2] == (
        f"decoding=greedy: the model's own generation config has {changes}, which is not used; decoding=model uses it."
    )
    other, settings, told = decode("decoding=model")
    assert (set(other), set(greedy)) == ({"7" * max_new_tokens(RunParts(compose(words), [].append))}, {""})
    assert settings["own"] == {"num_beams": 2, "suppress_tokens": others}
    assert told[-2] == f"decoding=model: the model's own generation config says {changes}."


def test_malformed_numbers_where_the_tokenizer_counts_them(parts, calls, tmp_path: Path, monkeypatch) -> None:
    made = parts()
    monkeypatch.setattr(made.tokenizer, "count_malformed", lambda ids: len(ids) - 1, raising=False)
    scores = decode_splits(made, ["test"], tmp_path / "predictions.jsonl")
    lines = read_predictions(tmp_path / "predictions.jsonl")[1]
    assert all(line["malformed"] >= len(row["answer"]) - 1 for line, row in zip(lines, made.rows("test"), strict=True))
    assert scores.metrics["test/malformed"] == sum(line["malformed"] > 0 for line in lines) / 30


def test_what_a_decoding_says_of_its_answers_is_written(parts, tmp_path: Path, monkeypatch) -> None:
    about = {"covered": 0.5, "sd": 1.0, "quantiles": {"0.5": 1.0}}
    monkeypatch.setattr(module, "decode", lambda config, *, examples, **rest: [Answer("1", [], about)] * len(examples))
    scores = decode_splits(parts(), ["test"], tmp_path / "predictions.jsonl")
    assert all(line.items() >= about.items() for line in read_predictions(tmp_path / "predictions.jsonl")[1])
    assert scores.metrics["test/covered"] == 0.5


def test_constants_are_those_of_the_training_targets(parts, calls, tmp_path: Path) -> None:
    made = parts()
    decode_splits(made, ["validation"], tmp_path / "predictions.jsonl")
    baselines = read_predictions(tmp_path / "predictions.jsonl")[0]["baselines"]
    targets = sorted(int(row["answer"]) for row in made.rows("train"))
    assert float(baselines["mean"]) == pytest.approx(mean(targets))
    assert float(baselines["median"]) == (median_low(targets) + targets[len(targets) // 2]) / 2
    assert targets.count(int(baselines["mode"])) == max(map(targets.count, targets))


def test_splits_and_groups(parts, calls, tmp_path: Path) -> None:
    made = parts(dataset="multiplication")
    decode_splits(made, made.dataset.test_splits, tmp_path / "predictions.jsonl")
    _, lines = read_predictions(tmp_path / "predictions.jsonl")
    assert [split for split, _ in groupby(line["split"] for line in lines)] == ["interpolate", "extrapolate"]
    groups = {line["group"] for line in lines if line["split"] == "extrapolate"}
    assert groups == {"1x4", "2x4", "3x4", "4x1", "4x2", "4x3", "4x4"}
    assert all("truth" not in line for line in lines)
    # Each split begins anew: its first prediction is a "1".
    firsts = {line["split"]: line["prediction"] for line in reversed(lines)}
    assert firsts == {"interpolate": "1", "extrapolate": "1"}


def test_text_has_no_constants(parts, calls, tmp_path: Path, monkeypatch) -> None:
    made = parts()
    monkeypatch.setattr(made.dataset, "metrics", "text", raising=False)
    decode_splits(made, ["test"], tmp_path / "predictions.jsonl")
    header, lines = read_predictions(tmp_path / "predictions.jsonl")
    assert (header["metrics"], header["baselines"]) == ("text", {})
    # The word-start token and two digits of four: the end is missing.
    counts = {(line["tokens_correct"], line["tokens_total"], line["tokens_generated"]) for line in lines}
    assert counts == {(3, 4, 3)}


def test_the_length_comes_from_the_training_answers(parts, calls, tmp_path: Path) -> None:
    made = parts(dataset="multiplication")
    # One more for the end token.
    length = longest(made, "train", "answer") + 1 + EXTRA_TOKENS
    assert max_new_tokens(made) == length
    decode_splits(made, ["validation"], tmp_path / "predictions.jsonl")
    assert calls[0]["max_new_tokens"] == length
    assert max_new_tokens(parts("decoding.max_new_tokens=3")) == 3


def longest(parts: RunParts, split: str, part: str) -> int:
    """Tokens, without an end token."""
    return max(len(parts.tokenizer.tokenize(row[part])) for row in parts.rows(split))


@pytest.mark.parametrize("split", ["test", "train"])
def test_a_model_with_too_few_positions_is_told_before_training(split: str, parts) -> None:
    """The longest test question and what may be generated, or a training example; the last token is not read.

    With one generated token the longest is a training example with its answer.
    """
    words = [] if split == "test" else ["decoding.max_new_tokens=1"]
    made = parts(*words)
    answer = max_new_tokens(made) - 1 if split == "test" else longest(made, "train", "answer")
    needed = longest(made, split, "question") + answer
    check_lengths(parts(*words, f"model.n_positions={needed}"))
    with pytest.raises(UserError, match=rf"reads {needed - 1} tokens, and noisy_numbers {split} needs {needed}"):
        check_lengths(parts(*words, f"model.n_positions={needed - 1}"))


def test_relative_positions_have_no_end(parts) -> None:
    made = parts()
    shape = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    made.config.model = T5Config(name="t5_tiny", pretrained=False, **shape)
    made.model.config.max_position_embeddings = 1
    check_lengths(made)


def test_a_reading_of_some_test_splits(small) -> None:
    numbers = ["dataset.max_digits=2", "dataset.extrapolate_digits=3", "dataset.test_rows_per_cell=3"]
    words = [*numbers, "beside=expectation"]
    config = small(*words, "beside.expectation.splits=[interpolate]", dataset="multiplication")
    metrics = read_record(run(config)).metrics
    assert {name.partition("/")[0] for name in metrics if name.endswith("@expectation")} == {"interpolate"}
    assert {"interpolate/mae", "extrapolate/mae"} < metrics.keys()
    with pytest.raises(UserError, match=r"expectation, splits: multiplication has no test split 'interplate'; choose"):
        run(small(*words, "beside.expectation.splits=[interplate]", "seed=2", dataset="multiplication"))


BESIDE = ("beside=expectation", "beside.expectation.num_beams=20")


def test_a_run_keeps_the_scores_of_both_readings(finished: Path, small) -> None:
    config = small(*BESIDE, f"output_dir={finished.parent / 'both'}")
    record = read_record(run(config))
    plain = read_record(finished / "record.json")
    added = {name for name in record.metrics if name not in plain.metrics}
    assert added >= {"test/mae@expectation", "test/rmse_truth@expectation", "test/covered@expectation"}
    assert all(name.endswith("@expectation") for name in added)
    assert {name: record.metrics[name] for name in plain.metrics} == plain.metrics
    assert record.metrics["test/mae@expectation"] != record.metrics["test/mae"]
    assert record.predictions_sha256 == plain.predictions_sha256
    assert list(record.config["beside"]) == ["expectation"]


@pytest.mark.slow
def test_a_finished_run_is_read_again_not_trained_again(finished: Path, small, settings, without_times, capsys) -> None:
    todo, have = plan_runs([settings(*BESIDE)], finished.parent)
    assert [each.id for each in todo] == [finished.name]
    assert have == []
    weights = {path: path.read_bytes() for path in finished.glob("checkpoints/*/model.safetensors")}
    assert run(small(*BESIDE)) == finished / "record.json"
    assert "decoding it also by expectation" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in weights} == weights
    both = run(small(*BESIDE, f"output_dir={finished.parent / 'both'}"))
    assert without_times(finished / "record.json") == without_times(both)
    assert plan_runs([settings(*BESIDE)], finished.parent)[0] == []
    assert "finished already" not in capsys.readouterr().out
    run(small(*BESIDE))
    assert "finished already" in capsys.readouterr().out


def test_without_a_checkpoint_it_says_so(finished: Path, small) -> None:
    shutil.rmtree(finished / "checkpoints")
    before = (finished / "record.json").read_bytes()
    with pytest.raises(UserError, match="no checkpoint"):
        run(small(*BESIDE))
    assert (finished / "record.json").read_bytes() == before


def test_a_reading_is_of_the_weights_that_the_record_scores(finished: Path, small) -> None:
    (finished / "checkpoints" / "checkpoint-12" / "model.safetensors").write_bytes(b"cut")
    before = (finished / "record.json").read_bytes()
    with pytest.raises(UserError, match="its record is of step 12, and the newest whole checkpoint is checkpoint-6"):
        run(small(*BESIDE))
    assert (finished / "record.json").read_bytes() == before


def test_a_run_that_another_process_is_at_is_left_to_it(finished: Path, small) -> None:
    """While that one reads it, and before it is finished; a finished one needs no lock."""
    with only_one(finished):
        assert run(small()) == finished / "record.json"
        with pytest.raises(Busy, match="another process is working on this run"):
            run(small(*BESIDE))
        (finished / "record.json").unlink()
        with pytest.raises(Busy, match="another process is working on this run"):
            run(small())


@pytest.mark.slow
def test_of_two_readings_at_once_none_is_lost(finished: Path, settings, command, beside_a_decoding) -> None:
    first, second = (
        settings(f"beside={name}", f"beside.{name}.num_beams=20", f"beside.{name}.batch_size=1")
        for name in ("expectation", "median")
    )
    refused = beside_a_decoding(finished, first, lambda: command("train.py", *second))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "another process is working on this run" in refused.stderr
    added = command("train.py", *second)
    assert added.returncode == 0, added.stderr
    record = read_record(finished / "record.json")
    assert sorted(record.config["beside"]) == ["expectation", "median"]
    assert {"test/covered@expectation", "test/covered@median"} <= record.metrics.keys()


def test_its_weights_tokenizer_and_data(finished: Path) -> None:
    parts, checkpoint = restore(finished, ["device=cpu"])
    assert checkpoint == finished / "checkpoints" / "checkpoint-12"
    stored = load_file(checkpoint / "model.safetensors")
    weights = parts.model.state_dict()
    assert stored
    assert all(torch.equal(weights[name], tensor) for name, tensor in stored.items())
    vocab = json.loads((finished / "tokenizer" / "tokenizer.json").read_text())["model"]["vocab"]
    assert parts.tokenizer.get_vocab() == {piece: index for index, (piece, _) in enumerate(vocab)}
    assert len(parts.rows("test")) == 30


def test_the_run_folder_is_enough(finished: Path, tmp_path: Path) -> None:
    """Moved, without the cache that its tokenizer was trained into, and with a token that only its folder knows."""
    moved = finished.rename(tmp_path / "elsewhere")
    tokenizer = AutoTokenizer.from_pretrained(moved / "tokenizer")
    tokenizer.add_tokens(["marked"])
    tokenizer.save_pretrained(moved / "tokenizer")
    restored, _ = restore(moved, [f"data_dir={tmp_path / 'no-cache'}"])
    assert "marked" in restored.tokenizer.get_vocab()
    assert not (tmp_path / "no-cache" / ".tokenizers").exists()


def test_a_damaged_checkpoint_is_passed_over(finished: Path) -> None:
    (finished / "checkpoints" / "checkpoint-12" / "model.safetensors").write_bytes(b"cut")
    assert restore(finished)[1].name == "checkpoint-6"


def test_without_a_whole_checkpoint_it_is_one_line(finished: Path) -> None:
    for checkpoint in (finished / "checkpoints").iterdir():
        (checkpoint / "manifest.json").unlink()
    with pytest.raises(UserError, match="2 damaged checkpoints; train it again"):
        restore(finished)
    shutil.rmtree(finished / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint; train it again"):
        restore(finished)
    with pytest.raises(UserError, match=r"config\.yaml: not found"):
        restore(finished.parent)  # no run


def test_only_the_reading_may_change(finished: Path) -> None:
    parts, _ = restore(finished, ["decoding=beam", "decoding.num_beams=3"])
    assert (parts.config.decoding.name, parts.config.decoding.num_beams) == ("beam", 3)
    with pytest.raises(UserError, match="loss=ce"):
        restore(finished, ["loss=ce"])
