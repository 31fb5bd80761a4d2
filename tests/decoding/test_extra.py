"""Several ways to read one model: which one a run takes, and what it is told of all."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ntl.config import compose
from ntl.config.identity import plain
from ntl.decoding import NumberReader, extra
from ntl.decoding.extra import choose_decoding
from ntl.decoding.predictions import decode_examples
from ntl.decoding.predictor import restore, run_config
from ntl.evaluation import score_predictions, write_predictions
from ntl.evaluation.scores import Scores
from ntl.numbers import parse_number
from ntl.results import read_record, write_record
from ntl.results.check_record import check_record
from ntl.results.readings import compare_readings, regression_heads
from ntl.system.errors import Diverged, UserError
from ntl.training.train import train


@pytest.mark.parametrize(
    ("answers", "best"),  # of greedy, digit_median, median and expectation to 10 and 20; the median of training is 12
    [
        (("8 22", "8.5 21.5", "9 21", "8 22"), "median"),
        (("9 21", "9 21", "8 22", "9 21"), "greedy"),
        # No number counts as 12: 2 is wrong for 10, and 8 for 20.
        (("- 20", "7 20", "6 20", "6 20"), "greedy"),
        (("10 -", "10 27", "10 29", "10 29"), "digit_median"),
        (("- -", "6 20", "3 20", "3 20"), "digit_median"),
    ],
)
def test_the_least_error_of_validation_is_taken(
    parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[str, ...], best: str
) -> None:
    by_name = dict(zip(("greedy", "digit_median", "median", "expectation"), map(str.split, answers), strict=True))
    own = ["decoding.interval_rows=20", "decoding.interval_scale=log", "decoding.max_new_tokens=9"]
    made = parts("decoding=auto", "extra_decodings=all", *own)

    def decoded(parts: Any, splits: list[str], path: Path, decoding: Any, searches: Any) -> Scores:
        assert splits == ["validation"]
        told = zip(("10", "20"), by_name[decoding.name], strict=True)
        rows = [{"split": "validation", "id": right, "answer": right, "prediction": each} for right, each in told]
        header = {"schema": 1, "dataset": "noisy_numbers", "metrics": "number", "decoding": {}}
        write_predictions(path, header | {"baselines": {"median": "12"}}, rows)
        return score_predictions(path)

    monkeypatch.setattr(extra, "decode_splits", decoded)
    choose_decoding(made, tmp_path, {})
    chosen = made.config.decoding
    # As of the run's own decoding, whichever is chosen.
    assert (chosen.name, chosen.interval_rows, chosen.interval_scale, chosen.max_new_tokens) == (best, 20, "log", 9)
    numbers = [12 if each == "-" else float(each) for each in by_name["greedy"]]
    assert made.validation_errors["greedy"] == pytest.approx(np.abs(np.array(numbers) - [10, 20]).mean())
    assert ("greedy" in made.config.extra_decodings) == (best != "greedy")


@pytest.mark.usefixtures("no_tables")
def test_a_run_is_scored_by_what_it_chose(small, caplog) -> None:
    """The record has all readings, and predict.py reads as the run did."""
    words = ["decoding=auto", "extra_decodings=all", "trainer.max_steps=40"]
    few = ["dataset.validation_rows=10", "dataset.test_rows=10"]
    path = train(small(*words, *few), words)
    record, printed = read_record(path), "\n".join(caplog.messages)
    found = record.model["readings"]
    best = min(found, key=found.__getitem__)
    assert list(found) == ["greedy", "digit_median", "median", "expectation"]
    assert (record.config["decoding"]["name"], run_config(path.parent).decoding.name) == (best, best)
    others = {"digit_median", "median", "expectation", *(["greedy"] if best != "greedy" else [])}
    assert {*record.config["extra_decodings"]} == others
    assert {key for key in record.errors if key.startswith("test")} == {"test", *(f"test@{name}" for name in others)}
    assert printed.count("decoded validation by ") == len(found)
    assert f"decoding=auto: {best.replace('_', ' ')}, by the MAE of validation: greedy " in printed
    table = compare_readings(["loss=ntl_was"], [record])
    assert "\n".join(table) in printed
    median = record.metrics["test/mae@median"]
    assert any(line.split()[:2] == ["median", f"{median:.3f}"] for line in table)
    assert len(printed[printed.index("\ntest: ") :].splitlines()) <= 15
    assert not [line for line in check_record(record, [], path.parent)[0] if "decoding" in line]
    # By the settings of the choice, not by those of the group, also where decoding=auto is asked for.
    chosen = {**plain(compose(["decoding=median"]).decoding), "num_beams": 20, "interval_scale": "log"}
    write_record(path, replace(record, config={**record.config, "decoding": chosen}), overwrite=True)
    for words in ([], ["decoding=auto"]):
        assert plain(run_config(path.parent, words).decoding) == chosen
    assert run_config(path.parent, ["decoding.num_beams=30"]).decoding.num_beams == 30
    assert run_config(path.parent, ["decoding=greedy"]).decoding.name == "greedy"


def test_three_lines_of_python_read_as_the_command_does(parts, train_once: Callable[..., Path]) -> None:
    """Of a folder that plain transformers loads, in batches of 8 and one by one; the mean is the trimmed one."""
    folder = train_once("trainer.max_steps=40")
    made, checkpoint = restore(folder)
    prompts = [row["question"] for row in made.rows("test")][:8]
    examples = [made.encoded("test")[index] for index in range(len(prompts))]
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    readers = [NumberReader(model, AutoTokenizer.from_pretrained(checkpoint), batch_size=size) for size in (8, 1)]
    for how in ("greedy", "digit_median", "median"):
        decoding = compose([f"decoding={how}"]).decoding
        texts = [answer.text for answer in decode_examples(made, decoding, examples, max_new_tokens=32)]
        with catch_warnings(action="ignore"):
            found = [reader.read(prompts, how=how) for reader in readers]
        expected = [math.nan if (number := parse_number(text)) is None else float(number) for text in texts]
        for values in found:
            assert values.dtype == np.float64
            np.testing.assert_array_equal(values, expected)
    distribution = readers[0].distribution(prompts)[0]
    shares = distribution.probabilities / distribution.probabilities.sum()
    assert distribution.mean == pytest.approx(float(distribution.values @ shares))
    # The middle 99%: what lies between 0.005 and 0.995 of the cumulative probability, and no more of either end.
    ends = [*itertools.accumulate(shares, initial=0.0)]
    kept = [max(min(high, 0.995) - max(low, 0.005), 0) for low, high in itertools.pairwise(ends)]
    mean = float(distribution.values @ kept) / 0.99
    assert mean != pytest.approx(distribution.mean, rel=1e-3)
    with catch_warnings(action="ignore"):
        assert np.isfinite(readers[0].read(prompts, how="median")).all()
        assert readers[0].read(prompts, how="mean")[0] == pytest.approx(mean)
    assert readers[1].distribution(prompts)[0].probabilities == pytest.approx(distribution.probabilities, rel=1e-4)
    with pytest.raises(ValueError, match="how='mode': choose from greedy, digit_median, median, mean"):
        readers[0].read(prompts, how="mode")
    for wrong in ("7 by 4", {"question": "7 by 4"}, pd.DataFrame({"question": prompts})):
        with pytest.raises(TypeError, match=f"prompts is a single {type(wrong).__name__}: give a list"):
            readers[0].read(wrong)
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()  # every token alike: an answer is no number
    with pytest.warns(UserWarning, match="8 of 8 answers are not one number: they are NaN"):
        assert np.isnan(readers[0].read(prompts, how="greedy")).all()
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(math.nan)
    for how in ("greedy", "digit_median", "median", "mean"):
        with pytest.raises(Diverged):
            readers[0].read(prompts, how=how)
        assert not model.training
        model.train()
        with pytest.raises(Diverged):
            readers[0].read(prompts, how=how)
        assert model.training
        model.eval()


def test_what_python_cannot_read_is_told(train_once: Callable[..., Path]) -> None:
    """Of prompts nothing is guessed: what is empty, too long, or has a special token is an error of one line."""
    checkpoint = restore(train_once("trainer.max_steps=40"))[1]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)
    reader, room = NumberReader(model, tokenizer, max_new_tokens=4), model.config.max_position_embeddings - 3
    assert reader.read([]).shape == (0,)
    assert reader.distribution([]) == []
    with catch_warnings(action="ignore"):
        assert reader.read(["7" * (room - 1)]).shape == (1,)
    too_long = f"prompt 2 has {room + 1:,} tokens, and the model reads {room:,} beside an answer of 4"
    special = f"prompt 2 has the special token {tokenizer.eos_token}"
    empty = "prompt 2 is empty or no str"
    wrong: Any = (("7" * room, too_long), (" ", empty), (float("nan"), empty), (tokenizer.eos_token, special))
    for prompt, message in wrong:
        for ask in (reader.read, reader.distribution):
            with pytest.raises(ValueError, match=re.escape(message)):
                ask(["7 times 4", prompt])
    with pytest.raises(ValueError, match="GPT2Model has no head over tokens"):
        NumberReader(model.base_model, tokenizer)
    for setting in ("max_new_tokens", "max_input_length", "batch_size", "num_beams"):
        with pytest.raises(ValueError, match="must be at least 1"):
            NumberReader(model, tokenizer, **{setting: 0})
    short = NumberReader(model, tokenizer, max_new_tokens=4, max_input_length=5)
    with pytest.warns(UserWarning, match="1 of 2 texts are truncated; raise max_input_length"):
        short.texts(["7", "17 times 4"], "greedy")
    for ask in (lambda prompts: reader.texts(prompts, "greedy"), reader.distribution):
        with pytest.warns(UserWarning, match="1 of 2 texts have unknown tokens; choose another tokenizer"):
            ask(["7 times 4", "7 \N{SNOWMAN} 4"])
    for how in ("greedy", "digit_median"):
        with pytest.warns(UserWarning, match="2 of 2 answers are cut off after 1 tokens"):
            NumberReader(model, tokenizer, max_new_tokens=1).texts(["7 times 4", "17 times 4"], how)
    with pytest.raises(UserError, match="the tokenizer has none"):
        NumberReader(model, tokenizer, chat=True)
    larger = AutoTokenizer.from_pretrained(checkpoint)
    larger.add_tokens(["apples"])
    with pytest.raises(ValueError, match=f"writes token {len(tokenizer)}, and the model has {len(tokenizer)}: give"):
        NumberReader(model, larger).read(["7 times 4", "7 apples"])
    endless = AutoTokenizer.from_pretrained(checkpoint)
    endless.eos_token = None
    with pytest.raises(ValueError, match="names no end token"):
        NumberReader(model, endless)
    with torch.no_grad():
        model.get_input_embeddings().weight.zero_()  # every token alike: numbers are a part of what it says
    for how in ("median", "mean"):
        with pytest.warns(UserWarning, match=r"1 of 1 answers: numbers hold 0\.\d+ to 0\.\d+ of .* are taken over"):
            reader.read(["7 times 4"], how=how)


def test_regression_heads_of_the_same_start_stand_beside_a_run(tmp_path: Path, train_once: Callable[..., Path]) -> None:
    """Not those of other data, steps or weights; a broken record there is no fault of this run."""
    record = read_record(train_once() / "record.json")
    regression = {**record.config, "model": {**record.config["model"], "head": "regression"}}
    head = replace(record, id="head", config=regression)
    others = [replace(head, steps=1), replace(head, data={}), replace(head, model={"weights": {"sha256": "a"}}), record]
    for number, each in enumerate([head, *others]):
        write_record(tmp_path / str(number) / "record.json", each)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "record.json").write_text("{")
    assert [each.id for each in regression_heads([record], tmp_path)] == ["head"]
