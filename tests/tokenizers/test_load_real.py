"""The segmentation of T5, against sentencepiece and the paper's rule, on its real files."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from transformers import PreTrainedTokenizerFast

Real = Callable[..., PreTrainedTokenizerFast]
HAS_DIGIT = re.compile("[0-9]")


@cache
def sentencepiece(file: Path) -> SentencePieceProcessor:
    return SentencePieceProcessor(model_file=str(file))


def cut_pieces(file: Path, text: str) -> list[str]:
    """The segmentation of the paper's own tokenizer: a stock piece that holds a digit becomes its characters."""
    pieces = sentencepiece(file).encode(text, out_type=str)
    return [part for piece in pieces for part in (piece if HAS_DIGIT.search(piece) else [piece])]


PIECES = {
    "-15.67": "▁ - 1 5 . 6 7",
    "1,234.5": "▁ 1 , 2 3 4 . 5",
    "mp3 1st": "▁ mp 3 ▁ 1 s t",
    "5²": "▁ 5 2",
    "５": "▁ 5",
    "\u0663\u0664": "▁ <unk>",
    "": "",
}


@pytest.mark.data
def test_t5_digits_stand_alone_behind_the_word_start(real: Real) -> None:
    t5 = real("t5")
    found = {text: t5.convert_ids_to_tokens(t5(text, add_special_tokens=False).input_ids) for text in PIECES}
    assert found == {text: pieces.split() for text, pieces in PIECES.items()}


@pytest.mark.data
def test_t5_keeps_its_vocabulary(real: Real) -> None:
    t5 = real("t5")
    assert t5.get_vocab() == real("t5", "default").get_vocab()
    assert t5("2014").input_ids == [3, 357, 632, 536, 591, 1]
    assert (len(t5), t5.pad_token_id, t5.eos_token_id, t5.unk_token_id, t5.bos_token) == (32100, 0, 1, 2, None)
    assert t5.convert_tokens_to_ids(list("0123456789")) == [632, 536, 357, 519, 591, 755, 948, 940, 927, 1298]
    assert t5.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [32099, 32000]
    assert t5.decode([32099, 536, 1], skip_special_tokens=True) == "1"


@pytest.mark.data
@given(number=st.decimals(-(10**9), 10**9, places=3) | st.integers(-(10**12), 10**12))
@example("007")
@example("12.")
def test_t5_cuts_numeric_answers_as_the_paper_does(real: Real, data_root: Path, number: object) -> None:
    file = data_root / "tokenizers" / "t5" / "spiece.model"
    for answer in (str(number), format(number, ",") if not isinstance(number, str) else number):
        assert real("t5").tokenize(answer) == cut_pieces(file, answer)
