"""Figures A1, A2, A4 and that of depths, of groups of records by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.config.folders import RESULTS
from ntl.results.figures.draw import NoRuns, Source
from ntl.results.figures.functions import squares
from ntl.results.spec import SquareSpec, VerdictsSpec
from ntl.results.table import build_table


def test_modules_by_split_with_the_range_over_seeds(tiny_record, draw, points) -> None:
    def record(loss: str, seed: int, accuracy: float | None):
        inside = {"numbers__round": {"accuracy": accuracy}, "algebra__linear": {"accuracy": 0.0}}
        groups = {"interpolate": inside, "extrapolate": {"numbers__round_big": {"accuracy": 0.9}}}
        return tiny_record(loss, seed, groups=groups)

    records = [record("ce", 1, 0.2), record("ce", 2, 0.4), record("ce", 3, None), record("ntl_was", 1, 0.5)]
    with pytest.raises(NoRuns):  # the title compares them
        draw("figureA1", records[:3])
    figure, words = draw("figureA1", records)
    inside, outside = figure.axes
    assert [label.get_text() for label in inside.get_yticklabels()] == ["algebra: linear", "numbers: round"]
    assert [line[0] for line in points(inside)] == [pytest.approx([0, 30]), [0, 50]]
    np.testing.assert_allclose(inside.collections[0].get_segments()[1][:, 0], [20, 40])
    # One axis for both panels, as far as the larger values of the second reach.
    assert inside.get_xlim() == outside.get_xlim()
    assert outside.get_xlim()[0] < 0 < 90 < outside.get_xlim()[1]
    assert [outside.get_title("left"), inside.get_title("left")] == ["extrapolation", "interpolation"]
    # Of rounding 50 and not 30%, of the other modules the same.
    assert words == {"seeds": "1 to 3 seeds", "modules": 3, "more": 1, "less": 0, "most": "90"}


def test_losses_by_readings_are_relative_to_ce_read_greedily(make_record) -> None:
    """The geometric mean of each seed's ratio, its t interval, and the mean error itself."""
    source, metrics = Source([], RESULTS), ("test/rmse_truth", "test/rmse_truth@expectation")
    values = {"ce": [(2.0, 1.0), (4.0, 2.0), (8.0, 4.0)], "ntl_was": [(2.0, 3.0), (8.0, 3.0), (8.0, 3.0)]}
    records = [
        make_record(loss, seed, dict(zip(metrics, of, strict=True)))
        for loss, rows in values.items()
        for seed, of in enumerate(rows, 1)
    ]
    task = SquareSpec("noise, GPT-2, RMSE", "quickstart", "tiny", "test/rmse_truth", "expectation")
    vars(source)["spec"] = VerdictsSpec([], [task, replace(task, block=1, metric="interpolate/accuracy")], [], [])
    with pytest.raises(NoRuns):
        squares(source)
    vars(source)["tables"] = [build_table("quickstart", records)]
    figure, _ = squares(source)
    panel, empty, _ = figure.axes
    assert (panel.get_visible(), empty.get_visible(), panel.get_title()) == (True, False, "noise\nGPT-2, n = 3")
    assert [bar.get_height() for bar in panel.patches] == pytest.approx(
        [100, 50, 100 * 2 ** (1 / 3), 100 * 27 ** (1 / 3) / 4]
    )
    assert [text.get_text() for text in panel.texts] == ["4.67", "2.33", "6.00", "3.00"]
    ends = [line.get_segments()[0][:, 1] for line in panel.collections]
    half = 4.302653 * math.log(2) / 3  # of t with 2 degrees of freedom; ratios 1, 2 and 1 have the sd ln 2 / sqrt 3
    np.testing.assert_allclose(ends[1], 100 * 2 ** (1 / 3) * np.exp([-half, half]), rtol=1e-6)


def test_pairs_are_medians_over_seeds_first_factor_down(tiny_record, draw) -> None:
    """They frame what was trained on and write each value."""

    def record(loss: str, seed: int, value: float):
        inside = {"1x1": {"mape": value}, "2x1": {"mape": 20.0}}
        beyond = {"1x3": {"mape": 5e6 if loss == "ce" else 61.9}, "3x1": {"mape": None}}
        return tiny_record(loss, seed, groups={"interpolate": inside, "extrapolate": beyond})

    records = [record("ce", seed, value) for seed, value in enumerate([8.0, 10.2, 1e9], 1)]
    figure, words = draw("figureA2", [*records, record("ntl_was", 1, 3.0)])
    first, second, _ = figure.axes  # the last is the bar of colours
    shown = np.ma.filled(first.images[0].get_array(), np.nan)
    np.testing.assert_array_equal(shown, [[10.2, 5e6], [20, np.nan]])
    assert [label.get_text() for label in first.get_xticklabels()] == ["1", "3"]
    assert [text.get_text() for text in first.texts] == ["10", ">999", "20"]
    assert (first.patches[0].get_width(), first.patches[0].get_height()) == (2, 2)
    assert [first.get_title(), second.get_title()] == ["CE", "NTL-WAS"]
    assert words == {"seeds": "1 to 3 seeds", "less": 1, "pairs": 2, "least": 61}


def calibrated(*rows: tuple[int, float]) -> dict[str, Any]:
    """All mass on the digit itself but what a row says of the digit 0; the other rows are unknown."""
    known = {digit: [first, *[0.0] * 9] for digit, first in rows}
    for digit, row in known.items():
        row[digit] = 1 - row[0]
    digits = {"digits": [known.get(digit) for digit in range(10)]}
    return {"interpolate": digits, "test": digits}


def test_probabilities_of_the_runs_that_were_calibrated(tiny_record, draw, tmp_path: Path) -> None:
    records = [*(tiny_record("ce", seed) for seed in (1, 2, 3)), tiny_record("ntl_was", 1)]
    file = tmp_path / "benchmarks" / "calibration_tiny.json"
    file.parent.mkdir()
    with pytest.raises(UserError, match=r"cannot read .*calibration_tiny.json"):
        draw("figureA4", records, tmp_path)
    known = [calibrated((4, 0.2)), calibrated((4, 0.4), (5, 0.5)), None, calibrated((4, 0.3), (5, 0.4))]
    file.write_text(json.dumps({run.id: of for run, of in zip(records, known, strict=True) if of}))
    (tmp_path / "benchmarks" / "calibration_hour.json").write_text("{}")
    figure, words = draw("figureA4", records, tmp_path)
    image = figure.axes[0].images[0]
    shown = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_allclose(shown[4], [30, 0, 0, 0, 70, 0, 0, 0, 0, 0])
    assert np.isnan(shown[5]).all()  # one of the two seeds does not know it
    assert image.get_clim() == (0, 70)
    tasks = ("noisy numbers", "multiplication")
    assert words == {"seeds": "1 to 2 seeds", "right": ", ".join(f"65% (CE: 70%) on {task}" for task in tasks)}
