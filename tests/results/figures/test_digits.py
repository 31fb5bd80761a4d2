"""Figure A4: shares of digits by hand."""

from typing import Any

import numpy as np

from ntl.results.figures.digits import shares


def histograms(*counts: int) -> dict[str, Any]:
    padded = [*counts, *[0] * (10 - len(counts))]
    places = {"leading": padded, "last": padded[::-1]}
    return {"test": {"prediction": places, "answer": {"leading": [1] * 10, "last": [1] * 10}}}


def test_shares_by_hand(tiny_record) -> None:
    records = [
        tiny_record("ce", 1, digit_histograms=histograms(1, 3)),
        tiny_record("ce", 2, digit_histograms=histograms(0, 0, 2)),
        tiny_record("ce", 3, digit_histograms=histograms(0)),
        tiny_record("ce", 4),
    ]
    expected = np.zeros((2, 10))
    expected[0, :2], expected[1, 2] = (0.25, 0.75), 1
    np.testing.assert_array_equal(shares(records, "test", "prediction", "leading"), expected)
    assert shares(records[2:], "test", "prediction", "leading").shape == (0, 10)


def test_mean_and_range_over_seeds(tiny_record, draw) -> None:
    records = [
        tiny_record("ce", 1, digit_histograms=histograms(1, 3)),
        tiny_record("ce", 2, digit_histograms=histograms(1, 1)),
    ]
    drawing = draw("figureA4", records)
    assert drawing is not None
    first, last = drawing.figure.axes
    assert [bar.get_height() for bar in first.patches] == [10] * 10  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.asarray(first.lines[0].get_ydata())[:3], [37.5, 62.5, 0])
    np.testing.assert_allclose(np.asarray(last.lines[0].get_ydata())[-2:], [62.5, 37.5])
    ends = [segment[:, 1] for segment in first.collections[0].get_segments()]  # type: ignore[attr-defined]
    np.testing.assert_allclose(ends[1], [50, 75])
    assert "2 seeds a loss" in drawing.caption
    assert draw("figureA4", []) is None
