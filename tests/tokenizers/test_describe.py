"""Identity and unknown characters."""

import re
from pathlib import Path

from ntl.tokenizers import count_unknown, load_tokenizer, tokenizer_fingerprint, train_tokenizer


def test_the_fingerprint_is_of_the_behaviour(tmp_path: Path) -> None:
    first = train_tokenizer(["one 1", "two 2"], tmp_path / "first")
    reloaded = load_tokenizer(tmp_path / "first")
    default = load_tokenizer(tmp_path / "first", "default")
    other = train_tokenizer(["one 1", "three 3"], tmp_path / "other")
    prints = [tokenizer_fingerprint(tokenizer) for tokenizer in (first, reloaded, default, other)]
    assert re.fullmatch("[0-9a-f]{64}", prints[0])
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_padding_and_truncation_of_a_call_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["one 1", "two 2"], tmp_path / "saved")
    before = tokenizer_fingerprint(tokenizer)
    tokenizer(["one 1", "two"], padding="max_length", truncation=True, max_length=7)
    assert tokenizer.backend_tokenizer.padding is not None
    assert tokenizer_fingerprint(tokenizer) == before


def test_texts_with_an_unknown_character_are_counted_once_each(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["abc 1"], tmp_path / "saved")
    assert count_unknown(tokenizer, ["abc", "a z b z", "", "é", "1.2"]) == 2
    assert count_unknown(tokenizer, iter([])) == 0


def test_a_byte_level_tokenizer_has_no_unknown_text(bpe_folder: Path) -> None:
    tokenizer = load_tokenizer(bpe_folder)
    assert tokenizer.unk_token_id is None
    assert count_unknown(tokenizer, ["é ⁄ \u0663 ☃", "<|endoftext|>"]) == 0
