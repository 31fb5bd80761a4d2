import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.numbers import signed_exp, signed_log


@pytest.mark.parametrize(("x", "y"), [(0, 0), (9, 1), (-9, -1), (99, 2), (-999_999, -6), (1, math.log10(2))])
def test_values(x: float, y: float):
    assert signed_log(x) == pytest.approx(y, rel=1e-15)
    assert signed_exp(y) == pytest.approx(x, rel=1e-15)


def test_arrays_elementwise():
    x = np.array([[-99.0, 0.0], [9.0, np.nan]])
    np.testing.assert_allclose(signed_log(x), [[-2, 0], [1, np.nan]], rtol=1e-15)
    np.testing.assert_allclose(signed_exp(signed_log(x)), x, rtol=1e-13)
    np.testing.assert_array_equal(signed_log(np.array([9, -99])), [1, -2])


def test_infinities_stay():
    assert signed_log(-math.inf) == -math.inf
    assert signed_exp(math.inf) == math.inf


@given(st.floats(-1e15, 1e15))
def test_inverse_and_odd(x: float):
    assert signed_exp(signed_log(x)) == pytest.approx(x, rel=1e-12, abs=1e-12)
    assert signed_log(-x) == -signed_log(x)


def test_the_papers_log_error():
    predictions, labels = np.array([-1, 34.452, 80, -1]), np.array([-4, 34.452, 78, 0])
    assert np.abs(signed_log(predictions) - signed_log(labels)).mean() == pytest.approx(0.177457, abs=1e-6)
