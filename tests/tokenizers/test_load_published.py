"""Digit-level tokens for every published make of tokenizer, and one line for what cannot have them."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Sequence, Split, WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.data.encode import needs_space
from ntl.numbers import NumberVocabulary
from ntl.tokenizers import load_tokenizer

TEXT = "abcdefghijklmnopqrstuvwxyz.,-?*=+"
MERGES = ("h e", "t he", "1 2", "3 4", "12 34", "- 1", "1 5", "p 3", "2 0", "6 7")
TEXTS = ["2014", "-15.67", " 12", "mp3 1st", "a 12", "the 12 the", "12 34.12-1", "x  12", "12 ", "67*20=1340", ""]


def bpe(tokens: list[str], merges: tuple[str, ...], **options: Any) -> models.BPE:
    vocab = {token: i for i, token in enumerate([*tokens, *(merge.replace(" ", "") for merge in merges)])}
    pairs: Any = [tuple(merge.split(" ")) for merge in merges]
    return models.BPE(vocab=vocab, merges=pairs, **options)


def of_bytes(prefix: bool) -> Tokenizer:
    backend = Tokenizer(bpe([*sorted(ByteLevel.alphabet()), "</s>"], (*MERGES, "Ġ 1", "Ġ1 2", "Ġ the")))
    backend.pre_tokenizer, backend.decoder = ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()
    return backend


def of_pieces(normalizer: Any, pre_tokenizer: Any, *, strips: bool) -> Tokenizer:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *"▁0123456789", *TEXT]
    merges = (*MERGES, "▁ 1", "▁1 2", "▁ 2", "▁ the")
    backend = Tokenizer(bpe(tokens, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer, backend.pre_tokenizer = normalizer, pre_tokenizer
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    return backend


def t5() -> Tokenizer:
    numbers = [("▁12", -3.0), ("12", -3.0), ("▁the", -3.0), ("34", -3.0), ("▁1", -2.5), ("-1", -2.5), ("▁2", -2.5)]
    scores = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((c, -5.0) for c in "0123456789" + TEXT)]
    backend = Tokenizer(models.Unigram([*scores, *numbers], unk_id=2))
    backend.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace("▁", prepend_scheme="always")])
    backend.decoder = decoders.Metaspace("▁", "always")
    return backend


def word_pieces() -> Tokenizer:
    names = ["[UNK]", "</s>", "12", "the", *"0123456789", *(f"##{digit}" for digit in range(10))]
    backend = Tokenizer(models.WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return backend


def added_number() -> Tokenizer:
    backend = of_bytes(False)
    backend.add_tokens(["2024"])
    return backend


SPACES = normalizers.Replace(" ", "▁")
MAKES: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: of_bytes(False),
    "roberta": lambda: of_bytes(True),
    "llama2": lambda: of_pieces(normalizers.Sequence([normalizers.Prepend("▁"), SPACES]), None, strips=True),
    "mistral": lambda: of_pieces(None, Metaspace("▁", prepend_scheme="first", split=False), strips=True),
    "gemma": lambda: of_pieces(SPACES, Split(" ", "merged_with_previous"), strips=False),
    "t5": t5,
}


def save(backend: Tokenizer, folder: Path, model_type: str = "gpt2") -> Path:
    """Beside the config of a model whose own class must not take over."""
    backend.add_special_tokens(["</s>"])
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("make", "space"), (dict.fromkeys(MAKES, False) | {"gpt2": True, "gemma": True}).items())
def test_every_digit_is_a_number_token_of_its_own_and_all_else_stays(make: str, space: bool, tmp_path: Path) -> None:
    folder = save(MAKES[make](), tmp_path, {"llama2": "llama"}.get(make, make))
    digit, stock = load_tokenizer(folder, "digit"), load_tokenizer(folder, "default")

    def ids_of(tokenizer: Any, text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False).input_ids

    for text in TEXTS:
        tokens = digit.convert_ids_to_tokens(ids_of(digit, text))
        assert [token for token in tokens if re.search("[0-9]", token)] == re.findall("[0-9]", text)
        assert digit.decode(ids_of(digit, text)) == stock.decode(ids_of(stock, text))
    assert digit.get_vocab() == stock.get_vocab()
    assert ids_of(digit, "see the other, then") == ids_of(stock, "see the other, then")
    numbers = NumberVocabulary.from_tokenizer(digit)
    assert digit.convert_ids_to_tokens(numbers.token_ids.tolist()) == [f"{int(v)}" for v in numbers.token_values]
    assert sorted(numbers.token_values.tolist()) == list(range(10))
    # A decoder needs the space where no mark begins a text.
    assert needs_space(digit) is space


@pytest.mark.parametrize("made", [word_pieces, added_number])
def test_what_cannot_be_digit_level_is_refused_in_one_line(tmp_path: Path, made: Callable[[], Tokenizer]) -> None:
    source = save(made(), tmp_path)
    load_tokenizer(source, "default")
    with pytest.raises(UserError, match="cannot be digit-level; use tokenizer=default") as caught:
        load_tokenizer(source, "digit")
    assert "\n" not in str(caught.value)


# The segmentation of T5, against sentencepiece and the paper's rule, on its real files.


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
