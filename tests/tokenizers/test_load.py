"""Loading: kinds, pad and end tokens, reloading, what is refused; fingerprints and number tokens."""

import json
import re
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer, tokenizer_fingerprint, train_tokenizer


@pytest.mark.parametrize("fixture", ["spiece_folder", "bpe_folder"])
def test_digits_are_split_only_where_asked_and_stay_so(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str
) -> None:
    stock = request.getfixturevalue(fixture)
    default, digit = load_tokenizer(stock, "default"), load_tokenizer(stock, "digit")
    assert default.tokenize("x 12")[-1] in ("12", "▁12", "Ġ12")
    assert len(default) == 260 or default.convert_tokens_to_ids("<extra_id_0>") == len(default) - 1
    assert digit.tokenize("x 12")[-2:] == ["1", "2"]
    for saved in (default, digit):
        saved.save_pretrained(tmp_path / "saved")
        for kind, fresh in (("default", saved), ("digit", digit)):
            reloaded = load_tokenizer(tmp_path / "saved", kind)
            assert tokenizer_fingerprint(reloaded) == tokenizer_fingerprint(fresh)
            assert reloaded.special_tokens_map == fresh.special_tokens_map


def test_a_vocabulary_without_bare_digits_cannot_be_digit_level(bpe_folder: Path) -> None:
    vocab = json.loads((bpe_folder / "vocab.json").read_text(encoding="utf-8"))
    vocab["%%"] = vocab.pop("7")
    (bpe_folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (bpe_folder / "merges.txt").write_text("1 2\nĠ 12\nh e\n% %\n", encoding="utf-8")
    load_tokenizer(bpe_folder, "default")
    with pytest.raises(UserError, match="no token of its own for 7: it cannot be digit-level, use tokenizer=default"):
        load_tokenizer(bpe_folder, "digit")


def test_an_unknown_kind_names_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'digits': choose one of default, digit, rt, xval\. Did you mean 'digit'\?"):
        load_tokenizer(tmp_path, "digits")


def test_a_source_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(b"x")
    with pytest.raises(UserError, match="is a file: give the folder"):
        load_tokenizer(tmp_path / "spiece.model")
    for source in ("nothing", str(tmp_path / "missing"), "a/b/c"):
        with pytest.raises(UserError, match="is neither a folder nor a hub id owner/name"):
            load_tokenizer(source)


def test_the_fingerprint_is_of_the_behaviour(tmp_path: Path) -> None:
    first = train_tokenizer(["one 1", "two 2"], tmp_path / "first")
    reloaded = load_tokenizer(tmp_path / "first")
    default = train_tokenizer(["one 1", "two 2"], tmp_path / "default", kind="default")
    other = train_tokenizer(["one 1", "three 3"], tmp_path / "other")
    prints = [tokenizer_fingerprint(tokenizer) for tokenizer in (first, reloaded, default, other)]
    assert re.fullmatch("[0-9a-f]{64}", prints[0])
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    first(["one 1", "two"], padding="max_length", truncation=True, max_length=7)
    assert first.backend_tokenizer.padding is not None
    assert tokenizer_fingerprint(first) == prints[0]
