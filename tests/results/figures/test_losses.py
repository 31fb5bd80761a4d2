"""Figures 1b and 2 show the committed numbers at their places."""

from pathlib import Path

import numpy as np
import pytest


def test_curves_by_digit(draw) -> None:
    (axes,) = draw("figure1b").figure.axes
    ce, mse, was = (np.asarray(line.get_ydata(), dtype=float) for line in axes.lines[:3])
    assert was == pytest.approx(
        [3.90381, 2.96794, 2.03206, 1.09619, 0.16032, 1.09619, 2.03206, 2.96794, 3.90381, 4.83968], abs=5e-6
    )
    assert np.ptp(np.delete(ce, 4)) == 0
    # Half of the squared distance of the mean: all but a little of the mass is on the digit.
    assert mse[0] == pytest.approx(0.5 * 13.7746)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["CE", "NTL-MSE × 0.5", "NTL-WAS"]  # type: ignore[union-attr]


def test_a_cell_of_the_heat_maps_is_row_p5_column_p3(draw, tmp_path: Path) -> None:
    rows = ["p3,p5,ce,ntl_mse,ntl_was,ce_original"]
    cells = [(a, b) for a in range(3) for b in range(3 - a)]
    rows += [f"{a / 2},{b / 2},{a},{b},{10 * a + b},0" for a, b in cells]
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "losses_by_mass.csv").write_text("\n".join(rows) + "\n")
    panels = [axes for axes in draw("figure2", results=tmp_path).figure.axes if axes.images]
    shown = [np.ma.filled(axes.images[0].get_array(), np.nan) for axes in panels]
    nan = np.nan
    np.testing.assert_array_equal(shown[0], [[0, 1, 2], [0, 1, nan], [0, nan, nan]])
    np.testing.assert_array_equal(shown[1], [[0, 0, 0], [1, 1, nan], [2, nan, nan]])
    np.testing.assert_array_equal(shown[2], [[0, 10, 20], [1, 11, nan], [2, nan, nan]])


def test_the_grid_of_the_committed_file_is_a_triangle(draw) -> None:
    image = next(axes.images[0] for axes in draw("figure2").figure.axes if axes.images)
    there = ~np.isnan(np.ma.filled(image.get_array(), np.nan))
    assert there.shape == (51, 51)
    np.testing.assert_array_equal(there, np.add.outer(range(51), range(51)) <= 50)
