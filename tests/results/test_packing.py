import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ntl.results import pack_bits, pack_errors, thin_curve, unpack_bits, unpack_errors
from ntl.results.packing import pack_groups, unpack_groups


@given(arrays(np.bool_, st.integers(0, 40)))
def test_bits_come_back(bits: np.ndarray) -> None:
    assert unpack_bits(pack_bits(bits), len(bits)).tolist() == bits.tolist()


def test_bits_by_hand() -> None:
    # 1010 0000 1000 0000 = A0 80
    text = pack_bits([True, False, True, False, False, False, False, False, True])
    assert (text[:2], base64.b85decode(text[2:])) == ("r:", b"\xa0\x80")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!!!", "not packed bits: '!!!!'"),
        ("x:oIA=", "not packed bits: 'x:oIA='"),
        ("r:oi", "hold 1 bytes, not 17"),
        ("r:", "hold 0 bytes"),
    ],
)
def test_text_that_is_not_that_many_bits(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unpack_bits(text, 17)


@pytest.mark.parametrize("text", ["", "3", "x:AAAA", "3:!!!!", "3:AAAA", "z:3", "z:x:0:0", "z:3:0:0", "z:3:!!:!!"])
def test_text_that_is_no_packed_errors(text: str) -> None:
    with pytest.raises(ValueError, match="not packed errors"):
        unpack_errors(text)


@given(st.lists(st.integers(-256, 256), max_size=50))
def test_small_integer_errors_are_exact(errors: list[int]) -> None:
    assert unpack_errors(pack_errors(errors)).tolist() == errors


@given(st.lists(st.floats(-3e38, 3e38).filter(lambda x: x == 0 or abs(x) > 1e-30), min_size=1, max_size=50))
def test_errors_are_within_half_a_unit_of_eight_bits(errors: list[float]) -> None:
    assert unpack_errors(pack_errors(errors)) == pytest.approx(errors, rel=2**-8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [list, np.array])
def test_errors_beyond_the_range_are_infinite(kind: Callable[[list[float]], Any]) -> None:
    # The largest bfloat16 is 0x7F7F, (2 - 2**-7) 2**127; from half a step above it on, infinity is the nearest.
    largest, halfway = (2 - 2**-7) * 2.0**127, (2 - 2**-8) * 2.0**127
    errors = [largest, halfway * (1 - 2**-24), halfway, -halfway, 3.4e38, 1e39, -1e300, 1.0]
    expected = [largest, largest, np.inf, -np.inf, np.inf, np.inf, -np.inf, 1.0]
    assert unpack_errors(pack_errors(kind(errors))).tolist() == expected


def test_groups_by_hand() -> None:
    groups = {"1x1": {"accuracy": 1.0, "mape": 0.0}, "1x2": {"accuracy": 0.5, "mape": None}}
    packed = {"columns": ["accuracy", "mape"], "rows": {"1x1": [1.0, 0.0], "1x2": [0.5, None]}}
    assert pack_groups(groups) == packed
    assert unpack_groups(packed) == unpack_groups(groups) == groups


@pytest.mark.parametrize("groups", [{}, {"a": {"x": 1}, "b": {"y": 1}}, {"columns": {"x": 1}}])
def test_groups_come_back_whatever_they_hold(groups: dict[str, dict[str, int]]) -> None:
    assert unpack_groups(pack_groups(groups)) == unpack_groups(groups) == groups


def test_thin_curve_keeps_short_curves_and_both_ends() -> None:
    assert thin_curve([[1, 2.0], [2, 1.0]], limit=2) == [[1, 2.0], [2, 1.0]]
    assert thin_curve([[step, 0.5] for step in range(5)], limit=3) == [[0, 0.5], [2, 0.5], [4, 0.5]]


@given(st.integers(0, 700), st.integers(2, 200))
def test_thin_curve_never_repeats_a_point(length: int, limit: int) -> None:
    steps = [point[0] for point in thin_curve([[step, 1.0] for step in range(length)], limit)]
    assert len(steps) == min(length, limit)
    assert len(set(steps)) == len(steps)
    assert not steps or (steps[0], steps[-1]) == (0, length - 1)
