"""Figures of committed numbers: the losses by hand, times and drafts as they were measured."""

from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError


def test_a_cell_of_the_heat_maps_is_row_p5_column_p3(draw, tmp_path: Path) -> None:
    cells = [(a, b) for a in range(3) for b in range(3 - a)]
    rows = [f"{a / 2},{b / 2},{a},{b},{10 * a + b},0" for a, b in cells]
    (tmp_path / "figures").mkdir()
    text = "\n".join(["p3,p5,ce,ntl_mse,ntl_was,ce_original", *rows, ""])
    (tmp_path / "figures" / "losses_by_mass.csv").write_text(text)
    panels = [axes for axes in draw("figure2", results=tmp_path)[0].axes if axes.images]
    shown = [np.ma.filled(axes.images[0].get_array(), np.nan) for axes in panels]
    np.testing.assert_array_equal(shown[2], [[0, 10, 20], [1, 11, np.nan], [2, np.nan, np.nan]])


def test_times_and_drafts_are_those_of_the_committed_files(draw, points, tmp_path: Path) -> None:
    figure, _ = draw("figure3")
    forward, _, step, memory = figure.axes
    assert points(forward)[0][0][0] == 1  # CE, against which all are measured
    assert points(forward)[1][0] == [1.01, 1.029, 2.86]  # the paper's
    assert points(step)[1][0] == [1.044]
    assert len(memory.patches) == len(forward.get_yticklabels()) > 3
    assert len(draw("speculative")[0].axes) == 3
    with pytest.raises(UserError, match=r"cannot read .*speculative\.csv"):
        draw("speculative", results=tmp_path)
