"""Which values the README's figure shows."""

from dataclasses import replace

import pytest
from matplotlib.collections import PathCollection

from ntl.config import UserError
from ntl.results.figures.make_figures import RESULTS
from ntl.results.figures.seeds import HELD, gaps, values_by_seed
from ntl.results.figures.spec import Source, load_figure_spec
from ntl.results.spec import ColumnSpec

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
    assert found == {"ce": {1: 3.0, 2: 2.0}, "ntl_was": {1: 2.5, 2: None}}


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
        assert [(float(x), float(y)) for x, y in dots] == [(value, place) for place in (0, 1) for value in (3, 4, 5)]
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == ["CE", "NTL-WAS"]
    assert [axes.get_title("left") for axes in drawing.figure.axes] == [f"{p.title}, 3 seeds" for p in SPEC.panels]
    assert draw(SPEC, records[::2]) is None


def test_what_the_intervals_tell_apart_by_hand() -> None:
    base = {1: 3.0, 2: 4.0, 3: 5.0}
    values = {
        "ce": base,
        "ntl_was": {1: 2.0, 2: 2.9, 3: 4.1},  # -1, -1.1, -0.9: ± 4.3027 × 0.1 / √3
        "ntl_crps": {1: 2.0, 2: 2.0, 3: 2.0},  # -1, -2, -3: ± 2.484
        "ntl_number_level": {1: 4.0, 2: 5.1, 3: 5.9},
    }
    lower = ColumnSpec(metric="test/mae", header="error", format=".3f")
    found = gaps(values, "ce", lower)
    assert found.text("ntl_was") == "-1.000 [-1.248, -0.752]"
    assert [found.separated(sign) for sign in (1, -1, 0)] == [["ntl_was"], ["ntl_number_level"], ["ntl_crps"]]
    assert found.sentence() == (
        "By the interval better than CE: NTL-WAS -1.000 [-1.248, -0.752] (exact p = 0.25). "
        "By the interval worse than CE: NTL, number level +1.000 [+0.752, +1.248] (exact p = 0.25). "
        "Not separated from CE: NTL-CRPS -2.000 [-4.484, +0.484]."
    )
    assert gaps(values, "ce", replace(lower, metric="test/r2")).separated(1) == ["ntl_number_level"]
    # Those before the base are not compared with it again, nor is anything with a base that has no run.
    assert list(gaps(values, "ntl_crps", lower).by_loss) == ["ntl_number_level"]
    assert gaps(values, "ce_digits", lower).sentence() == ""
    # One seed without a value: the others alone would be those on which the loss did well.
    found = gaps({"ce": base, "ntl_was": {1: 2.0, 2: None, 3: 4.1}}, "ce", lower)
    assert (found.text("ntl_was"), found.separated(0)) == ("undefined", [])
    assert found.sentence() == "Undefined for a seed: NTL-WAS."


def test_the_figure_says_what_is_separated_from_ce_and_what_not_from_the_control(tiny_record, draw) -> None:
    shifts = {"ce": 0.0, "ce_digits": 0.0, "ntl_was": -1.0, "ntl_number_level": 1.0}
    records = [
        tiny_record(loss, seed, dataset, metrics={panel.metric: 4.0 + shift + seed + wobble})
        for dataset, panel in zip(DATASETS, SPEC.panels, strict=True)
        for loss, shift in shifts.items()
        for seed, wobble in ((1, 0.0), (2, 0.1 * shift), (3, -0.1 * shift))
    ]
    drawing = draw(SPEC, records)
    assert drawing is not None
    left = drawing.figure.axes[0]
    assert {text.get_text(): text.get_color() for text in left.texts} == {
        "minus CE [95 % interval]": "#000000",
        "+0.000 [+0.000, +0.000]": HELD,
        "-1.000 [-1.248, -0.752]": "#000000",
        "+1.000 [+0.752, +1.248]": "#000000",
    }
    assert "not separated" not in left.get_xlabel()
    assert "a tiny GPT-2" in drawing.caption
    assert "By the interval worse than CE: NTL, number level +1.000 [+0.752, +1.248]" in drawing.caption
    same = [record for record in records if record.config["loss"]["name"] != "ntl_was"]
    same += [replace(r, config={**r.config, "loss": {"name": "ntl_was", "weight": 0.3}}) for r in same[:3] + same[9:12]]
    drawing = draw(SPEC, same)
    assert drawing is not None
    assert drawing.figure.axes[0].get_xlabel().endswith("\nnot separated from the control: NTL-WAS")


def test_a_metric_that_the_table_does_not_print_is_one_line(tiny_record, draw) -> None:
    wrong = replace(SPEC, panels=[replace(SPEC.panels[0], metric="test/rouge1")])
    with pytest.raises(UserError, match=r"tiny_losses\.yaml: table 'evidence' has no column 'test/rouge1' in block 0"):
        draw(wrong, [tiny_record("ce", 1, metrics={"test/rouge1": 1.0})])
