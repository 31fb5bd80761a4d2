"""Digits by hand: shares of places, and Figure A4's mean probabilities."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.results.figures.digits import mean_probabilities, shares


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
    drawing = draw("digits", records)
    assert drawing is not None
    first, last = drawing.figure.axes
    assert [bar.get_height() for bar in first.patches] == [10] * 10  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.asarray(first.lines[0].get_ydata())[:3], [37.5, 62.5, 0])
    np.testing.assert_allclose(np.asarray(last.lines[0].get_ydata())[-2:], [62.5, 37.5])
    ends = [segment[:, 1] for segment in first.collections[0].get_segments()]  # type: ignore[attr-defined]
    np.testing.assert_allclose(ends[1], [50, 75])
    assert "2 seeds a loss" in drawing.caption
    assert draw("digits", []) is None


def table(*rows: tuple[int, float]) -> list[Any]:
    """All mass on the digit itself but what a row says of its first digit; the other rows are unknown."""
    known = {digit: [first, *[0.0] * 9] for digit, first in rows}
    for digit, row in known.items():
        row[digit] = 1 - row[0]
    return [known.get(digit) for digit in range(10)]


def test_mean_probabilities_over_seeds_by_hand() -> None:
    found = {"a": {"test": {"digits": table((4, 0.2))}}, "b": {"test": {"digits": table((4, 0.4), (5, 0.5))}}, "c": {}}
    mean = mean_probabilities(found, ["a", "b", "c", "d"], "test")
    assert mean is not None
    np.testing.assert_allclose(mean[4], [0.3, 0, 0, 0, 0.7, 0, 0, 0, 0, 0])
    assert np.isnan(mean[5]).all()  # one of the two seeds does not know it
    assert mean_probabilities(found, ["c", "d"], "test") is None


def test_figure_a4_is_of_the_runs_that_were_calibrated(tiny_record, draw, tmp_path: Path) -> None:
    records = [tiny_record("ce", 1), tiny_record("ce", 2)]
    file = tmp_path / "benchmarks" / "calibration_tiny.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({records[0].id: {"test": {"digits": table((4, 0.25))}}}))
    drawing = draw("figureA4", records, tmp_path)
    assert drawing is not None
    (image,) = drawing.figure.axes[0].images
    np.testing.assert_allclose(image.get_array()[4], [25, 0, 0, 0, 75, 0, 0, 0, 0, 0])
    assert "1 seed a loss" in drawing.caption
    # A quarter of the probability lies four digits off; the rows of digits that are never right are left out.
    assert drawing.caption.endswith("noisy numbers: CE 75.0% and 1.00.")
    assert image.get_clim() == (0, 80)
    file.write_text("{}")
    assert draw("figureA4", records, tmp_path) is None
    file.write_text("no json")
    with pytest.raises(UserError, match=r"calibration_tiny.json: cannot be read .*calibrate.py"):
        draw("figureA4", records, tmp_path)
