"""Figures A1, A2 and that of depths: groups of records by hand."""

from dataclasses import replace

import numpy as np

from ntl.config.folders import RESULTS
from ntl.results import load_records
from ntl.results.figures.groups import depth_grid, group_values, pair_grid


def pinned(record, **config):
    return replace(record, config={**record.config, **config})


def test_values_of_groups_a_seed(tiny_record) -> None:
    records = {
        1: tiny_record("ce", 1, groups={"test": {"a": {"mape": 1.0}, "b": {"mape": None}}}),
        2: tiny_record("ce", 2, groups={"test": {"a": {"mape": 3.0}}, "other": {"a": {"mape": 9.0}}}),
    }
    assert group_values(records, "test", "mape") == {"a": [1.0, 3.0]}


def test_the_grid_has_the_median_over_seeds_first_factor_down(tiny_record) -> None:
    def record(seed: int, value: float):
        inside = {"1x1": {"mape": value}, "2x1": {"mape": 20.0}}
        return tiny_record("ce", seed, groups={"interpolate": inside, "extrapolate": {"1x3": {"mape": 50.0}}})

    grid = pair_grid({seed: record(seed, value) for seed, value in enumerate([8.0, 10.0, 1e9])}, "mape")
    nan = np.nan
    np.testing.assert_array_equal(grid, [[10, nan, 50], [20, nan, nan], [nan, nan, nan]])
    assert pair_grid({}, "mape").shape == (0, 0)


def test_pairs_frame_what_was_trained_on_and_write_each_value(tiny_record, draw, on_evidence) -> None:
    groups = {"interpolate": {"1x1": {"mape": 8.2}, "2x2": {"mape": 12.0}}, "extrapolate": {"3x3": {"mape": 5e6}}}
    spec = on_evidence("figureA2")
    drawing = draw(spec, [tiny_record(loss, 1, "multiplication", groups=groups) for loss in ("ce", "ntl_was")])
    assert drawing is not None
    first = drawing.figure.axes[0]
    assert [text.get_text() for text in first.texts] == ["8", "12", ">999"]
    (frame,) = first.patches
    assert (frame.get_width(), frame.get_height()) == (2, 2)  # type: ignore[attr-defined]
    assert "1 seed a loss" in drawing.caption
    assert draw(spec, []) is None
    assert draw(spec, [tiny_record("ce", 1, "multiplication")]) is None


def test_modules_by_split_with_the_range_over_seeds(tiny_record, draw, on_evidence) -> None:
    def record(loss: str, seed: int, accuracy: float):
        inside = {"numbers__round": {"accuracy": accuracy}, "algebra__linear": {"accuracy": 0.0}}
        groups = {"interpolate": inside, "extrapolate": {"numbers__round_big": {"accuracy": 0.9}}}
        return tiny_record(loss, seed, "multiplication", groups=groups)

    drawing = draw(on_evidence("figureA1"), [record("ce", 1, 0.2), record("ce", 2, 0.4), record("ntl_was", 1, 0.5)])
    assert drawing is not None
    inside, outside = drawing.figure.axes
    assert [label.get_text() for label in inside.get_yticklabels()] == ["algebra: linear", "numbers: round"]
    np.testing.assert_allclose(np.asarray(inside.lines[0].get_xdata()), [0, 30])
    np.testing.assert_allclose(inside.collections[0].get_segments()[1][:, 0], [20, 40])  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.asarray(inside.lines[1].get_xdata()), [0, 50])
    # One axis for both panels, as far as the larger values of the second reach.
    assert inside.get_xlim() == outside.get_xlim()
    assert outside.get_xlim()[0] < 0
    assert outside.get_xlim()[1] > 90
    assert [outside.get_title("left"), inside.get_title("left")] == ["extrapolation", "interpolation"]
    assert "1 to 2 seeds a loss" in drawing.caption
    assert draw("figureA1", []) is None


def test_figure_a1_names_the_models_and_the_best_constant_answer(tiny_record, draw) -> None:
    groups = {"interpolate": {"numbers__round": {"accuracy": 0.5}}}
    known = {"interpolate/accuracy": 0.5, "interpolate/accuracy:mode": 0.6, "interpolate/accuracy:mean": 0.1}
    record = tiny_record("ce", 1, "mathematics", model="t5_tiny", groups=groups, metrics=known)
    drawing = draw("figureA1", [pinned(record, trainer={"max_steps": 400})])
    assert drawing is not None
    assert "answers of a tiny T5 from scratch in place of T5-Base, 1 seed a loss" in drawing.caption
    assert drawing.caption.endswith("All of interpolation: CE 50.0%, the best constant answer 60.0%.")


def test_figure_a2_is_of_the_mixture_of_experts_that_the_paper_cites(tiny_record, draw) -> None:
    groups = {"interpolate": {"1x1": {"mape": 8.2}}}
    dense, experts = (
        pinned(
            tiny_record("ce", 1, "multiplication", model=model, groups=groups, scale="hour"),
            trainer={"bf16": False},
            probe_steps=500,
        )
        for model in ("granite_tiny", "granite_moe_tiny")
    )
    assert draw("figureA2", [dense]) is None
    drawing = draw("figureA2", [experts])
    assert drawing is not None
    assert "a tiny Granite MoE from scratch, scale=hour" in drawing.caption


def of_depths(tiny_record, seed: int, near: float, far: float):
    inside = {"32@0": {"accuracy": near}, "32@100": {"accuracy": 1.0}}
    beyond = {"96@0": {"accuracy": far}, "all": {"accuracy": 0.3}}
    return tiny_record("ce", seed, "needle", groups={"interpolate": inside, "extrapolate": beyond})


def test_depths_are_means_over_seeds_and_gaps_stay_gaps(tiny_record) -> None:
    records = {1: of_depths(tiny_record, 1, 0.5, 0.0), 2: of_depths(tiny_record, 2, 1.0, 0.5)}
    lengths, depths, grid = depth_grid(records, "accuracy")
    assert (lengths, depths) == ([32, 96], [0, 100])
    np.testing.assert_allclose(grid, [[0.75, 1.0], [0.25, np.nan]])


def test_the_published_needle_has_four_lengths_the_last_two_beyond_training(draw) -> None:
    drawing = draw("needle", load_records([RESULTS / "runs"]))
    assert drawing is not None
    *axes, _ = drawing.figure.axes  # the last is the bar of colours
    assert [each.get_title() for each in axes] == ["next token", "15 % masked", "15 % random tokens"]
    assert [text.get_text() for text in axes[0].get_yticklabels()] == ["32", "64", "96", "128"]
    assert all(len(each.texts) == 20 for each in axes)
    assert all(each.lines[0].get_ydata()[0] == 1.5 for each in axes)
    assert draw("needle") is None
