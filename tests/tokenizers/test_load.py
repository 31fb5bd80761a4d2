"""Loading: files, kinds, pad and end tokens, reloading, what is refused; fingerprints and number tokens."""

import json
import re
from pathlib import Path

import pytest
from sentencepiece import SentencePieceTrainer

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


def test_a_kind_or_a_source_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'digits': choose one of default, digit, rt, xval\. Did you mean 'digit'\?"):
        load_tokenizer(tmp_path, "digits")
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
    first.add_tokens("three")  # noticed, although the last one is kept
    assert tokenizer_fingerprint(first) not in prints


def message(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_without_a_whole_tokenizer(tmp_path: Path, bpe_folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    expected = "expected tokenizer.json, or spiece.model, or vocab.json and merges.txt"
    assert message(tmp_path / "empty") == f"{tmp_path / 'empty'} holds no tokenizer: {expected}"
    (bpe_folder / "merges.txt").unlink()
    assert "(vocab.json alone is not enough)" in message(bpe_folder)


def test_a_broken_file_is_one_line(spiece_folder: Path) -> None:
    """Also a tokenizer.json, which goes before a spiece.model."""
    of_letters = {"sentence_iterator": iter(["a b c"] * 5), "model_prefix": str(spiece_folder / "spiece")}
    SentencePieceTrainer.Train(**of_letters, vocab_size=20, hard_vocab_limit=False, minloglevel=2)
    assert "is no T5 vocabulary" in message(spiece_folder)
    for name, content in (("spiece.model", b"\x0a\xff\x01"), ("tokenizer.json", b"{")):
        path = spiece_folder / name
        path.write_bytes(content)
        assert message(spiece_folder).startswith(f"{spiece_folder}: its tokenizer cannot be read (")
        path.write_bytes(b"version https://git-lfs.github.com")
        assert message(spiece_folder).startswith(f"{path} is a git-lfs pointer, not the file itself: run `git lfs")
