"""Figures of committed numbers: the losses by hand, times and drafts as they were measured."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ntl.config import UserError
from ntl.config.folders import RESULTS


def test_a_cell_of_the_heat_maps_is_row_p5_column_p3(draw, tmp_path: Path) -> None:
    cells = [(a, b) for a in range(3) for b in range(3 - a)]
    rows = [f"{a / 2},{b / 2},{a},{b},{10 * a + b},0" for a, b in cells]
    (tmp_path / "figures").mkdir()
    text = "\n".join(["p3,p5,ce,ntl_mse,ntl_was,ce_original", *rows, ""])
    (tmp_path / "figures" / "losses_by_mass.csv").write_text(text)
    panels = [axes for axes in draw("figure2", results=tmp_path)[0].axes if axes.images]
    shown = [np.ma.filled(axes.images[0].get_array(), np.nan) for axes in panels]
    np.testing.assert_array_equal(shown[2], [[0, 10, 20], [1, 11, np.nan], [2, np.nan, np.nan]])


def measured(loss: str) -> list[float]:
    """Its ratios to CE, forward and with the backward pass, where most labels are numbers."""
    lines = (RESULTS / "benchmarks" / "losses.csv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    known = {row["part"]: float(row["ratio"]) for row in rows if (row["loss"], row["share"]) == (loss, "0.8")}
    return [known["forward"], known["forward+backward"]]


def test_the_titles_of_figures_1b_and_2_are_true_of_their_curves() -> None:
    """CE is the same for every wrong digit; NTL-WAS is 0 at the label alone, NTL-MSE along a line."""
    digits = pd.read_csv(RESULTS / "figures" / "losses_by_digit.csv")
    wrong = digits[digits["predicted"] != 4].assign(distance=lambda rows: (rows["predicted"] - 4).abs())
    assert len({*wrong["ce"]}) == 1
    for _, side in wrong.groupby(wrong["predicted"] < 4):
        assert (np.diff(side.sort_values("distance")[["ntl_mse", "ntl_was"]].to_numpy(), axis=0) > 0).all()
    masses = pd.read_csv(RESULTS / "figures" / "losses_by_mass.csv")
    zeros = {loss: masses[masses[loss].abs() < 1e-9][["p3", "p5"]].to_numpy() for loss in ("ntl_mse", "ntl_was")}
    assert zeros["ntl_was"].tolist() == [[0, 0]]
    line = masses[(masses["p3"] == masses["p5"]) & masses["ntl_mse"].notna()][["p3", "p5"]]
    assert zeros["ntl_mse"].tolist() == line.to_numpy().tolist()
    assert len(line) > 20


def test_times_and_drafts_are_those_of_the_committed_files(draw, points, tmp_path: Path) -> None:
    figure, words = draw("figure3")
    forward, _, step, memory = figure.axes
    assert points(forward)[0][0][0] == 1  # CE, against which all are measured
    assert points(forward)[1][0] == [1.01, 1.029, 2.86]  # the paper's
    assert points(step)[1][0] == [1.044]
    for loss in ("ce_digits", "ntl_was"):
        assert words[loss] == "{:.2f} and {:.2f}".format(*measured(loss))
    assert len(memory.patches) == len(forward.get_yticklabels()) > 3
    assert len(draw("speculative")[0].axes) == 3
    with pytest.raises(UserError, match=r"cannot read .*speculative\.csv"):
        draw("speculative", results=tmp_path)
