"""Padding, masks and the one shift, by hand; padding on either side gives the same loss."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from given import MAKES

from ntl.data.collate import CausalCollator, MaskedNumberCollator, RegressionCollator, Seq2SeqCollator
from ntl.data.encode import encode_dataset, encode_rows
from ntl.data.weights import TokenTexts, WeightedCollator, matched

PAD, EOS, START = 0, 1, 9


def _example(question: list[int], answer: list[int]) -> dict[str, np.ndarray]:
    return {"question_ids": np.array(question, np.int32), "answer_ids": np.array([*answer, EOS], np.int32)}


EXAMPLES = [_example([5, 6, 7], [3]), _example([5], [2, 4])]


def test_seq2seq_by_hand() -> None:
    batch = {name: ids.tolist() for name, ids in Seq2SeqCollator(PAD, START)(EXAMPLES).items()}
    assert batch == {
        "input_ids": [[5, 6, 7], [5, 0, 0]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "decoder_input_ids": [[9, 3, 0], [9, 2, 4]],
        "labels": [[3, 1, -100], [2, 4, 1]],
    }


def test_causal_by_hand() -> None:
    batch = {name: ids.tolist() for name, ids in CausalCollator(PAD)(EXAMPLES).items()}
    assert batch == {
        "input_ids": [[5, 6, 7, 3], [5, 2, 4, 0]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
        "labels": [[-100, -100, 3, 1], [2, 4, 1, -100]],
    }
    prompts = {name: ids.tolist() for name, ids in CausalCollator(PAD).prompts(EXAMPLES).items()}
    assert prompts == {"input_ids": [[5, 6, 7], [0, 0, 5]], "attention_mask": [[1, 1, 1], [0, 0, 1]]}


END, NUM, MASK, TEXT = 1, 9, 8, 5
Tokens = list[tuple[int, float]]


def _with_values(question: Tokens, answer: Tokens) -> dict[str, np.ndarray]:
    """An example from ids and values; an end token stands behind the answer."""
    example = {}
    for name, tokens in (("question", question), ("answer", [*answer, (END, 1.0)])):
        ids, values = zip(*tokens, strict=True)
        example |= {f"{name}_ids": np.array(ids, dtype=np.uint16), f"{name}_values": np.array(values)}
    return example


# "3 x -7" -> "20"; "x" -> "1/-2" with two numbers.
FIRST = _with_values([(NUM, 3.0), (TEXT, 1.0), (NUM, -7.0)], [(NUM, 20.0)])
SECOND = _with_values([(TEXT, 1.0)], [(NUM, 1.0), (TEXT, 1.0), (NUM, -2.0)])


def ln(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


@pytest.fixture
def masked() -> MaskedNumberCollator:
    return MaskedNumberCollator(PAD, MASK, NUM)


def test_the_last_number_of_the_answer_is_masked(masked: MaskedNumberCollator) -> None:
    batch = masked([FIRST, SECOND, _with_values([(TEXT, 1.0)], [(NUM, 0.0)])])
    expected = [[NUM, TEXT, NUM, MASK, END], [TEXT, NUM, TEXT, MASK, END], [TEXT, MASK, END, PAD, PAD]]
    assert batch["input_ids"].tolist() == expected
    assert batch["number_positions"].tolist() == [3, 3, 1]
    assert batch["labels"].tolist() == [NUM, NUM, NUM]
    assert batch["attention_mask"].tolist() == [[1] * 5, [1] * 5, [1, 1, 1, 0, 0]]
    expected = [[ln(3), 1, ln(-7), 1, 1], [1, ln(1), 1, 1, 1], [1] * 5]
    torch.testing.assert_close(batch["number_values"], torch.tensor(expected))
    torch.testing.assert_close(batch["number_labels"], torch.tensor([ln(20), ln(-2), 0]))
    whole = ("input_ids", "attention_mask", "number_positions", "labels")
    dtypes = dict.fromkeys(whole, torch.int64) | dict.fromkeys(("number_values", "number_labels"), torch.float32)
    assert {name: tensor.dtype for name, tensor in batch.items()} == dtypes


def test_a_regression_reads_the_question_alone() -> None:
    collator = RegressionCollator(PAD)
    targets = [FIRST | {"answer_values": np.array([1.0, -3.25])}, SECOND | {"answer_values": np.array([1, 1, 1, 1e6])}]
    batch = collator(targets)
    assert batch["input_ids"].tolist() == [[NUM, TEXT, NUM], [TEXT, PAD, PAD]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (batch["labels"].tolist(), batch["labels"].dtype) == ([-3.25, 1e6], torch.float32)
    assert set(collator.prompts(targets)) == {"input_ids", "attention_mask"}


def test_the_longest_input(masked: MaskedNumberCollator) -> None:
    about = {"longest_question": 5, "longest_answer": 3, "longest_example": 7}
    assert masked.longest_input(about) == 7
    assert RegressionCollator(PAD).longest_input(about) == 5
    assert CausalCollator(PAD).longest_input(about) == 6  # it never reads the end of the answer


# ---- weights of labels: from a file's column and from messages, in batches, and by a collator of others

YEAR = r"\b(19|20)\d\d\b"


def test_weights_of_a_message_and_of_its_parts(own, tmp_path: Path) -> None:
    parts = [{"text": "It is ", "w": 0}, {"text": "7"}]
    earlier = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "w": 0}]
    asked = {"role": "user", "content": "How much?"}
    rows: list[Any] = [{"messages": [*earlier, asked, {"role": "assistant", "content": parts, "w": 3}], "w": 2}]
    rows += [{"w": 1, "messages": [asked, {"role": "assistant", "content": "7", "w": 4}]}] * 9
    (tmp_path / "other.jsonl").write_text(json.dumps(rows[0]) + "\n")
    given = dict.fromkeys(("validation_path", "test_path"), str(tmp_path / "other.jsonl"))
    train = own(rows, weight="w", answers="text", format="chat", **given)["train"]
    assert {row["answer"]: json.loads(row["weight"]) for row in train} == {"It is 7": [[6, 0.0], [1, 6.0]], "7": 4.0}


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
    (found,) = encode_rows([ROW | {"weight": weight}], TOKENIZER, weighted=True, exclude=YEAR, **HOW)[0]
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
    for copies in ((1, 2), (2, 1)):  # behind the row, or rows of their own, as `MaskedInput` makes them

        def copied(examples: list[dict[str, Any]], copies: tuple[int, int] = copies) -> dict[str, torch.Tensor]:
            return {"labels": collated(examples)["labels"].repeat(copies)}

        with pytest.raises(ValueError, match="no weights for cuts and copies"):
            WeightedCollator(copied, "w")(examples)
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
