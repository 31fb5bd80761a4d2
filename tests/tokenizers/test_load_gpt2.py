"""GPT-2's segmentation, on its real files."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast

Tokenizer = PreTrainedTokenizerFast
HAS_DIGIT = re.compile("[0-9]")


@pytest.mark.data
def test_gpt2_single_digits(gpt2: Tokenizer, gpt2_default: Tokenizer) -> None:
    assert gpt2.tokenize(" 12345") == ["Ġ", "1", "2", "3", "4", "5"]
    assert gpt2_default.tokenize(" 12345") == ["Ġ123", "45"]
    assert gpt2.convert_tokens_to_ids(list("0123456789")) == list(range(15, 25))
    assert gpt2("²\u0663").input_ids == gpt2_default("²\u0663").input_ids


@pytest.mark.data
def test_gpt2_gets_a_pad_token_behind_its_vocabulary_and_appends_nothing(
    gpt2: Tokenizer, gpt2_default: Tokenizer
) -> None:
    for tokenizer in (gpt2, gpt2_default):
        assert (tokenizer.pad_token, tokenizer.pad_token_id, len(tokenizer)) == ("<|pad|>", 50257, 50258)
        assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (50256, 50256)
        assert tokenizer("Hello world").input_ids == [15496, 995]
        assert tokenizer("").input_ids == []


@pytest.mark.data
def test_gpt2_digit_free_text_has_the_stock_ids(gpt2: Tokenizer, gpt2_default: Tokenizer, data_root: Path) -> None:
    stock = GPT2Tokenizer.from_pretrained(str(data_root / "tokenizers" / "gpt2"))
    rows = (data_root / "multirc" / "val.jsonl").read_text(encoding="utf-8").split("\n")
    passages = [json.loads(row)["passage"] for row in rows if row]
    texts = [question["question"] for passage in passages for question in passage["questions"]]
    free = [text for text in texts if not HAS_DIGIT.search(text)]
    assert (len(texts), len(free)) == (953, 891)
    assert gpt2_default(texts).input_ids == stock(texts).input_ids
    assert gpt2(free).input_ids == stock(free).input_ids


@pytest.mark.data
@given(text=st.text(st.characters(codec="utf-8"), max_size=60))
@example(" it 's ok . 3 .5 ,\r\n\t  ½ \u0663")
def test_gpt2_any_text_round_trips_exactly(gpt2: Tokenizer, gpt2_default: Tokenizer, text: str) -> None:
    assert gpt2.decode(gpt2(text).input_ids, skip_special_tokens=True) == text
    free = HAS_DIGIT.sub("", text)
    assert gpt2(free).input_ids == gpt2_default(free).input_ids
