"""Numbers in text: what is one, as it is written by people, lists, and how those of a column are written."""

import json
import math
import time
import warnings
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ntl.numbers import format_number, last_number_paper, parse_number, signed_log
from ntl.numbers.answers import read_list
from ntl.numbers.numeral import Numeral, values_of
from ntl.numbers.text import (
    MAX_EXPONENT,
    find_place_tokens,
    number_spans,
    place_tokens,
)
from ntl.numbers.written import COMMA, POINT, read_value, rewrite
from ntl.system.errors import UserError


def table(text: str) -> dict[str, str]:
    """What stands before and behind the arrow of each entry."""
    return dict(entry.split("→") for entry in text.strip("\n").replace(";\n", "; ").split("; "))


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


FOUND = """
3 apples\n#### 7→3 7; 5-3→5 3; 5 -3→5 -3; 5--3→5 -3; x-3→3; (1)-2]-3}-4→1 2 3 4; 2.-3→2 3;
= -3, (-4), $-5, +6→-3 -4 -5 6; 12−12 = −1→12 12 -1; 1,234 and 1,2,3 and 1,23,456→1234 1 2 3 1 23 456;
-1,2.5e1→-1 25; 1,234,5678→1 234 5678; 0,123→0 123; costs $1,234.50.→1234.50;
fig.5 .5 3.4.5 3..5→5 0.5 3.4 5 3 5; 2e3 2e 1e-05 5em→2000 2 0.00001 5; 1e999999999 7→7; ٣ １ x² 8→8;
\u00a0-4\u00a0000→-4 0
"""


def test_numbers_in_a_text():
    expected = {text: [*map(Decimal, numbers.split())] for text, numbers in table(FOUND).items()}
    assert {text: values_in(text) for text in expected} == expected


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


def test_the_papers_tokens() -> None:
    tokens = place_tokens()
    assert len(tokens) == len(set(tokens)) == 320
    assert tokens[:11] == (*(f"_{digit}_-12_" for digit in range(10)), "_0_-11_")
    assert tokens[-1] == "_9_19_"
    vocab = {"a": 0, "_9_19_": 4, "7": 1, "_0_-12_": 2}
    assert list(find_place_tokens(vocab).items()) == [(2, (0, -12)), (4, (9, 19))]


# Numbers as people write them.


# What is read alike with either decimal mark, or makes sense with one alone; and the unit.
READ_AS = """
1234→1234; 1.10→1.10; +5→5; .5→0.5; 5.→5; 1,234.50→1234.50; 1.234,50→1234.50; 1 234,5→1234.5; 1'234→1234;
1’234.5→1234.5; -1\u202f234.50→-1234.50; 1,234,567→1234567; 1,23,456.7→123456.7; 12,5→12.5; 0,123→0.123;
1234,567→1234.567; −3→-3; – 3→-3; －３．５→-3.5; (1,234.5)→-1234.5; 1e-5→0.00001;
6.02 x 10^23→602000000000000000000000; -10^5→-100000; 2\\times10^{-3}→0.002; 1,5·10⁻³→0.0015;
$1,790,582.46→1790582.46 $; -US$5→-5 US$; $-5→-5 $; 12,50 €→12.50 €; CHF 1'250.00→1250.00 CHF; 12%→12 %;
0,5 ‰→0.5 ‰; 9.81 m/s2→9.81 m/s2; 2.5 million→2.5 million; $\\boxed{42}$→42
"""
REFUSED = [
    *("", "NA", "n/a", "nan", "inf", "-", "$", "kg", "٣", "½", "1/2", "3 1/2", "12:30", "2020-01-01", "1.2.2020"),
    *("1.2.3", "5-7", "5 to 7", "5±1", "~5", "<5", "ca. 5", "1 2345", "12 34", "1,,2", "5,", "--5", "(-5)"),
    *("5 x 10", "5 or 6", "1, 2", "1.000.00", "0x1F", "1e99999999", "5 kg - 7 kg", "1_000", "5\n6", "5=5"),
]


def test_a_number_is_read_as_it_is_meant_and_all_else_is_none() -> None:
    expected = table(READ_AS)
    found = {text: read_value(f" {text}\n") for text in expected}
    assert {
        t: value and " ".join([*{*value.numerals.values()}, value.unit]).rstrip() for t, value in found.items()
    } == expected
    assert {text: read_value(text) for text in REFUSED} == dict.fromkeys(REFUSED)


def test_one_mark_before_three_digits_may_mean_two_numbers() -> None:
    both = {"1,234": ("1234", "1.234"), "12.345 kg": ("12.345", "12345"), "(1,234)": ("-1234", "-1.234")}
    for text, (point, comma) in both.items():
        value = read_value(text)
        assert value is not None
        assert value.numerals == {POINT: point, COMMA: comma}


@given(st.text(st.sampled_from("0123456789.,' -+()eE%$x^kgö²\n"), max_size=30))
def test_any_text_is_a_plain_numeral_or_none(text: str) -> None:
    value = read_value(text)
    for numeral in value.numerals.values() if value else ():
        assert parse_number(numeral) is not None
        assert set(numeral) <= set("-.0123456789")


def rewritten(*texts: str, mark: str = "") -> tuple[list[str], str]:
    return rewrite([(f"row {number}", text) for number, text in enumerate(texts, 1)], mark)


def test_a_column_tells_its_decimal_mark_unless_it_is_told() -> None:
    for texts, numerals in (
        (["1,234", "5.5"], ["1234", "5.5"]),
        (["1,234", "5,5"], ["1.234", "5.5"]),
        (["1.234", "12", "1.234.567"], ["1234", "12", "1234567"]),
        (["1.234", "0.250"], ["1.234", "0.250"]),
        (["12", "1 234"], ["12", "1234"]),
        (["5 kg", "1,000.0 kg"], ["5", "1000.0"]),
    ):
        assert rewritten(*texts)[0] == numerals
    assert rewritten("1,234", "5,678", mark=POINT)[0] == ["1234", "5678"]
    assert rewritten("1,234", "5,678", mark=COMMA)[0] == ["1.234", "5.678"]


# Answers -> what the line names.
REFUSED_TOGETHER = {
    ("12", "1,234", "5,678"): r"^row 2: the answer '1,234' may be 1234 or 1\.234, .*number_format=point",
    ("1,5", "1.5"): r"^'1\.5' \(row 2\) .* '1,5' \(row 1\) a decimal comma",
    ("5 kg", "5 g"): r"'5 g' has the unit 'g', and '5 kg' \(row 1\)",
    ("12%", "0.12"): r"'0\.12' has no unit, and '12%' \(row 1\)",
    ("1.5", "about 5"): "^row 2: the answer 'about 5'",
}


def test_answers_that_do_not_fit_together_are_refused() -> None:
    for texts, named in REFUSED_TOGETHER.items():
        with pytest.raises(UserError, match=named):
            rewritten(*texts)
    with pytest.raises(UserError, match=r"'1\.234,5' .*dataset\.number_format=auto"):
        rewritten("1.234,5", mark=POINT)


def test_what_was_changed_is_one_line() -> None:
    assert rewritten("7", "1.50") == (["7", "1.50"], "")
    numerals, said = rewritten("7", "1,234.50", "2,345.60", "(5)", "1e3")
    assert numerals == ["7", "1234.50", "2345.60", "-5", "1000"]
    assert said == "4 of 5 answers rewritten, the first 1,234.50 -> 1234.50"


# The numbers of a list; how a text gives one number shows in the rules (tests/evaluation/test_rules.py).


LISTED = st.decimals(-(10**12), 10**12, places=6)
SEPARATORS = st.one_of(st.sampled_from([",", ", ", " , ", ",  ", ",\n"]), st.text(" \t\n", min_size=1, max_size=3))


@given(st.lists(LISTED, min_size=1), SEPARATORS, st.sampled_from(["", " ", "\n"]))
def test_numbers_between_any_separator_are_read(numbers: list[Decimal], separator: str, around: str) -> None:
    text = around + separator.join(map(format_number, numbers)) + around
    assert read_list(text) == dict(enumerate(numbers, 1))


@given(st.dictionaries(st.text(), LISTED, min_size=1))
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


# ---- the numbers of a column


@pytest.mark.parametrize(
    ("y", "texts"),
    [
        ([3, 0, -7], ["3", "0", "-7"]),
        ([0.5, 1.0, -2.5], ["0.5", "1.0", "-2.5"]),
        ([-1e-4, 900, 1100], ["0", "900", "1100"]),  # no -0
        ([100.1234, 100.2, 100.3], ["100.1234", "100.2000", "100.3000"]),
        ([2e-9, -2e-9, 1e-9], ["2", "-2", "1"]),  # in a unit of 1e-9
        ([5e300, -5e300, 1e300], ["5", "-5", "1"]),
    ],
)
def test_as_few_decimals_as_keep_the_spread(y: list[float], texts: list[str]) -> None:
    column = np.array(y)[:, None]
    numeral = Numeral.of(column)
    assert numeral.texts(column) == texts
    read = numeral.read(values_of(numeral.texts(column), 1))
    assert np.abs(read - column).max() == pytest.approx(numeral.lost * numeral.unit)
    assert np.abs(read / column.max() - column / column.max()).max() <= 1e-3


def test_logarithms_of_either_sign() -> None:
    column = np.array([[-1e-9], [-3e4], [-2e9]])
    numeral = Numeral.of(column, scale="log")
    assert numeral.texts(column) == ["-9.00", "4.48", "9.30"]
    assert numeral.read(numeral.write(column)) == pytest.approx(column)
    assert numeral.read(np.array([-np.inf, np.inf])).tolist() == [0, -np.inf]
    with pytest.raises(ValueError, match="of one sign"):
        Numeral.of(np.array([[1.0], [0.0]]), scale="log")


def test_more_than_three_powers_of_ten_advise_logarithms() -> None:
    with pytest.warns(UserWarning, match=r"spans 4\.0 powers of ten.*scale='log'"):
        Numeral.of(np.array([[1.0], [1e4]]))


@pytest.mark.parametrize(("decimals", "y"), [("auto", [2.0, 2.0]), (0, [1.1, 1.2])])
def test_what_is_written_as_one_number_is_constant(decimals: int | str, y: list[float]) -> None:
    with pytest.raises(ValueError, match="constant to 0 decimals"):
        Numeral.of(np.array(y)[:, None], decimals)


def test_several_numbers_are_all_there_or_none() -> None:
    columns = np.array([[1.0, 0.25], [2.0, 0.5]])
    assert Numeral.of(columns).texts(columns) == ["1.00, 0.25", "2.00, 0.50"]
    assert values_of(["1.00, 0.25"], 2).tolist() == [[1, 0.25]]
    assert np.isnan(values_of(["1.00", "1.00, 2.00, 3.00"], 2)).all()
    assert values_of(["about 7"], 1).tolist() == [[7]]
    assert np.isnan(values_of(["seven"], 1)).all()


@pytest.mark.parametrize("decimals", [-1, 2.5, 13, "few"])
def test_decimals_are_a_whole_number(decimals: Any) -> None:
    with pytest.raises(ValueError, match=rf"^decimals={decimals!r}: choose auto, or a whole number from 0 to 12"):
        Numeral.of(np.array([[1.0], [2.0]]), decimals)


def test_an_outlier_that_rounds_the_others_away_is_told() -> None:
    y = np.append(np.linspace(-0.01, 0.01, 69), 1000.0)[:, None]
    with pytest.warns(UserWarning, match=r"^69 of 70 different numbers are written as one, to 0 decimals: an outlier"):
        Numeral.of(y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Numeral.of(y, decimals=4).texts(y)[0] == "-0.0100"
        Numeral.of(np.repeat([[0.0], [1.0]], 30, axis=0))  # equal from the start
