import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation.reading import read_marked, read_numbers
from ntl.numbers import find_numbers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("no number", []),
        ("50% of $1,234.50 or €5, −7", ["50", "1234.50", "5", "-7"]),
        ("-$5 and −€2.50 and 10-$5", ["-5", "-2.50", "10", "5"]),
        ("1/2", ["0.5"]),
        ("-3/4 cup", ["-0.75"]),
        ("3⁄8", ["0.375"]),
        ("2 1/2 hours", ["2.5"]),
        ("-2 1/2", ["-2.5"]),
        ("3 12/4", ["3", "3"]),
        ("1,000/4 = 250", ["250", "250"]),
        ("0.5/2", ["0.25"]),
        ("1/3", [None]),
        ("5/0", [None]),
        ("12/05/2024", [None]),
        ("½ and 2½ and 2 ¾ and -¼", ["0.5", "2.5", "2.75", "-0.25"]),
        ("⅓ or ⅛", [None, "0.125"]),
        ("10² is 100", [None, "100"]),
        ("2⁴ = 16, 5 m², x³", [None, "16", "5"]),
        ("1\u00a0234 and 1\u202f234\u202f567 and 12\u00a034", ["1234", "1234567", "12", "34"]),
        ("60 km/h", ["60"]),
        ("1/2-3", ["0.5", "3"]),
        ("1/2 - -3", ["0.5", "-3"]),
        ("1 000", ["1", "0"]),
        ("9" * 30 + "/2", ["9" * 30, "2"]),  # longer than any fraction a person writes
    ],
)
def test_read_numbers(text: str, values: list[str | None]) -> None:
    assert read_numbers(text) == [None if value is None else Decimal(value) for value in values]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (" 1 000", "1000"),
        (" $80 000 in all, 1 000 more", "80000"),
        ("= -12 345 678", "-12345678"),
        (" 5 then 1 000", "5"),
        (" 1 0000", "1"),
        (" 1/2", "0.5"),
    ],
)
def test_a_marked_number_may_have_spaces_between_its_groups(text: str, first: str) -> None:
    assert read_marked(text)[0] == Decimal(first)


@given(
    st.text(alphabet="0123456789.,-−+ ex$%\n", max_size=40).filter(lambda text: "-$" not in text and "−$" not in text)
)
def test_a_text_without_special_forms_is_read_by_the_plain_grammar(text: str) -> None:
    assert read_numbers(text) == find_numbers(text)


@given(st.text(alphabet="0123456789./⁄½⅓²-−+ ,$€\u00a0\u2009x", max_size=60))
def test_any_text_is_read(text: str) -> None:
    for read in (read_numbers, read_marked):
        assert all(value is None or value.is_finite() for value in read(text))


@given(st.integers(-999, 999), st.integers(1, 64))
def test_fractions_by_their_value(top: int, bottom: int) -> None:
    (value,) = read_numbers(f"{top}/{bottom}")
    # A fraction is a finite decimal when some power of ten, here the sixth, is a multiple of its denominator.
    finite = 10**6 * top % bottom == 0
    assert value == (Decimal(top * 10**6 // bottom) / 10**6 if finite else None)


@pytest.mark.slow
def test_long_texts_take_little_time() -> None:
    started = time.perf_counter()
    for text in ("1/" * 50_000, "9" * 100_000 + "½", "1\u00a0" * 50_000, "-$" * 50_000, "1 1/" * 30_000, " ½" * 50_000):
        read_numbers(text)
        read_marked(text)
    assert time.perf_counter() - started < 10
