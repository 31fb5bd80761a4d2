import math
import time
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ntl.numbers import format_number, last_number_paper, parse_number, signed_log
from ntl.numbers.text import (
    MAX_EXPONENT,
    find_place_tokens,
    number_spans,
    parse_place_token,
    place_token,
    place_tokens,
)


def values_in(text: str) -> list[Decimal]:
    return [value for _, _, value in number_spans(text)]


ANY_TEXT = st.one_of(st.text(), st.text(alphabet="0123456789+-−.,eE \n\tx(%²٣１\u00a0"))


ONE = "0→0 007→7 -1,234.50→-1234.50 1,234,567→1234567 +3→3 .5→0.5 -.5→-0.5 5.→5 1e3→1000 1.5E-3→0.0015 5.e+2→500"


def test_a_text_that_is_one_number():
    pairs = dict(pair.split("→") for pair in f"{ONE} 1,234e2→123400 \N{MINUS SIGN}7→-7".split())
    pairs |= {" \n12\t": "12", "\N{NO-BREAK SPACE}12\N{NO-BREAK SPACE}": "12"}
    assert {text: parse_number(text) for text in pairs} == {text: Decimal(value) for text, value in pairs.items()}


NONE = [
    *("", " ", "5 apples", "1 000", "- 5", "5\N{NO-BREAK SPACE}000", "inf", "nan", "Infinity", "٣", "１", "²", "½"),
    *("-", ".", "-.", "e5", "1e", "1e+", "$5", "--5", "1.2.3", "1_0", "0x10", "1,23", "12,34", "1234,567", "1,234,56"),
    *("0,123", "000,123", ",5", "1,", "1,,234", "1.5,000", "1,2e999999999", "1²"),
]


def test_a_text_that_is_no_number():
    assert {text: parse_number(text) for text in NONE} == dict.fromkeys(NONE)


FOUND = {
    "3 apples\n#### 7": ["3", "7"],
    "5-3": ["5", "3"],
    "5 -3": ["5", "-3"],
    "5--3": ["5", "-3"],
    "x-3": ["3"],
    "(1)-2]-3}-4": ["1", "2", "3", "4"],
    "2.-3": ["2", "3"],
    "= -3, (-4), $-5, +6": ["-3", "-4", "-5", "6"],
    "12−12 = −1": ["12", "12", "-1"],
    "1,234 and 1,2,3 and 1,23,456": ["1234", "1", "2", "3", "1", "23", "456"],
    "-1,2.5e1": ["-1", "25"],
    "1,234,5678": ["1", "234", "5678"],
    "0,123": ["0", "123"],
    "costs $1,234.50.": ["1234.50"],
    "fig.5 .5 3.4.5 3..5": ["5", "0.5", "3.4", "5", "3", "5"],
    "2e3 2e 1e-05 5em": ["2000", "2", "0.00001", "5"],
    "1e999999999 7": ["7"],
    "٣ １ x² 8": ["8"],
    "\N{NO-BREAK SPACE}-4\N{NO-BREAK SPACE}000": ["-4", "0"],
}


def test_numbers_in_a_text():
    assert {text: values_in(text) for text in FOUND} == {text: [*map(Decimal, FOUND[text])] for text in FOUND}


def test_the_canonical_numeral():
    pairs = {"-1234.50": "-1234.5", "1E+3": "1000", "1.20E-3": "0.0012", "100": "100", "5.000": "5"}
    pairs |= dict.fromkeys(["-0", "-0.00", "0E+7", "0E-7"], "0")
    assert {value: format_number(Decimal(value)) for value in pairs} == pairs


@given(st.decimals(allow_nan=False, allow_infinity=False))
@example(Decimal("123456789012345678901234567890.12345"))
@example(Decimal("7" * 40_000))
def test_formatting_and_parsing_are_inverse_whatever_the_context(value: Decimal):
    if abs(value.adjusted()) > MAX_EXPONENT:
        return
    with localcontext() as context:
        context.prec = 3
        text = format_number(value)
    assert parse_number(text) == value
    assert text == format_number(Decimal(text))
    assert values_in(text) == [value]


@given(ANY_TEXT)
def test_in_any_text_spans_are_in_order_and_hold_nothing_but_the_number(text: str):
    spans, values = number_spans(text), values_in(text)
    assert sorted(place for span in spans for place in span[:2]) == [place for span in spans for place in span[:2]]
    assert all(parse_number(text[start:end]) == value for start, end, value in spans)
    assert all(value.is_finite() for value in values)
    whole = parse_number(text)
    assert whole is None or values == [whole]
    assert isinstance(last_number_paper(text), Decimal | None)
    for value in values:
        assert parse_number(format_number(value)) == value


def test_magnitudes_beyond_the_bound_are_no_numbers():
    for value in ("NaN", "Infinity", "-Infinity", "1e999999999", "1e-999999999"):
        with pytest.raises(ValueError, match="finite"):
            format_number(Decimal(value))
    assert last_number_paper("9" * 400) == math.inf
    assert last_number_paper("-\n5") is None  # where the original crashed
    assert parse_number(f"1e{MAX_EXPONENT}") == Decimal(f"1e{MAX_EXPONENT}")
    assert len(format_number(Decimal(f"1e{MAX_EXPONENT}"))) == MAX_EXPONENT + 1
    for text in (f"1e{MAX_EXPONENT + 1}", f"1e-{MAX_EXPONENT + 1}", "1e999999999", "1e" + "9" * 40_000, "0e999999999"):
        assert parse_number(text) is None
        assert values_in(text) == []


@pytest.mark.parametrize("pattern", ["1", "1,234,", "1.", " ", "- ", "1e", "1e5"])
@pytest.mark.slow
def test_long_texts_take_linear_time(pattern: str):
    text = pattern * (200_000 // len(pattern))
    start = time.process_time()
    for text_or_tail in (text, text + "x"):
        parse_number(text_or_tail)
        number_spans(text_or_tail)
        last_number_paper(text_or_tail)
    assert time.process_time() - start < 5


# ---- the signed logarithm


def test_the_signed_logarithm_and_the_papers_log_error():
    for x, y in ((0, 0), (9, 1), (-9, -1), (99, 2), (-999_999, -6), (1, math.log10(2)), (-math.inf, -math.inf)):
        assert signed_log(x) == pytest.approx(y, rel=1e-15)
    predictions, labels = np.array([-1, 34.452, 80, -1]), np.array([-4, 34.452, 78, 0])
    assert np.abs(signed_log(predictions) - signed_log(labels)).mean() == pytest.approx(0.177457, abs=1e-6)


# ---- digits at decimal places


def test_place_tokens_and_what_is_none() -> None:
    for token, expected in (("_5_-1_", (5, -1)), ("_0_0_", (0, 0)), ("_9_19_", (9, 19))):
        assert parse_place_token(token) == expected
        assert place_token(*expected) == token
    for token in ("5", "_5_", "_5_01_", "_5_-0_", "_15_0_", "▁_5_0_", "_٣_0_", "_5_0_ ", ""):
        assert parse_place_token(token) is None


def test_the_papers_tokens() -> None:
    tokens = place_tokens()
    assert len(tokens) == len(set(tokens)) == 320
    assert tokens[:11] == (*(f"_{digit}_-12_" for digit in range(10)), "_0_-11_")
    assert tokens[-1] == "_9_19_"
    vocab = {"a": 0, "_9_19_": 4, "7": 1, "_0_-12_": 2}
    assert list(find_place_tokens(vocab).items()) == [(2, (0, -12)), (4, (9, 19))]
