"""Digit-level tokens for every published make of tokenizer, and one line for what cannot have them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
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
