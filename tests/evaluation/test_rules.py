"""From text to a number; how numbers are compared shows in the metrics (test_numeric.py)."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation import RULES, extract_answer
from ntl.evaluation.rules import read_numbers
from ntl.numbers import find_numbers


@pytest.mark.parametrize(
    ("text", "default", "paper"),
    [
        (" 124", "124", "124"),
        ("-1,234.50", "-1234.50", "234.5"),
        ("1e5", "1e5", "5"),
        ("5 - 3", "3", "-3"),
        ("He has 3 left.\n#### 1,234 dollars, not 9", "1234", "9"),
        ("first #### 3 then #### $4 or 5", "3", "5"),
        ("3 * 4 = 12\n#### $1,200\n\nQuestion: Tom has 5 hats.\nAnswer: 5 - 1 = 4\n#### 4", "1200", "4"),
        ("so 3 * 4 = 12\n####", "12", "12"),
        ("no number", None, None),
        ("123456789012345678901", "123456789012345678901", "123456789012345680000"),
        ("6 x 2 = 12\n#### 1/2", "0.5", "2"),
        ("6 x 2 = 12\n#### 1/3", None, "3"),
        ("#### −$1\u00a0200", "-1200", "200"),
        ("#### 2½ cups", "2.5", "2"),
        # A marked number may have spaces between its groups.
        ("#### 80 000", "80000", "0"),
        ("#### $80 000 in all, 1 000 more", "80000", "0"),
        ("#### = -12 345 678", "-12345678", "678"),
        ("#### 1 0000", "1", "0"),
    ],
)
def test_extract_answer(text, default, paper):
    for rule, expected in (("default", default), ("paper", paper)):
        value = extract_answer(text, rule)
        assert value == (None if expected is None else Decimal(expected)), rule


@given(st.text(max_size=60) | st.text(alphabet="0123456789./⁄½⅓²-−+ ,$€\u00a0\u2009x#", max_size=60))
def test_extraction_accepts_any_text(text):
    for rule in RULES:
        value = extract_answer(text, rule)
        assert value is None or value.is_finite()


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_a_whole_number_is_its_own_answer(value):
    assert extract_answer(f" {value:f}\n") == value
    assert extract_answer(f"1 and 2 give\n#### {value:f}") == value


READ = {
    "50% of $1,234.50 or €5, −7": ["50", "1234.50", "5", "-7"],
    "-$5 and −€2.50 and 10-$5": ["-5", "-2.50", "10", "5"],
    "1/2": ["0.5"],
    "3⁄8": ["0.375"],
    "-2 1/2": ["-2.5"],
    "3 12/4": ["3", "3"],
    "1,000/4 = 250": ["250", "250"],
    "1/3": [None],
    "12/05/2024": [None],
    "½ and 2½ and 2 ¾ and -¼": ["0.5", "2.5", "2.75", "-0.25"],
    "⅓ or ⅛": [None, "0.125"],
    "10² is 100": [None, "100"],
    "2⁴ = 16, 5 m², x³": [None, "16", "5"],
    "1\u00a0234 and 1\u202f234\u202f567 and 12\u00a034": ["1234", "1234567", "12", "34"],
    "1/2-3": ["0.5", "3"],
    "9" * 30 + "/2": ["9" * 30, "2"],  # longer than any fraction a person writes
}


def test_read_numbers():
    assert {text: read_numbers(text) for text in READ} == {
        text: [None if value is None else Decimal(value) for value in values] for text, values in READ.items()
    }


@given(
    st.text(alphabet="0123456789.,-−+ ex$%\n", max_size=40).filter(lambda text: "-$" not in text and "−$" not in text)
)
def test_a_text_without_special_forms_is_read_by_the_plain_grammar(text):
    assert read_numbers(text) == find_numbers(text)


@pytest.mark.soak
@pytest.mark.timeout(60)  # as a pattern that goes back over what it read would not
def test_long_texts_are_read_once():
    for text in ("1/" * 50_000, "9" * 100_000 + "½", "1\u00a0" * 50_000, "-$" * 50_000, "1 1/" * 30_000, " ½" * 50_000):
        extract_answer(f"####{text}")
