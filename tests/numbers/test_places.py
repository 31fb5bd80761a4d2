"""Tokens that stand for a digit at a decimal place."""

import pytest

from ntl.numbers.places import find_place_tokens, parse_place_token, place_token, place_tokens


def test_the_papers_list() -> None:
    tokens = place_tokens()
    assert len(tokens) == len(set(tokens)) == 320
    assert tokens[:11] == (*(f"_{digit}_-12_" for digit in range(10)), "_0_-11_")
    assert tokens[-1] == "_9_19_"
    assert place_tokens(20, 20) == tuple(f"_{digit}_20_" for digit in range(10))
    assert place_tokens(20, 19) == ()


@pytest.mark.parametrize(("token", "expected"), [("_5_-1_", (5, -1)), ("_0_0_", (0, 0)), ("_9_19_", (9, 19))])
def test_a_token_and_its_parts(token: str, expected: tuple[int, int]) -> None:
    assert parse_place_token(token) == expected
    assert place_token(*expected) == token


@pytest.mark.parametrize("token", ["5", "_5_", "_5_01_", "_5_-0_", "_15_0_", "▁_5_0_", "_٣_0_", "_5_0_ ", ""])
def test_other_tokens(token: str) -> None:
    assert parse_place_token(token) is None


def test_those_of_a_vocabulary_by_id() -> None:
    vocab = {"a": 0, "_9_19_": 4, "7": 1, "_0_-12_": 2}
    assert list(find_place_tokens(vocab).items()) == [(2, (0, -12)), (4, (9, 19))]
