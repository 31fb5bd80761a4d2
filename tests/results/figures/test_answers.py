"""Errors by hand and where they stand on the axes; shares of digits, and Figure A4's mean probabilities."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.results import pack_errors
from ntl.results.figures.answers import distribution, kept_errors, mean_probabilities, shares
from ntl.results.figures.spec import load_figure_spec

NAN = float("nan")


def test_the_share_of_all_answers_below_each_error() -> None:
    values, shares = distribution(np.array([2.0, 0.0, NAN, 2.0, 100.0]))
    assert values.tolist() == [0, 2, 100]
    np.testing.assert_allclose(shares, [0.2, 0.6, 0.8])  # the one that is no number is beyond every error


def test_a_record_without_errors_of_the_split_has_none(tiny_record) -> None:
    records = {
        1: tiny_record("ce", 1, errors={"interpolate": pack_errors([0.0, 8.0])}),
        2: tiny_record("ce", 2, errors={"extrapolate": pack_errors([1.0])}),
        3: tiny_record("ce", 3, errors={"interpolate": pack_errors([])}),
    }
    assert {seed: errors.tolist() for seed, errors in kept_errors(records, "interpolate").items()} == {1: [0.0, 8.0]}


@pytest.fixture
def record(tiny_record):
    def make(loss: str, seed: int, errors: list[float], r2: float = 0.9):
        metrics = {"interpolate/accuracy": 0.25, "interpolate/r2": r2, "interpolate/count": 8}
        constants = {"interpolate/accuracy:mean": 0.0, "interpolate/r2:mean": -0.125}
        packed = {"interpolate": pack_errors(errors)}
        return tiny_record(loss, seed, "multiplication", errors=packed, metrics=metrics | constants)

    return make


def test_exact_answers_stand_at_zero_and_seeds_are_pooled(record, draw) -> None:
    records = [record("ce", 1, [0, 4, 64, 64]), record("ce", 2, [4, 4, 64, 1024]), record("ntl_was", 1, [0, 0, 4, NAN])]
    drawing = draw("closeness", records)
    assert drawing is not None
    axes = drawing.figure.axes[0]
    assert axes.get_xscale() == "symlog"
    assert axes.get_xlim()[0] == 0
    lines = [[np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()] for line in axes.lines]
    # Seed 1 and 2 of CE, then both.
    assert lines[0] == [[0, 4, 64, 1e4], [25, 50, 100, 100]]
    assert lines[1] == [[0, 4, 64, 1024, 1e4], [0, 50, 75, 100, 100]]
    assert lines[2] == [[0, 4, 64, 1024, 1e4], [12.5, 50, 87.5, 100, 100]]
    assert lines[3] == [[0], [12.5]]
    assert [[0, 4, 1e4], [50, 75, 75]] in lines
    assert "4 of a run's 8 test answers; 1 of all 12 are no number" in drawing.caption
    # Of 0, 4, 4, 4, 64, 64, 64 and 1024 it is between 4 and 64.
    assert "CE: accuracy 0.250, R² 0.900, median error 34; NTL-WAS: accuracy 0.250, R² 0.900, median error 2;" in (
        drawing.caption
    )
    assert "constant: mean: accuracy 0.000, R² -0.125." in drawing.caption
    assert "1 to 2 seeds a loss" in drawing.caption


def test_a_score_below_the_axis_is_written_at_its_end(record, draw) -> None:
    drawing = draw("closeness", [record("ce", 1, [0, 1], r2=-7.5), record("ce", 2, [0, 1], r2=0.5)])
    assert drawing is not None
    axes = drawing.figure.axes[2]
    assert [text.get_text() for text in axes.texts] == ["-7.5"]
    found = [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    assert found == [[0.5], [-0.2], [-0.125]]
    assert [label.get_text() for label in drawing.figure.axes[1].get_yticklabels()] == ["CE", "constant: mean"]
    assert "R² -7.500 to 0.500" in drawing.caption


def test_it_is_drawn_of_any_table(tiny_record, draw) -> None:
    spec = load_figure_spec("closeness")
    at = {"table": "quickstart", "block": 0, "rows": ["CE"]}
    panels = [replace(panel, **at) for panel in spec.panels]
    spec = replace(spec, panels=[replace(panels[0], split="test"), replace(panels[1], metric="test/accuracy")])
    metrics = {"test/accuracy": 0.5, "test/count": 2}
    drawing = draw(spec, [tiny_record("ce", 1, errors={"test": pack_errors([0.25, 3.0])}, metrics=metrics)])
    assert drawing is not None
    # No decade below the smallest error, no exact answer: the curve begins at 0.
    assert np.asarray(drawing.figure.axes[0].lines[0].get_ydata()).tolist() == [0, 50, 100, 100]
    assert drawing.figure.axes[0].get_xticks().tolist() == [0, 0.1, 1, 10]


def test_huge_errors_do_not_hide_the_small_ones(record, draw) -> None:
    drawing = draw("closeness", [record("ce", 1, [0, 2, 1e18])])
    assert drawing is not None
    assert drawing.figure.axes[0].get_xticks().tolist() == [0, 1, 1e3, 1e6, 1e9, 1e12, 1e15, 1e18]


def test_without_errors_nothing_is_drawn(record, tiny_record, draw) -> None:
    assert draw("closeness", []) is None
    assert draw("closeness", [tiny_record("ce", 1, "multiplication", metrics={"interpolate/r2": 1.0})]) is None


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
