"""Loading: files, kinds, pad and end tokens, reloading, what is refused; fingerprints and number tokens."""

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
from given import MAKES, save
from huggingface_hub import constants
from huggingface_hub.errors import RemoteEntryNotFoundError
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer, tokenizer_fingerprint, train_tokenizer
from ntl.tokenizers.load import text_backend


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


def test_a_digit_that_is_merged_with_the_space_before_it_is_split(tmp_path: Path) -> None:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(["rated 5 by me"] * 9, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="d").save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path, "default").tokenize("x 5 12")[1:] == ["Ġ5", "Ġ", "1", "2"]
    assert load_tokenizer(tmp_path, "digit").tokenize("x 5 12")[1:] == ["Ġ", "5", "Ġ", "1", "2"]


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


# A given tokenizer stays as it is: its settings, its special tokens, its vocabulary; digits only where asked.


SETTINGS = ("chat_template", "padding_side", "truncation_side", "model_max_length", "clean_up_tokenization_spaces")
SETTINGS += ("special_tokens_map", "all_special_tokens")
ASKED = ["what is 120 times 34?", " 1999", "-3.5 .", "x<|end|>", ""]


def kept(tokenizer: Any) -> dict[str, Any]:
    return {name: getattr(tokenizer, name) for name in SETTINGS} | {"vocab": tokenizer.get_vocab()}


@pytest.fixture(params=MAKES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return save(request.param, tmp_path / request.param)


def test_by_default_it_is_what_transformers_loads(folder: Path) -> None:
    given, ours = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder, "default")
    assert type(ours) is type(given)
    assert kept(ours) == kept(given)
    assert ours(ASKED).input_ids == given(ASKED).input_ids


def test_of_digits_nothing_else_changes_and_a_checkpoint_has_all_of_it(folder: Path, tmp_path: Path) -> None:
    given, digit = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder, "digit")
    assert kept(digit) == kept(given)
    assert digit.tokenize("120")[-3:] == ["1", "2", "0"]
    digit.save_pretrained(tmp_path / "checkpoint")
    again = AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert kept(again) == kept(given)
    assert again(ASKED).input_ids == digit(ASKED).input_ids
    settings = [json.loads((each / "tokenizer_config.json").read_bytes()) for each in (folder, tmp_path / "checkpoint")]
    assert settings[0] == settings[1]
    if given.chat_template:
        messages = [{"role": "user", "content": "7 times 8"}]
        assert again.apply_chat_template(messages) == given.apply_chat_template(messages)


@pytest.mark.parametrize("kind", ["rt", "xval"])
def test_tokens_for_numbers_change_no_other_setting(kind: str, tmp_path: Path) -> None:
    folder = save("smollm2", tmp_path / "given")
    given, ours = AutoTokenizer.from_pretrained(folder), load_tokenizer(folder, kind)
    ours.save_pretrained(tmp_path / "saved")
    for found in (ours, load_tokenizer(tmp_path / "saved", kind)):
        assert [getattr(found, name) for name in SETTINGS[:4]] == [getattr(given, name) for name in SETTINGS[:4]]


@pytest.mark.parametrize("name", [*MAKES, "trained"])
def test_a_special_token_in_a_text_is_text(name: str, tmp_path: Path) -> None:
    """And the ids of all other text are those of the tokenizer."""
    folder = tmp_path / name
    if name == "trained":  # as T5, whose model has ``</s>`` among its pieces
        train_tokenizer(["is it < / s > | p a d e n t x , 1 + 2?", *ASKED] * 9, folder, kind="digit", vocab_size=60)
    tokenizer: Any = load_tokenizer(folder if name == "trained" else save(name, folder), "digit")
    backend, special = text_backend(tokenizer), set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    for token in tokenizer.all_special_tokens:
        ids = backend.encode(f"is{token} it {token}", add_special_tokens=False).ids
        assert not special & {*ids}, token
        assert "".join(tokenizer.decode(ids).split()) == f"is{token}it{token}" or tokenizer.unk_token_id in ids
    for text in (text for text in ASKED if "<" not in text):
        expected = tokenizer(text, add_special_tokens=False).input_ids
        assert backend.encode(text, add_special_tokens=False).ids == expected


def test_one_without_an_end_token_is_one_line(tmp_path: Path) -> None:
    tokenizer = MAKES["llama3"]()
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"names no end token: set eos_token in its tokenizer_config\.json"):
        load_tokenizer(tmp_path)


# Published tokenizers: the cache, the download, and a quick and clear no.


HUB_ID = "owner/name"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put(cache: Path, name: str, content: bytes) -> None:
    """A file in the cache, as huggingface_hub lays it."""
    home, commit = cache / "models--owner--name", "0123456789abcdef0123456789abcdef01234567"
    for folder in (home / "refs", home / "snapshots" / commit):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "refs" / "main").write_text(commit, encoding="utf-8")
    (home / "snapshots" / commit / name).write_bytes(content)


def test_offline_without_a_cached_copy(cache: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_tokenizer(HUB_ID)
    text = str(caught.value)
    assert text.startswith("no tokenizer files for 'owner/name' (not in the local cache, and ")
    remedies = ("HF_HUB_OFFLINE", "tokenizer.path=FOLDER", "hf download owner/name", "HF_HOME", "_tiny")
    assert all(remedy in text for remedy in remedies)
    assert "\n" not in text


def test_a_cached_copy_is_taken_offline(cache: Path, spiece_bytes: bytes) -> None:
    put(cache, "spiece.model", spiece_bytes)
    assert load_tokenizer(HUB_ID).tokenize("x 12")[-2:] == ["1", "2"]


def test_a_download_takes_what_the_repository_has(
    cache: Path, bpe_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(hub_id: str, name: str) -> None:
        if not (bpe_folder / name).exists():
            raise RemoteEntryNotFoundError(
                name, response=httpx.Response(404, request=httpx.Request("GET", "https://x"))
            )
        put(cache, name, (bpe_folder / name).read_bytes())

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    expected = load_tokenizer(bpe_folder)
    assert load_tokenizer(HUB_ID)("x 12").input_ids == expected("x 12").input_ids
    monkeypatch.undo()  # what is cached is taken without the hub
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    assert load_tokenizer(HUB_ID).get_vocab() == expected.get_vocab()


# The tiny tokenizer trained on the text at hand.


PRODUCTS = [f"What is {a} times {b}? {a * b}" for a in range(1, 100, 7) for b in range(1, 100, 9)]


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_ids_begin_as_t5s_do_and_words_stay_whole(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(PRODUCTS, tmp_path / "saved")
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == ["<pad>", "</s>", "<unk>"]
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    assert tokenizer.bos_token is None
    assert not any("extra_id" in token for token in tokenizer.get_vocab())
    assert tokenizer("5").input_ids[-1] == 1
    # The text of a template has whole words, and single digits.
    assert tokenizer.tokenize("What is 50 times 91? 4550") == (
        ["▁What", "▁is", "▁", "5", "0", "▁times", "▁", "9", "1", "?", "▁", "4", "5", "5", "0"]
    )
    assert len(tokenizer) == 28


@pytest.mark.parametrize("kind", ["digit", "default"])
def test_another_order_and_folder_give_identical_files(tmp_path: Path, kind: str) -> None:
    """Also one with a comma in its name, which in sentencepiece divides paths."""
    train_tokenizer(iter(PRODUCTS), tmp_path / "here", kind=kind)
    train_tokenizer(PRODUCTS[::-1], tmp_path / 'a, b "c"' / "there", kind=kind)
    assert contents(tmp_path / "here") == contents(tmp_path / 'a, b "c"' / "there")


def has_unknown(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> bool:
    return any(tokenizer.unk_token_id in ids for ids in tokenizer(texts).input_ids)


@pytest.mark.parametrize("text", ["²", "日本", "x" * 10_000, "▁ ▅ a\tb \0"])
def test_one_short_text_is_enough(tmp_path: Path, text: str) -> None:
    tokenizer = train_tokenizer([text], tmp_path / "saved", vocab_size=32)
    assert set("0123456789-.") <= set(tokenizer.get_vocab())
    kept = text.replace("▁", " ").replace("▅", " ").replace("\0", " ")
    assert not has_unknown(tokenizer, [kept, "0123456789", "-1.5"])
    assert tokenizer.decode(tokenizer(kept).input_ids, skip_special_tokens=True) == folded(kept)


def test_no_text_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no text to train a tokenizer on"):
        train_tokenizer(["", " \n"], tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_replaced_in_one_step_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    train_tokenizer(["one"], tmp_path / "saved")
    train_tokenizer(["two"], tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    assert sorted(contents(tmp_path / "saved")) == ["tokenizer.json", "tokenizer_config.json"]
    assert "w" in load_tokenizer(tmp_path / "saved").get_vocab()
    assert str(tmp_path) not in json.dumps([content.decode() for content in contents(tmp_path / "saved").values()])
