from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation import RULES, extract_answer


@pytest.mark.parametrize(
    ("text", "default", "paper"),
    [
        (" 124", "124", "124"),
        ("-1,234.50", "-1234.50", "234.5"),
        ("1e5", "1e5", "5"),
        (".5", "0.5", "5"),
        ("5 - 3", "3", "-3"),
        ("3 apples\n#### 7", "7", "7"),
        ("He has 3 left.\n#### 1,234 dollars, not 9", "1234", "9"),
        ("first #### 3 then #### $4 or 5", "3", "5"),
        ("3 * 4 = 12\n#### $1,200\n\nQuestion: Tom has 5 hats.\nAnswer: 5 - 1 = 4\n#### 4", "1200", "4"),
        ("so 12\n#### #### 7", "7", "7"),
        ("so 3 * 4 = 12\n####", "12", "12"),
        ("####7", "7", "7"),
        ("the sum of 2 and 3 is 5.", "5", "5"),
        ("no number", None, None),
        ("", None, None),
        ("inf", None, None),
        ("123456789012345678901", "123456789012345678901", "123456789012345680000"),
        ("0.1", "0.1", "0.1"),
        ("6 x 2 = 12\n#### 1/2", "0.5", "2"),
        ("6 x 2 = 12\n#### 1/3", None, "3"),
        ("6 x 2 = 12\n#### 10²", None, "10"),
        ("#### 50%", "50", "50"),
        ("#### −$1\u00a0200", "-1200", "200"),
        ("#### 2½ cups", "2.5", "2"),
        ("#### 80 000", "80000", "0"),
        ("so 120/60 = 2", "2", "2"),
    ],
)
def test_extract_answer(text, default, paper):
    for rule, expected in (("default", default), ("paper", paper)):
        value = extract_answer(text, rule)
        assert value == (None if expected is None else Decimal(expected)), rule


def test_paper_rule_does_not_clip():
    assert extract_answer("99999999999999", "paper") == 99999999999999


def test_unknown_rule_names_the_choices():
    with pytest.raises(ValueError, match=r"'last'.*default, paper"):
        extract_answer("1", "last")


def test_rules_are_named_and_versioned():
    assert {name: (rule.name, rule.version) for name, rule in RULES.items()} == {
        "default": ("default", 3),
        "paper": ("paper", 1),
    }


@given(st.text(max_size=60))
def test_extraction_accepts_any_text(text):
    for rule in RULES:
        value = extract_answer(text, rule)
        assert value is None or isinstance(value, Decimal)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_a_whole_number_is_its_own_answer(value):
    assert extract_answer(f" {value:f}\n") == value
    assert extract_answer(f"1 and 2 give\n#### {value:f}") == value
