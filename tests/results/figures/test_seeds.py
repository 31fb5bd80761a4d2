"""Which values the README's figure shows."""

from dataclasses import replace

from ntl.results.figures.seeds import gaps
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
