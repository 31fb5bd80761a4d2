"""Weights of labels: from a file's column and from messages, at each token, in batches, and by a collator of others."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from given import MAKES

from ntl.data.collate import CausalCollator, Seq2SeqCollator
from ntl.data.encode import encode_dataset, encode_rows
from ntl.data.weights import TokenTexts, WeightedCollator, matched

Read = Callable[..., list[dict[str, Any]]]
YEAR = r"\b(19|20)\d\d\b"


@pytest.fixture
def read(own) -> Read:
    """What ``dataset=file dataset.weight=w`` prepares for training."""
    return lambda rows, **values: own(rows, **{"weight": "w", "answers": "text", **values})["train"]


def rows_of(*weights: Any) -> list[dict[str, Any]]:
    return [{"question": f"q{n}", "answer": str(n), "w": weights[n % len(weights)]} for n in range(12)]


def said(content: Any, before: Any = 0, **more: Any) -> dict[str, Any]:
    turns = [("user", "Hi"), ("assistant", "Hello"), ("user", "How much?")]
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in turns]
    messages[1]["w"] = before
    return {"messages": [*messages, {"role": "assistant", "content": content, **more}]}


def test_a_column_of_weights(read: Read) -> None:
    assert {row["answer"]: row["weight"] for row in read(rows_of(2, 0.5, "1"))}["1"] == "0.5"
    assert "weight" not in read(rows_of(1), weight="")[0]
    assert len(read([*rows_of(1), dict.fromkeys(("question", "answer", "w"), "")])) == len(read(rows_of(1)))


def test_weights_of_a_message_and_of_its_parts(read: Read, tmp_path: Path) -> None:
    parts = [{"text": "It is ", "w": 0}, {"text": "7"}]
    asked = [{"role": "user", "content": "7?"}, {"role": "assistant", "content": "7", "w": 4}]
    rows = [{**said(parts, w=3), "w": 2}, *({"w": 1, "messages": asked} for _ in range(9))]
    validation = dict.fromkeys(("validation_path", "test_path"), str(tmp_path / "other.jsonl"))
    (tmp_path / "other.jsonl").write_text(json.dumps(rows[0]) + "\n")
    found = {row["answer"]: json.loads(row["weight"]) for row in read(rows, format="chat", **validation)}
    assert found == {"It is 7": [[6, 0.0], [1, 6.0]], "7": 4.0}


# ---- at each token

TOKENIZER = MAKES["smollm2"]()
ROW = {"question": "when?", "answer": "in 1999 it was 120, or 2014", "weight": "2.0"}
DIGITS = {token: digit for digit in "0123456789" for token in [TOKENIZER.get_vocab()[digit]]}
HOW: dict[str, Any] = {"decoder_only": True, "max_length": 99}


def numbers_of(example: dict[str, np.ndarray]) -> list[tuple[str, float]]:
    """The digits of an answer with their weights in the number loss."""
    pairs = zip(example["answer_ids"].tolist(), example["answer_weights"][:, 1].tolist(), strict=True)
    return [(DIGITS[token], weight) for token, weight in pairs if token in DIGITS]


@pytest.mark.parametrize("weight", ["2.0", "[[3, 2.0], [24, 2.0]]"])
def test_numbers_that_a_pattern_matches_have_weight_0_in_the_number_loss(weight: str) -> None:
    (found,) = encode_rows([ROW | {"weight": weight}], TOKENIZER, weighted=True, exclude=YEAR, **HOW)
    assert set(found["answer_weights"][:, 0].tolist()) == {2.0}
    expected = [(digit, 2.0 * (number == "120")) for number in ("1999", "120", "2014") for digit in number]
    assert numbers_of(found) == expected


def test_a_pattern_is_matched_in_text_of_any_bytes() -> None:
    texts = TokenTexts(TOKENIZER)
    ids = TOKENIZER("größe 日本 №7 and 8", add_special_tokens=False).input_ids
    assert b"".join(texts(ids)).decode() == "größe 日本 №7 and 8"
    inside = matched(texts(ids), re.compile("(?<=日本 №)7"))
    assert [DIGITS.get(token) for token, is_in in zip(ids, inside, strict=True) if is_in] == ["7"]


def test_a_special_token_without_a_role_writes_nothing() -> None:
    """Llama 3's ``<|start_header_id|>`` has none, nor has smollm2's ``<|other|>`` here."""
    ids = TOKENIZER("<|other|>7<|end|>").input_ids
    assert TokenTexts(TOKENIZER)(ids) == [b"", b"7", b""]
    exclude: dict[str, Any] = {"exclude_numbers": "^7$", "tokenizer": TOKENIZER}
    weights = WeightedCollator(collated, **exclude)([{"input_ids": ids, "labels": ids}])["loss_weights"]
    assert weights[0].tolist() == [[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]


def test_what_is_on_disk_and_in_a_batch(tmp_path: Path) -> None:
    rows: list[Any] = [ROW, {"question": "q", "answer": "7", "weight": "0.5"}]
    settings = {**HOW, "cache_dir": tmp_path, "key": "k"}
    plain, weighted, excluded = (
        encode_dataset(lambda: rows, TOKENIZER, **settings, **more)
        for more in ({}, {"weighted": True}, {"weighted": True, "exclude": YEAR})
    )
    assert "answer_weights" not in plain[0]
    assert (plain.about.get("excluded"), excluded.about["excluded"]) == (None, 8)
    assert weighted[1]["answer_weights"].tolist() == [0.5] * 3
    assert numbers_of(excluded[1]) == [("7", 0.5)]
    for collate in (CausalCollator(0), Seq2SeqCollator(0, 1)):
        batch = collate([excluded[0], excluded[1]])
        weights, labels = batch["loss_weights"], batch["labels"]
        assert weights.shape == (*labels.shape, 2)
        assert torch.equal(weights[..., 0], torch.tensor([[2.0], [0.5]]) * (labels != -100))
        assert int((weights[..., 1] != weights[..., 0]).sum()) >= 8


# ---- for the trainers of others


def collated(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    width = max(len(each["labels"]) for each in examples)
    return {"labels": torch.tensor([each["labels"] + [-100] * (width - len(each["labels"])) for each in examples])}


def test_a_collator_adds_weights() -> None:
    ids = [TOKENIZER(text, add_special_tokens=False).input_ids for text in ("in 1999 it was 7", "8")]
    examples = [{"input_ids": each, "labels": each, "w": w} for each, w in zip(ids, (2.0, 0.5), strict=True)]
    weights = WeightedCollator(collated, "w")(examples)["loss_weights"]
    assert weights.tolist() == [[2.0] * len(ids[0]), [0.5] * len(ids[1]) + [1.0] * (len(ids[0]) - len(ids[1]))]
    both = WeightedCollator(collated, "w", exclude_numbers=YEAR, tokenizer=TOKENIZER)(examples)["loss_weights"]
    assert torch.equal(both[..., 0], weights)
    found = [
        (DIGITS[token], weight) for token, weight in zip(ids[0], both[0, :, 1].tolist(), strict=True) if token in DIGITS
    ]
    assert found == [("1", 0.0), ("9", 0.0), ("9", 0.0), ("9", 0.0), ("7", 2.0)]

    def left(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return {"labels": collated([{"labels": each["labels"][::-1]} for each in examples])["labels"].flip(1)}

    def joined(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        return {"labels": torch.tensor([[label for each in examples for label in each["labels"]]])}

    assert WeightedCollator(left, "w")(examples)["loss_weights"][1].tolist()[-1:] == [0.5]
    assert WeightedCollator(joined, "w")(examples)["loss_weights"].tolist() == [[2.0] * len(ids[0]) + [0.5]]
    each = [{**example, "w": [1.0, *[3.0] * (len(example["labels"]) - 1)]} for example in examples]
    assert WeightedCollator(collated, "w")(each)["loss_weights"][0].tolist()[:3] == [1.0, 3.0, 3.0]
    for changed, line in (({"w": -1}, "'w' is -1"), ({"w": [1, 2]}, "'w' has 2 weights for 1 labels")):
        with pytest.raises(ValueError, match=line):
            WeightedCollator(collated, "w")([{**examples[1], **changed}])
    with pytest.raises(ValueError, match="no column 'v' of weights: set remove_unused_columns=False"):
        WeightedCollator(collated, "v")(examples)
    with pytest.raises(ValueError, match="give the tokenizer"):
        WeightedCollator(collated, exclude_numbers=YEAR)


@pytest.mark.parametrize("question", ["in 1999", "or 4217", "in the 1999"])
@pytest.mark.parametrize(("answer", "weight"), [("in 4217", 1.0), ("or 1999", 0.0)])
def test_a_pattern_is_matched_in_the_answer_of_an_encoder_decoder(question: str, answer: str, weight: float) -> None:
    """Also where question and answer have one length; the text of a decoder has its question, which it ignores."""
    weigh = WeightedCollator(collated, exclude_numbers=YEAR, tokenizer=TOKENIZER)
    asked, said = (TOKENIZER(text, add_special_tokens=False).input_ids for text in (question, answer))
    found = weigh([{"input_ids": asked, "labels": said}])["loss_weights"][0, :, 1]
    assert [each for each, token in zip(found.tolist(), said, strict=True) if token in DIGITS] == [weight] * 4
    decoder = {"input_ids": [*asked, *said[-4:]], "labels": [*[-100] * len(asked), *said[-4:]]}
    assert weigh([decoder])["loss_weights"][0, -4:, 1].tolist() == [1.0] * 4  # 19994217 is no year
