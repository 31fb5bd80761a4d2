"""Which values the README's figure shows."""

from dataclasses import replace

from matplotlib.collections import PathCollection

from ntl.results.figures.seeds import HELD, gaps
from ntl.results.spec import ColumnSpec


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


def test_a_dot_a_run_and_what_is_separated_from_ce_and_from_the_control(tiny_record, draw, on_evidence) -> None:
    metrics = ["interpolate/mape_median", "interpolate/accuracy"]
    shifts = {"ce": 0.0, "ce_digits": 0.0, "ntl_was": -1.0, "ntl_crps": 0.0, "ntl_number_level": 1.0}
    records = [
        tiny_record(loss, seed, metrics=dict.fromkeys(metrics, 4.0 + seed + shift + wobble))
        for loss, shift in shifts.items()
        for seed, wobble in ((1, 0.0), (2, 0.1 * shift), (3, -0.1 * shift))
    ]
    rows = [f"{name}, λ = 0.3" for name in ("NTL-WAS", "NTL-CRPS", "NTL, number level")]
    spec = on_evidence("hour_losses", rows=["CE", "CE + digit CE (control)", *rows])
    for panel, metric in zip(spec.panels, metrics, strict=True):
        panel.metric = metric
    # A fourth run of CE whose error is undefined, and a fifth without any.
    no_value = [tiny_record("ce", 4, metrics=dict.fromkeys(metrics)), tiny_record("ce", 5)]
    drawing = draw(spec, [*records, *no_value])
    left, right = drawing.figure.axes
    dots = [dot.tolist() for each in left.collections if isinstance(each, PathCollection) for dot in each.get_offsets()]  # type: ignore[union-attr]
    assert dots[:3] == [[5, 0], [6, 0], [7, 0]]
    assert dots[-3:] == [[6, 4], [7.1, 4], [7.9, 4]]
    assert [text.get_text() for text in left.get_yticklabels()] == [
        *("CE", "CE + digit CE\n(control)", "NTL-WAS", "NTL-CRPS", "NTL,\nnumber level"),
    ]
    assert {text.get_text(): text.get_color() for text in left.texts} == {
        "minus CE [95 % interval]": "#000000",
        "+0.00 [+0.00, +0.00]": HELD,
        "-1.00 [-1.25, -0.75]": "#000000",
        "+1.00 [+0.75, +1.25]": "#000000",
    }
    assert left.get_xlabel().endswith("\nnot separated from the control: NTL-CRPS")
    assert "a tiny GPT-2" in drawing.caption
    assert "By the interval worse than CE: NTL, number level +1.00 [+0.75, +1.25]" in drawing.caption
    # Of exact answers more are better.
    assert "By the interval better than CE: NTL, number level +1.000 [+0.752, +1.248]" in drawing.caption
    assert [axes.get_title("left") for axes in (left, right)] == [f"{p.title}, 3 to 4 seeds" for p in spec.panels]
