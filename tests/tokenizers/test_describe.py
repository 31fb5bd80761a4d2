"""Identity and unknown characters."""

import re
from pathlib import Path

from ntl.tokenizers import load_tokenizer, tokenizer_fingerprint, train_tokenizer


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
