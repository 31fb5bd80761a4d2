"""Answers that are on the disk are answers to this, whole, and given back as they were."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.decoding.journal import Answer, Journal

KEY = {"weights": "abc", "decoding": {"num_beams": 4}}
FIRST = [Answer("1", [3, 2], {"covered": 0.1 + 0.2, "quantiles": {"0.5": 1e-300}}), Answer("", [])]
SECOND = [Answer("−\n\ud800", [7])]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / ".predictions.test.answers"


def test_what_was_added_is_there(path: Path) -> None:
    journal = Journal(path, KEY)
    journal.add(FIRST)
    assert journal.answers == []
    journal.add(SECOND)
    assert Journal(path, KEY).answers == FIRST + SECOND
    Journal(path, KEY).add(FIRST)
    assert Journal(path, KEY).answers == FIRST + SECOND + FIRST


def test_answers_to_something_else_are_forgotten(path: Path) -> None:
    Journal(path, KEY).add(FIRST)
    assert Journal(path, {**KEY, "weights": "abd"}).answers == []
    assert Journal(path, KEY).answers == []


@given(text=st.text(), ids=st.lists(st.integers(0, 2**31)), number=st.floats())
def test_any_answer_is_given_back(tmp_path_factory: pytest.TempPathFactory, text: str, ids: list[int], number: float):
    path = tmp_path_factory.mktemp("journal") / "answers"
    answer = Answer(text, ids, {"covered": number})
    Journal(path, KEY).add([answer])
    (found,) = Journal(path, KEY).answers
    assert found[:2] == answer[:2]
    assert found.about["covered"] == number or math.isnan(number)


def test_cut_anywhere_it_has_the_whole_batches_before(path: Path) -> None:
    journal = Journal(path, KEY)
    begun = path.stat().st_size
    journal.add(FIRST)
    one = path.stat().st_size
    journal.add(SECOND)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        found = Journal(path, KEY)
        expected = FIRST + SECOND if size == len(whole) else FIRST if size >= one else []
        assert found.answers == expected
        found.add(SECOND)
        assert Journal(path, KEY).answers == expected + SECOND
    assert begun < one


@pytest.mark.parametrize("line", [b"3\n", b"[3]\n", b'[["a", [1], {}, 4]]\n', b"\0\0\n", b"\xff\n"])
def test_a_line_that_is_no_batch_ends_it(path: Path, line: bytes) -> None:
    journal = Journal(path, KEY)
    journal.add(FIRST)
    with path.open("ab") as file:
        file.write(line)
    journal.add(SECOND)
    assert Journal(path, KEY).answers == FIRST
