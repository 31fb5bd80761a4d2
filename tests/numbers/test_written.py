"""Numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.numbers import parse_number
from ntl.numbers.written import COMMA, POINT, read_value, rewrite
from ntl.system.errors import UserError

# What is read alike with either decimal mark, or makes sense with one alone; and the unit.
READ = {
    "1234": ("1234", ""),
    "1.10": ("1.10", ""),
    "+5": ("5", ""),
    ".5": ("0.5", ""),
    "5.": ("5", ""),
    "1,234.50": ("1234.50", ""),
    "1.234,50": ("1234.50", ""),
    "1 234,5": ("1234.5", ""),
    "1'234": ("1234", ""),
    "1’234.5": ("1234.5", ""),
    "-1\u202f234.50": ("-1234.50", ""),
    "1,234,567": ("1234567", ""),
    "1,23,456.7": ("123456.7", ""),
    "12,5": ("12.5", ""),
    "0,123": ("0.123", ""),
    "1234,567": ("1234.567", ""),
    "−3": ("-3", ""),
    "– 3": ("-3", ""),
    "－３．５": ("-3.5", ""),
    "(1,234.5)": ("-1234.5", ""),
    "1e-5": ("0.00001", ""),
    "6.02 x 10^23": ("602" + 21 * "0", ""),
    "-10^5": ("-100000", ""),
    "2\\times10^{-3}": ("0.002", ""),
    "1,5·10⁻³": ("0.0015", ""),
    "$1,790,582.46": ("1790582.46", "$"),
    "-US$5": ("-5", "US$"),
    "$-5": ("-5", "$"),
    "12,50 €": ("12.50", "€"),
    "CHF 1'250.00": ("1250.00", "CHF"),
    "12%": ("12", "%"),
    "0,5 ‰": ("0.5", "‰"),
    "9.81 m/s2": ("9.81", "m/s2"),
    "2.5 million": ("2.5", "million"),
    "$\\boxed{42}$": ("42", ""),
}
REFUSED = [
    *("", "NA", "n/a", "nan", "inf", "-", "$", "kg", "٣", "½", "1/2", "3 1/2", "12:30", "2020-01-01", "1.2.2020"),
    *("1.2.3", "5-7", "5 to 7", "5±1", "~5", "<5", "ca. 5", "1 2345", "12 34", "1,,2", "5,", "--5", "(-5)"),
    *("5 x 10", "5 or 6", "1, 2", "1.000.00", "0x1F", "1e99999999", "5 kg - 7 kg", "1_000", "5\n6", "5=5"),
]


def test_a_number_is_read_as_it_is_meant_and_all_else_is_none() -> None:
    found = {text: read_value(f" {text}\n") for text in READ}
    assert {text: value and (*set(value.numerals.values()), value.unit) for text, value in found.items()} == READ
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


def column(*texts: str, mark: str = "") -> tuple[list[str], str]:
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
        assert column(*texts)[0] == numerals
    assert column("1,234", "5,678", mark=POINT)[0] == ["1234", "5678"]
    assert column("1,234", "5,678", mark=COMMA)[0] == ["1.234", "5.678"]


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (
            ["12", "1,234", "5,678"],
            r"^row 2: the answer '1,234' may be 1234 or 1\.234, .*number_format=point reads 1234",
        ),
        (
            ["1,5", "1.5"],
            r"^'1\.5' \(row 2\) has a decimal point, and '1,5' \(row 1\) a decimal comma; write all alike",
        ),
        (["5 kg", "5 g"], r"'5 g' has the unit 'g', and '5 kg' \(row 1\) has the unit 'kg'; give all of them one unit"),
        (["12%", "0.12"], r"'0\.12' has no unit, and '12%' \(row 1\) has the unit '%'"),
        (["1.5", "about 5"], "^row 2: the answer 'about 5' is no number with at most a unit"),
    ],
)
def test_answers_that_do_not_fit_together_are_refused(texts: list[str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        column(*texts)
    with pytest.raises(UserError, match=r"'1\.234,5' is no number with a decimal point; dataset\.number_format=auto"):
        column("1.234,5", mark=POINT)


def test_what_was_changed_is_one_line() -> None:
    assert column("7", "1.50") == (["7", "1.50"], "")
    numerals, said = column("7", "1,234.50", "2,345.60", "(5)", "1e3")
    assert numerals == ["7", "1234.50", "2345.60", "-5", "1000"]
    assert said == "4 of 5 answers rewritten, the first 1,234.50 -> 1234.50"
