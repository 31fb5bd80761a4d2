"""Loading: kinds, pad and end tokens, reloading, what is refused; fingerprints and number tokens."""

import json
import re
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from ntl.config import UserError
from ntl.numbers import NumberVocabulary
from ntl.tokenizers import load_tokenizer, tokenizer_fingerprint, train_tokenizer


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_two_generations_of_saving_keep_the_behaviour(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    tokenizer = request.getfixturevalue(name)
    texts = ["2014", "a -15.67 b", "It cost $1,234.50 .", "mp3  (3/2)x=54", "it 's <extra_id_0>", ""]
    ids, fingerprint = tokenizer(texts).input_ids, tokenizer_fingerprint(tokenizer)
    for generation in ("first", "second"):
        tokenizer.save_pretrained(tmp_path / generation)
        # Beside a model's config AutoTokenizer could take the model's own class, which forgets the pre-tokenizer.
        (tmp_path / generation / "config.json").write_text(json.dumps({"model_type": name}), encoding="utf-8")
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / generation)
        assert tokenizer(texts).input_ids == ids
        assert tokenizer.decode(ids[2], skip_special_tokens=True) == texts[2]
    assert tokenizer_fingerprint(load_tokenizer(tmp_path / "second", "digit")) == fingerprint


@pytest.mark.parametrize("fixture", ["spiece_folder", "bpe_folder"])
def test_digits_are_split_only_where_asked_and_stay_so(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str
) -> None:
    stock = request.getfixturevalue(fixture)
    default, digit = load_tokenizer(stock, "default"), load_tokenizer(stock, "digit")
    assert default.tokenize("x 12")[-1] in ("12", "▁12", "Ġ12")
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
    for source in ("nothing", str(tmp_path / "missing"), "a/b/c", "../b", ""):
        with pytest.raises(UserError):
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


@pytest.mark.parametrize("digits_only", [True, False])
def test_rt_has_the_digits_of_its_tokens_at_every_place_alone(spiece_folder: Path, digits_only: bool) -> None:
    tokenizer = load_tokenizer(spiece_folder, "rt")
    found = NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only)
    assert len(found.values) == len(tokenizer)
    assert found.token_ids.tolist() == list(range(len(tokenizer) - 320, len(tokenizer)))
    assert found.token_values.tolist() == list(range(10)) * 32
    assert len(NumberVocabulary.from_tokenizer(tokenizer, vocab_size=len(tokenizer) + 5).values) == len(tokenizer) + 5
    with pytest.raises(ValueError, match="does not hold the tokenizer's largest token id"):
        NumberVocabulary.from_tokenizer(tokenizer, vocab_size=len(tokenizer) - 1)
