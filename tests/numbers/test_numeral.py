"""How the numbers of a column are written, and read again."""

from typing import Any

import numpy as np
import pytest

from ntl.numbers.numeral import Numeral, values_of


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
