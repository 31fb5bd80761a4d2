"""From text to a number, and intervals around it; how numbers are compared shows in test_metrics.py."""

import math
import re
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.evaluation import RULES, extract_answer
from ntl.evaluation.interval import Calibration, conformal_quantile, errors_of, least_answers, one_of_each
from ntl.evaluation.rules import Pairs
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
def test_a_number_is_read_back_however_it_is_grouped_and_signed(number, group, minus, currency, around: str) -> None:
    written = f"{minus if number.is_signed() else ''}{currency}{format(abs(number), ',').replace(',', group)}"
    assert extract_answer(around.format(written)) == number


@given(st.decimals(-100, 100, places=2), st.integers(-300, 300), POWERS, MINUS, AROUND)
def test_a_number_is_read_back_with_any_power_of_ten(number, power: int, form: str, minus: str, around: str) -> None:
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


# ---- intervals by split conformal prediction

LEVELS = st.sampled_from([0.1, 0.5, 0.68, 0.8, 0.9, 0.95])


def test_quantiles_by_hand_and_too_few_answers() -> None:
    # 0.9 x 10 = 9, 0.9 x 11 = 9.9, 0.7 x 10 = 7, where 0.7 * 10 in binary is not above it, 0.95 x 40 = 38.
    for count, level, rank in ((9, 0.9, 9), (10, 0.9, 10), (9, 0.7, 7), (39, 0.95, 38), (1, 0.5, 1)):
        scores = np.random.default_rng(0).permutation(np.arange(1, count + 1))
        assert conformal_quantile(scores, level) == rank
    for level, least in ((0.5, 1), (0.9, 9), (0.99, 99)):
        assert least_answers(level) == least
        assert conformal_quantile(range(least), level) == least - 1
        with pytest.raises(ValueError, match=rf"needs {least} validation answers or more, .* there are {least - 1}$"):
            conformal_quantile(range(least - 1), level)
    for level in (1.5, 1, 0, -0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"above 0 and below 1, not {float(level)}$"):
            conformal_quantile(range(100), level)


@given(st.lists(st.floats(0, 1e6), min_size=20, max_size=40), LEVELS)
def test_over_all_choices_of_the_new_answer_the_level_is_kept(scores: list[float], level: float) -> None:
    """Exchangeable scores: each is the new one equally often. Without ties it is at most level + 1 / (n + 1)."""
    covered = [
        score <= conformal_quantile(scores[:place] + scores[place + 1 :], level) for place, score in enumerate(scores)
    ]
    share, exact = Fraction(sum(covered), len(covered)), Fraction(str(level))
    assert share >= exact
    if len(set(scores)) == len(scores):
        assert share < exact + Fraction(1, len(scores))


def test_where_questions_repeat_the_level_is_kept() -> None:
    """By hand k / (n + 1) of n different questions: 18 / 19.

    The rows of a question share an effect. They are sorted by their errors: the first of each would cover fewer.
    """
    random, draws, groups = np.random.default_rng(0), 4000, 18
    covered = []
    for _ in range(draws):
        effects, sizes = random.normal(size=groups + 1), random.integers(1, 10, size=groups + 1)
        of_row = np.repeat(np.arange(groups + 1), sizes)
        errors = np.abs(effects[of_row] + 0.3 * random.normal(size=len(of_row)))
        rows = np.lexsort([errors, of_row])
        rows, new = rows[of_row[rows] < groups], random.choice(rows[of_row[rows] == groups])
        chosen = rows[one_of_each([f"question {each}" for each in of_row[rows]])]
        assert of_row[chosen].tolist() == list(range(groups))
        covered.append(Calibration.from_errors(errors[chosen]).metrics([errors[new]])["coverage_90"])
    right = math.ceil(0.9 * (groups + 1)) / (groups + 1)
    assert np.mean(covered) == pytest.approx(right, abs=3 * math.sqrt(right * (1 - right) / draws))


def test_errors_and_errors_in_units_of_the_spread() -> None:
    errors = [float(error) for error in range(1, 10)]
    plain = Calibration.from_errors(errors)
    assert plain.radius(0.9) == 9
    assert plain.radius(0.5, spread=7.0) == 5
    spreads = [2.0] * 8 + [0.0]
    relative = Calibration.from_errors(errors, spreads, least_spread=0.5)
    assert relative.scores == [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 18]
    assert relative.radius(0.8, spread=0.0) == 4 * 0.5
    assert relative.radius(0.8, spread=3.0) == 12


def test_coverage_and_width_of_test_answers() -> None:
    nan, calibration = math.nan, Calibration.from_errors(range(1, 10))
    assert calibration.metrics([0, 9, 9.5, nan]) == {"coverage_90": 0.5, "width_90": 18}
    relative = Calibration.from_errors(range(1, 10), [1.0] * 9, least_spread=0.1)
    assert relative.metrics([9, 9, nan], [1.0, 0.5, None]) == {
        "coverage_90": pytest.approx(1 / 3),
        "width_90": pytest.approx(9 + 4.5),
    }
    assert all(math.isnan(value) for value in Calibration.from_errors(range(8)).metrics([1]).values())


def test_an_answer_without_a_number_widens_the_others() -> None:
    calibration = Calibration.from_errors([1.0, math.nan, 2.0, *range(3, 9)], [None] * 9)
    assert calibration.radius(0.8) == 8
    assert math.isinf(calibration.radius(0.9))
    assert Calibration.from_header(calibration.header) == calibration
    assert calibration.metrics([1, math.nan]) == {"coverage_90": 0.5, "width_90": math.inf}


# ---- the scale log


def compared(predictions: Iterable[float | str | None], answers: Iterable[float | str]) -> Pairs:
    of_none = [None if each is None else Decimal(str(each)) for each in predictions]
    return RULES["default"].compare(of_none, [Decimal(str(each)) for each in answers])


def test_factors_by_hand() -> None:
    """Of nine validation answers one is right, and the others are wrong by a factor of 2 or, the last, 4."""
    pairs = compared([1, *[2] * 4, *[0.5] * 3, "4e-8"], [*[1] * 8, "1e-8"])
    calibration = Calibration.from_errors(errors_of(pairs, "log"), scale="log")
    assert calibration.scores == pytest.approx([0, *[math.log(2)] * 7, math.log(4)])
    assert calibration.interval(0.8, 123.0, spread=7.0) == pytest.approx([61.5, 246])
    assert calibration.interval(0.9, 2e-8) == pytest.approx([5e-9, 8e-8])
    assert calibration.interval(0.9, 0.0) == calibration.interval(0.9, -3.0) == []
    assert Calibration.from_header(calibration.header) == calibration
    # Factors of 4.1, 1/3.9 and 1, and what has no interval; two widths of x (4 - 1/4), and of an answer below 0.
    test = compared([4.1, 10, 8, None, 0, -2], [1, 39, -8, 1, 1, 1])
    metrics = calibration.metrics(errors_of(test, "log"), [None] * 6, test.prediction)
    assert metrics == {"coverage_90": pytest.approx(1 / 6), "width_90": pytest.approx(3.75 * (4.1 + 10 + 8) / 3)}
    assert "scale" not in Calibration.from_errors(errors_of(pairs, "linear")).header


def test_predictions_that_have_no_logarithm_widen_the_others() -> None:
    errors = errors_of(compared([*[1] * 6, None, 0, -1], [1] * 9), "log")
    calibration = Calibration.from_errors(errors, scale="log")
    assert calibration.scores == [0] * 6 + [math.inf] * 3
    assert math.isinf(calibration.radius(0.9))
    assert calibration.interval(0.9, 1.0) == []
    # One wrong by a factor that only its logarithm has in float64, and an answer that is beyond it.
    errors = errors_of(compared(["1e300", "1e400"], ["1e-300", "1e400"]), "log")
    assert errors.tolist() == pytest.approx([600 * math.log(10), math.nan], nan_ok=True)
    far = Calibration.from_errors([errors[0]] * 9, scale="log")
    assert far.interval(0.9, 1.0) == []
    assert far.metrics(errors, [], [1e300, None]) == {"coverage_90": 0.5, "width_90": math.inf}
