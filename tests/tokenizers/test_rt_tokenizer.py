"""The tokenizer of the Regression Transformer as a user calls it, from tiny files and from T5's."""

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer, tokenizer_fingerprint, train_tokenizer


@pytest.fixture
def rt(tmp_path: Path) -> Any:
    return train_tokenizer(["12 cats and dogs", "What is 12 times 34.5?"] * 20, tmp_path / "trained", kind="rt")


@pytest.fixture(scope="module")
def t5_rt(data_root: Path) -> Any:
    return load_tokenizer(data_root / "tokenizers" / "t5", "rt")


@pytest.mark.data
def test_ids_behind_t5s(t5_rt: Any, t5_default: PreTrainedTokenizerFast) -> None:
    assert len(t5_rt) == 32420
    assert t5_rt.convert_tokens_to_ids(["_0_-12_", "_9_-12_", "_0_-11_", "_9_19_"]) == [32100, 32109, 32110, 32419]
    vocab = t5_rt.get_vocab()
    assert all(vocab[token] == token_id for token, token_id in t5_default.get_vocab().items())


@pytest.mark.data
def test_tokens_of_t5(t5_rt: Any) -> None:
    for text, tokens, written in (
        ("3.5 apples", ["_3_0_", "_5_-1_", "▁apples"], "3.5 apples"),
        ("(3/2)", ["▁(", "_3_0_", "▁", "/", "_2_0_", "▁", ")"], "( 3 / 2 )"),
        ("1,234.5", ["_1_0_", "▁", ",", "_2_2_", "_3_1_", "_4_0_", "_5_-1_"], "1 , 234.5"),
        ("<extra_id_0> 7", ["<extra_id_0>", "_7_0_"], "7"),
        ("is -12", ["▁is", "▁", "-", "_1_1_", "_2_0_"], "is -12"),
    ):
        ids = t5_rt(text).input_ids
        assert t5_rt.convert_ids_to_tokens(ids) == [*tokens, "</s>"]
        assert t5_rt.decode(ids, skip_special_tokens=True) == written


def test_all_ways_to_call_it(rt: Any) -> None:
    ids = rt.convert_tokens_to_ids(["_1_1_", "_2_0_", "▁cats", "</s>"])
    three = [*rt.convert_tokens_to_ids(["_3_0_", "</s>"])]
    assert rt("12 cats").input_ids == rt.encode("12 cats") == ids
    assert rt.tokenize("12 cats") == ["_1_1_", "_2_0_", "▁cats"]
    assert rt(["12 cats", "3"]).input_ids == [ids, three]
    assert rt(("12 cats", "3")).input_ids == [ids, three]
    assert rt(["12", "cats"], is_split_into_words=True).input_ids == ids
    assert rt("12 cats", "3").input_ids == ids + three
    assert rt(text_target="3").input_ids == three
    padded = rt(["12 cats", "3"], padding=True, return_tensors="pt")
    assert padded.input_ids.tolist() == [ids, [*three, rt.pad_token_id, rt.pad_token_id]]
    assert rt.decode(ids) == "12 cats</s>"
    assert rt.decode(padded.input_ids, skip_special_tokens=True) == ["12 cats", "3"]
    assert rt.batch_decode([ids, three], skip_special_tokens=True) == ["12 cats", "3"]
    assert rt.decode(ids[0], skip_special_tokens=True) == "10"
    assert rt.decode([*three, 10_000], skip_special_tokens=True) == "3"
    assert rt("").input_ids == [rt.eos_token_id]
    assert rt("12 cats").input_ids == ids


def test_a_number_ends_at_what_the_tokenizer_does_not_know(rt: Any) -> None:
    ids = rt.convert_tokens_to_ids(["_1_4_", "_4_3_", "<unk>", "_4_-2_"])
    assert rt.decode(ids, skip_special_tokens=True) == "14000 0.04"
    assert rt.decode(ids) == "14000<unk> 0.04"
    assert rt.count_malformed(ids) == 1
    assert rt.count_malformed(rt("12 cats 0.05").input_ids) == 0
    padded = rt.convert_tokens_to_ids(["<pad>", "▁", "_5_1_", "<pad>", "_7_0_", "</s>"])
    assert rt.decode(padded, skip_special_tokens=True) == "50 7"


def test_more_places_are_saved_and_loaded(rt: Any, tmp_path: Path) -> None:
    assert (rt.max_place, rt.reader) == (19, "ntl.tokenizers.rt.read")
    with pytest.raises(UserError, match=r"tokenizer\.max_place=21"):
        rt("1" * 22)
    rt.save_pretrained(tmp_path / "saved")
    more = load_tokenizer(tmp_path / "saved", "rt", max_place=21)
    assert len(more) == len(rt) + 20
    assert rt.get_vocab().items() < more.get_vocab().items()
    more.save_pretrained(tmp_path / "more")
    again = load_tokenizer(tmp_path / "more", "rt")
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(more)
    assert again.special_tokens_map == more.special_tokens_map
    for tokenizer in (more, again):
        assert (tokenizer.max_place, tokenizer.reader) == (21, "ntl.tokenizers.rt.read:21")
        assert tokenizer.decode(tokenizer("1" * 22).input_ids, skip_special_tokens=True) == "1" * 22
