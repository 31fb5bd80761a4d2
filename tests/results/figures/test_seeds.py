"""Which values the README's figure shows."""

from matplotlib.collections import PathCollection

from ntl.config.figure import load_figure_spec
from ntl.results.figures.command import RESULTS
from ntl.results.figures.runs import Source
from ntl.results.figures.seeds import values_by_seed

SPEC = load_figure_spec("tiny_losses")
DATASETS = ("noisy_numbers", "multiplication")


def test_values_are_those_of_comparable_runs_that_have_one(tiny_record) -> None:
    metric = SPEC.panels[0].metric
    records = [
        tiny_record("ce", 1, metrics={metric: 3.0}),
        tiny_record("ce", 2, metrics={metric: 2.0}),
        tiny_record("ntl_was", 1, metrics={metric: 2.5}),
        tiny_record("ntl_was", 2, metrics={metric: None}),
        tiny_record("ntl_was", 3, metrics={metric: 9.0}, weight=2.0),
        tiny_record("ntl_crps", 1, metrics={}),
    ]
    found = values_by_seed(SPEC, SPEC.panels[0], Source(records, RESULTS))
    assert found == {"ce": {1: 3.0, 2: 2.0}, "ntl_was": {1: 2.5}}


def test_one_dot_a_run_and_none_without_both_data_sets(tiny_record, draw) -> None:
    records = [
        tiny_record(loss, seed, dataset, metrics={panel.metric: 2.0 + seed})
        for loss in ("ce", "ntl_was")
        for seed in (1, 2, 3)
        for dataset, panel in zip(DATASETS, SPEC.panels, strict=True)
    ]
    drawing = draw(SPEC, records)
    assert drawing is not None
    for axes in drawing.figure.axes:
        dots = [dot for each in axes.collections if isinstance(each, PathCollection) for dot in each.get_offsets()]  # type: ignore[union-attr]
        assert [(float(x), float(y)) for x, y in dots] == [(place, value) for place in (0, 1) for value in (3, 4, 5)]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["CE", "NTL-WAS"]
    assert "3 seeds left, 3 seeds right" in drawing.caption
    assert draw(SPEC, records[::2]) is None
