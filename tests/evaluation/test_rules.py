"""From text to a number; how numbers are compared shows in the metrics (test_numeric.py)."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation import RULES, extract_answer
from ntl.numbers.answers import find_values

PAGE = Path(__file__).resolve().parents[2] / "docs" / "evaluate_elsewhere.md"
# In the form of the page, and not on it.
MORE = r"""
|`5e-3`|0.005|0.005|-3|
|`10^5`|100000|100000|5|
|`10**3`|1000|1000|3|
|`10⁻³`|0.001|0.001|10|
|`2^{10}`|1024|1024|10|
|`10<sup>4</sup>`|10000|10000|4|
|`6.02·10^23`|6.02e23|6.02e23|23|
|`-1.5×10⁻³`|-0.0015|-0.0015|10|
|`－3`|-3|-3|3|
|`x=- 3`|-3|-3|-3|
|`-₹5`|-5|-5|5|
|`-\$5`|-5|-5|5|
|`$-5$`|-5|-5|-5|
|`-Rs.500`|-500|-500|500|
|`１２．５`|12.5|12.5|5|
|`1 234 567`|1234567|1234567|567|
|`1{,}234`|1234|1234|234|
|`1,,,,,2.0000`|none|none|2|
|`3⁄8`|0.375|0.375|8|
|`-\frac34`|-0.75|-0.75|34|
|`\frac{1}{\frac{2}{3}}`|1.5|1.5|3|
|`\boxed{\frac{3}{4}}`|0.75|0.75|4|
|`\boxed{42\text{ cm}^2}`|42|42|2|
|`####1/2`|0.5|0.5|2|
"""
ROW = re.compile(r"^\|`(.+)`\|(\S+)\|(\S+)\|(\S+)\|$", re.MULTILINE)
ON_THE_PAGE, OTHERS = ROW.findall(PAGE.read_text(encoding="utf-8")), ROW.findall(MORE)


@pytest.mark.parametrize(("column", "rule"), [(1, "default"), (2, "default+magnitudes+percent"), (3, "paper")])
def test_the_table_of_the_page_and_more(column: int, rule: str) -> None:
    assert (len(ON_THE_PAGE), len(OTHERS)) == (36, 24)
    rows = [*ON_THE_PAGE, *OTHERS]
    expected = {row[0]: None if row[column] == "none" else Decimal(row[column]) for row in rows}
    assert {row[0]: extract_answer(row[0], rule) for row in rows} == expected


@pytest.mark.parametrize(
    ("text", "default", "paper"),
    [
        ("He has 3 left.\n#### 1,234 dollars, not 9", "1234", "9"),
        ("first #### 3 then #### $4 or 5", "3", "5"),
        ("3 * 4 = 12\n#### $1,200\n\nQuestion: Tom has 5 hats.\nAnswer: 5 - 1 = 4\n#### 4", "1200", "4"),
        ("so 3 * 4 = 12\n####", "12", "12"),
        ("no number", None, None),
        ("1,,,,,2.0000", None, "2.0000"),
        ("123456789012345678901", "123456789012345678901", "123456789012345680000"),
        ("6 x 2 = 12\n#### 1/3", None, "3"),
        ("#### −$1\u00a0200", "-1200", "200"),
        ("#### = -12 345 678", "-12345678", "678"),
        ("#### 1 0000", "1", "0"),
        # The last box, up to its own brace; one that is empty or not closed; and one without a number.
        (r"\boxed{1} and \boxed{\frac{1}{2}}: 3 steps", "0.5", "3"),
        (r"\boxed{} is 7", "7", "7"),
        (r"so \boxed{41", "41", "41"),
        (r"\boxed{\text{none}} of 7", None, "7"),
    ],
)
def test_the_place_of_an_answer(text: str, default: str | None, paper: str | None) -> None:
    for rule, expected in (("default", default), ("paper", paper)):
        value = extract_answer(text, rule)
        assert value == (None if expected is None else Decimal(expected)), rule


@given(
    st.text(max_size=60) | st.text(alphabet="0123456789./⁄½⅓²-−+ ,$€\u00a0\u2009x#^{}()\\fracboxed'_:eE*×", max_size=60)
)
def test_extraction_accepts_any_text(text):
    for rule in (*RULES, "default+magnitudes+percent"):
        value = extract_answer(text, rule)
        assert value is None or value.is_finite()


NUMBERS = st.decimals(-(10**15), 10**15, allow_nan=False, allow_infinity=False, places=3)
GROUPS = st.sampled_from([",", "'", "’", " ", "\u00a0", "\u2009", "\u202f", "\\,", "{,}"])
MINUS = st.sampled_from("-−–—－‐‑﹣")
CURRENCIES = st.sampled_from(["", "$", "\\$", "US$", "€", "₹", "CHF ", "Rs. "])
POWERS = st.sampled_from(
    ["e{}", "E{:+}", " x 10^{}", "×10^{{{}}}", r" \times 10^{{{}}}", "·10**{}", "*10^({})", " × 10<sup>{}</sup>"]
)
AROUND = st.sampled_from(
    ["{}", "It is {}.", "x = {}, so", r"$\boxed{{{}}}$ in 3 steps", "1 and 2\n#### {}\n7", "（{}）"]
)


@given(NUMBERS, GROUPS, MINUS, CURRENCIES, AROUND)
def test_a_number_is_read_back_however_it_is_grouped_and_signed(
    number: Decimal, group: str, minus: str, currency: str, around: str
) -> None:
    written = f"{minus if number.is_signed() else ''}{currency}{format(abs(number), ',').replace(',', group)}"
    assert extract_answer(around.format(written)) == number


@given(st.decimals(-100, 100, places=2), st.integers(-300, 300), POWERS, MINUS, AROUND)
def test_a_number_is_read_back_with_any_power_of_ten(
    number: Decimal, power: int, form: str, minus: str, around: str
) -> None:
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    for exponent in (form.format(power), f"×10{raised}"):
        written = f"{minus if number.is_signed() else ''}{abs(number)}{exponent}"
        assert extract_answer(around.format(written)) == Decimal(f"{number}e{power}")


@given(st.integers(-999, 999), st.integers(1, 99), st.sampled_from([2, 4, 5, 8, 10, 16, 20, 25]), AROUND)
def test_a_fraction_is_read_back(whole: int, top: int, bottom: int, around: str) -> None:
    sign, value = "-" * (whole < 0), Decimal(top) / bottom
    for written in (rf"\frac{{{top}}}{{{bottom}}}", f"{top}/{bottom}", rf"\dfrac{{1}}{{\frac{{{bottom}}}{{{top}}}}}"):
        assert extract_answer(around.format(sign + written)) == value * (-1 if sign else 1)
    if value < 1:
        mixed = rf"{whole}\frac{{{top}}}{{{bottom}}}"
        assert extract_answer(around.format(mixed)) == (value + abs(whole)) * (-1 if sign else 1)


READ = {
    "50% of $1,234.50 or €5, −7": ["50", "1234.50", "5", "-7"],
    "-$5 and −€2.50 and 10-$5": ["-5", "-2.50", "10", "5"],
    "3 12/4 and 1,000/4 = 250": [None, "250", "250"],
    "½ and 2½ and 2 ¾ and -¼": ["0.5", "2.5", "2.75", "-0.25"],
    "⅓ or ⅛": [None, "0.125"],
    "2⁴ = 16, 5 m², x³, 7 cm^2": ["16", "16", "5", "7"],
    "in 2020 300 people, 1 2 300": ["2020", "300", "1", "2", "300"],
    "1/2-3": ["0.5", "3"],
    "答案是5，6个；１，２３４": ["5", "6", "1234"],
    "2π, √2 and περίπου 5": [None, None, "5"],
    r"\frac{2x}{3}, \frac{x^2}{4}, -\frac{-3}{4}": [None, None, None],
    "1e5.3, 1e999999999, 10^999999999, 0^-1": [None] * 4,
    "He has 5 — 3 red, then - 4": ["5", "3", "4"],
}


def test_the_numbers_of_a_text() -> None:
    assert {text: find_values(text) for text in READ} == {
        text: [None if value is None else Decimal(value) for value in values] for text, values in READ.items()
    }


@pytest.mark.soak
@pytest.mark.timeout(120)  # as a pattern that goes back over what it read would not
def test_long_texts_are_read_once():
    units = ("1/", "9", "1\u00a0", "-$", "1 1/", " ½", "-", "- ", "{", "1 000 ", "5 million ", "√(", "5.")
    for unit in (*units, r"\frac{1}{", r"\boxed{"):
        extract_answer(f"####{unit * 20_000}")
