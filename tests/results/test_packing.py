import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ntl.results import pack_bits, pack_errors, thin_curve, unpack_bits, unpack_errors


@given(arrays(np.bool_, st.integers(0, 40)))
def test_bits_come_back(bits: np.ndarray) -> None:
    assert unpack_bits(pack_bits(bits), len(bits)).tolist() == bits.tolist()


def test_bits_by_hand() -> None:
    # 1010 0000 1000 0000 = A0 80
    assert pack_bits([True, False, True, False, False, False, False, False, True]) == "oIA="


@pytest.mark.parametrize(
    ("text", "message"), [("!!!!", "not packed bits: '!!!!'"), ("oIA=", "hold 2 bytes, not 17"), ("", "hold 0 bytes")]
)
def test_text_that_is_not_that_many_bits(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack_bits(text, 17)


@pytest.mark.parametrize("text", ["", "3", "x:AAAA", "3:!!!!", "3:AAAA"])
def test_text_that_is_no_packed_errors(text: str) -> None:
    with pytest.raises(ValueError, match="not packed errors"):
        unpack_errors(text)


@given(st.lists(st.integers(-256, 256), max_size=50))
def test_small_integer_errors_are_exact(errors: list[int]) -> None:
    assert unpack_errors(pack_errors(errors)).tolist() == errors


@given(st.lists(st.floats(-3e38, 3e38).filter(lambda x: x == 0 or abs(x) > 1e-30), min_size=1, max_size=50))
def test_errors_are_within_half_a_unit_of_eight_bits(errors: list[float]) -> None:
    assert unpack_errors(pack_errors(errors)) == pytest.approx(errors, rel=2**-8)


def test_undefined_and_infinite_errors_keep_their_kind() -> None:
    back = unpack_errors(pack_errors([None, float("nan"), float("inf"), float("-inf"), 1.0]))
    assert np.isnan(back[:2]).all()
    assert back[2:].tolist() == [np.inf, -np.inf, 1.0]


def test_errors_of_another_number() -> None:
    with pytest.raises(ValueError, match="hold 4 bytes, not 3 errors"):
        unpack_errors(pack_errors([1, 2]).replace("2:", "3:"))


def test_thin_curve_keeps_short_curves_and_both_ends() -> None:
    assert thin_curve([[1, 2.0], [2, 1.0]], limit=2) == [[1, 2.0], [2, 1.0]]
    assert thin_curve([[step, 0.5] for step in range(5)], limit=3) == [[0, 0.5], [2, 0.5], [4, 0.5]]


@given(st.integers(0, 700), st.integers(2, 200))
def test_thin_curve_never_repeats_a_point(length: int, limit: int) -> None:
    steps = [point[0] for point in thin_curve([[step, 1.0] for step in range(length)], limit)]
    assert len(steps) == min(length, limit)
    assert len(set(steps)) == len(steps)
    assert not steps or (steps[0], steps[-1]) == (0, length - 1)


def test_thin_curve_needs_two_points() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        thin_curve([], limit=1)
