"""One block of lines to ids, by hand and against the tokenizer that a user would call."""

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from ntl.config import UserError
from ntl.data import encode_worker
from ntl.data.encode import PROGRAM, settings_for
from ntl.data.encode_worker import BlockEncoder, Failure, Settings, splits_into_words
from ntl.data.files import Pairs, iterate_members
from ntl.tokenizers import load_tokenizer, train_tokenizer

NUMBER = 14  # [NUM], behind the 14 tokens of ``settings``
READS = {"reader": "ntl.tokenizers.xval.read", "number_token": NUMBER}


def settings(**changes: Any) -> Settings:
    backend = Tokenizer(models.WordLevel({token: i for i, token in enumerate(["?", *"0123456789+= "])}, unk_token="?"))
    backend.add_tokens([AddedToken("[NUM]", normalized=False)])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.enable_padding(length=9)
    backend.enable_truncation(2)
    values = {"end": 99, "unknown": 0, "decoder_only": False, "answer_prefix": "", "max_length": 6, "dtype": "<u2"}
    return Settings(backend.to_str(), **{**values, **changes})


def block(*pairs: tuple[str, str]) -> bytes:
    return b"".join(json.dumps({"id": "x", "question": q, "answer": a}).encode() + b"\n" for q, a in pairs)


def test_by_hand() -> None:
    encoded = BlockEncoder(settings())(block(("1+2=", "3"), ("123456", "x"), ("", "12")))
    questions = [[2, 11, 3, 12, 99], [3, 4, 5, 6, 7, 99], [99]]
    answers = [[4, 99], [0, 99], [2, 3, 99]]
    assert encoded.tokens.tolist() == [i for q, a in zip(questions, answers, strict=True) for i in q + a]
    assert encoded.sizes.tolist() == [5, 2, 6, 2, 1, 3]
    # One question lost its beginning, one answer has an unknown token; longest question, answer and example.
    assert encoded.counters == (1, 1, 6, 3, 8)


def test_a_decoder_s_question_has_no_end_and_its_answer_may_have_a_space() -> None:
    encoded = BlockEncoder(settings(decoder_only=True, answer_prefix=" "))(block(("1=", "2")))
    assert encoded.tokens.tolist() == [2, 12, 13, 3, 99]
    assert encoded.sizes.tolist() == [2, 3]


def test_values_stand_beside_the_numbers_and_one_beside_the_rest() -> None:
    encoded = BlockEncoder(settings(**READS))(block(("1.5 + -20=", "-3"), ("=+", "4 4")))
    questions = [[NUMBER, 13, 11, 13, NUMBER, 12, 99], [12, 11, 99]]
    answers = [[NUMBER, 99], [NUMBER, 13, NUMBER, 99]]
    # Six tokens fit: the first number of the first question is gone, and its value with it.
    questions[0] = questions[0][1:]
    assert encoded.tokens.tolist() == [i for q, a in zip(questions, answers, strict=True) for i in q + a]
    assert encoded.values is not None
    assert encoded.values.tolist() == [1, 1, 1, -20, 1, 1, -3, 1, 1, 1, 1, 4, 1, 4, 1]
    assert encoded.values.dtype == np.float64
    assert encoded.counters[0] == 1


def test_the_token_in_a_text_is_no_number() -> None:
    encoded = BlockEncoder(settings(**READS | {"max_length": 20}))(block(("[NUM]1", "2")))
    assert encoded.values is not None
    places = encoded.tokens == NUMBER
    assert encoded.values[places].tolist() == [1, 2]
    assert encoded.values[~places].tolist() == [1] * int((~places).sum())


def test_a_target_stands_beside_the_end_of_the_answer() -> None:
    encoded = BlockEncoder(settings(keep_target=True))(block(("1+2=", "-1,003.5"), ("=", "2")))
    assert encoded.values is not None
    assert encoded.values.tolist() == [1, 1, 1, 1, 1, *[1] * 8, -1003.5, 1, 1, 1, 2]
    for answer in ("x", "1 2", "", "1e400"):
        with pytest.raises(UserError, match=r"the answer .* of '=' is no number: take another model"):
            BlockEncoder(settings(keep_target=True))(block(("=", answer)))


def test_a_worker_imports_nothing_slow_and_ends_with_its_parent() -> None:
    """A closed connection is what a worker sees of a parent that was killed."""
    ours, theirs = Pipe()
    slow = "sys.exit(bool({'torch', 'transformers', 'hydra', 'omegaconf'} & set(sys.modules)))"
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{PROGRAM}; {slow}", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    with ours:
        ours.send(settings(**READS))
        answers = []
        for lines in (block(("1", "2")), b'{"question":"1"}\n', block(("1", "+"))):
            ours.send_bytes(lines)
            answers.append(ours.recv())
    assert process.wait(60) == 0
    encoded, crashed, refused = answers
    assert (encoded.tokens.tolist(), encoded.tokens.dtype) == ([NUMBER, 99, NUMBER, 99], np.uint16)
    assert (encoded.sizes.tolist(), encoded.counters) == ([2, 2], (0, 0, 2, 2, 4))
    assert encoded.values.tolist() == [1, 1, 2, 1]
    assert crashed == Failure("KeyError: 'answer'", by_user=False)
    assert refused.by_user
    assert refused.text.startswith("the answer '+' of '1' has no number")


def test_numbers_in_tokens_of_their_own(tmp_path: Path) -> None:
    texts = ["What is -12.5 times (3/2)?", "x=1,234.5 and 007", "0.0000000000005 <pad> 1e5"]
    tokenizer = train_tokenizer(texts, tmp_path / "rt", kind="rt")
    encoder = BlockEncoder(settings_for(tokenizer, decoder_only=False, max_length=64))
    encoded = encoder(block(*((text, text) for text in texts)))
    expected = [ids for ids in tokenizer(texts).input_ids for _ in range(2)]
    assert encoded.tokens.tolist() == [token for ids in expected for token in ids]
    assert encoded.values is None
    with pytest.raises(UserError, match="has 21 digits before its point"):
        encoder(block(("1" * 21, "2")))


@pytest.fixture(scope="module", params=["digit", "default"])
def by_words(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BlockEncoder:
    """With a T5-like tokenizer trained here, and a memory of few words."""
    folder = tmp_path_factory.mktemp("tokenizer")
    texts = [f"Solve {a}*x - {b}.5 = -{a * b} for x, please!" for a in range(40) for b in range(40)]
    train_tokenizer(texts, folder, kind=request.param, vocab_size=120)
    tokenizer = load_tokenizer(str(folder), kind=request.param)
    encoder = BlockEncoder(settings_for(tokenizer, decoder_only=False, max_length=64))
    assert encoder.by_words
    return encoder


TEXT = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    st.text(st.sampled_from("Solvex 0123456789.-*=</s>pad\t\u00a0\u2581\u00bd\u00a8\u0301\x00\x7f")),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@given(texts=st.lists(TEXT, max_size=6))
def test_word_by_word_is_the_same(by_words: BlockEncoder, texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_worker, "REMEMBERED_WORDS", 4)
        assert by_words._ids(texts) == by_words._tokenize(texts)
        assert by_words._ids(texts) == by_words._tokenize(texts)


def test_a_tokenizer_that_sees_past_a_word_is_given_the_whole_text() -> None:
    space, always = {"type": "WhitespaceSplit"}, {"type": "Metaspace", "prepend_scheme": "always"}
    fits = {
        "normalizer": {"type": "Precompiled"},
        "pre_tokenizer": {"pretokenizers": [space, always, {"type": "Split"}]},
        "added_tokens": [{"content": "</s>"}],
    }
    assert splits_into_words(fits)
    for change in (
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "ByteLevel"}},
        {"pre_tokenizer": {"pretokenizers": [always]}},
        {"pre_tokenizer": {"pretokenizers": [space, always | {"prepend_scheme": "first"}]}},
        {"added_tokens": [{"content": "two words"}]},
    ):
        assert not splits_into_words(fits | change)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("folder", "decoder_only"), [("t5", False), ("gpt2", True)])
@pytest.mark.parametrize("kind", ["digit", "default"])
def test_the_ids_are_those_of_the_tokenizer(data_root: Path, folder: str, decoder_only: bool, kind: str) -> None:
    tokenizer: Any = load_tokenizer(str(data_root / "tokenizers" / folder), kind=kind)
    name = "train-hard/numbers__round_number_composed.txt"
    archive = data_root / "mathematics_dataset" / "mathematics_dataset-regen-1k.tar.gz"
    ((_, content),) = iterate_members(archive, [name])
    pairs = list(Pairs(content, name))[:300]
    encoded = BlockEncoder(settings_for(tokenizer, decoder_only=decoder_only, max_length=512))(block(*pairs))
    prefix, end = (" ", []) if decoder_only else ("", [tokenizer.eos_token_id])
    expected: list[int] = []
    for question, answer in pairs:
        expected += tokenizer(question, add_special_tokens=False)["input_ids"] + end
        expected += tokenizer(prefix + answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    assert encoded.tokens.tolist() == expected
    assert encoded.counters[:2] == (0, 0)
