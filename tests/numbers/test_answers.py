"""The numbers of a list; how a text gives one number shows in the rules (tests/evaluation/test_rules.py)."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.numbers import format_number
from ntl.numbers.answers import read_list

NUMBERS = st.decimals(-(10**12), 10**12, places=6)
SEPARATORS = st.one_of(st.sampled_from([",", ", ", " , ", ",  ", ",\n"]), st.text(" \t\n", min_size=1, max_size=3))


@given(st.lists(NUMBERS, min_size=1), SEPARATORS, st.sampled_from(["", " ", "\n"]))
def test_numbers_between_any_separator_are_read(numbers: list[Decimal], separator: str, around: str) -> None:
    text = around + separator.join(map(format_number, numbers)) + around
    assert read_list(text) == dict(enumerate(numbers, 1))


@given(st.dictionaries(st.text(), NUMBERS, min_size=1))
def test_numbers_of_json_are_read(numbers: dict[str, Decimal]) -> None:
    written = [format_number(number) for number in numbers.values()]
    assert read_list(f" [{','.join(written)}]") == dict(enumerate(numbers.values(), 1))
    pairs = ", ".join(f"{json.dumps(name)}: {number}" for name, number in zip(numbers, written, strict=True))
    assert read_list(f"{{{pairs}}}\n") == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1,234 5", [1234, 5]), ("1,234, 5", [1234, 5]), ("1,234", [1, 234]), ("−3,1e2", [-3, 100]), ("5", [5])],
)
def test_what_a_comma_is(text: str, numbers: list[float]) -> None:
    """With white space elsewhere it groups digits."""
    assert [*(read_list(text) or {}).values()] == numbers


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "a, 1", "1,,2", "1, ,2", "1, 2,3", "1 2, 3", "1,2,", "1; 2", "3 and 4", "12:30"),
        *("[1, 2", "[[1]]", '["1"]', "[true]", "[NaN]", "[1e99999999]", "[" * 100_000),
        *('{"a": 1, "a": 2}', '{"a": {"b": 1}}'),
    ],
)
def test_what_is_no_list_of_numbers(text: str) -> None:
    assert read_list(text) is None
