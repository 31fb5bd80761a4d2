"""Shares of each kind of wrong answer."""

import numpy as np

from ntl.results.figures.mistakes import shares
from ntl.results.figures.spec import FigureSpec, PanelSpec

PANEL = PanelSpec("evidence", ["CE", "NTL-WAS, λ = 0.3"], "tiny", 1, split="interpolate", title="Products", axis="%")
SPEC = FigureSpec("Mistakes", "{model}, {seeds}. {findings}", "ntl.results.figures.mistakes.draw_mistakes", [PANEL])


def test_shares_of_all_answers_by_hand(tiny_record, draw) -> None:
    counts = [{"sign": 2, "digits": 1}, {"sign": 4}]
    records = [
        tiny_record("ce", seed, "multiplication", mistakes={"interpolate": kinds}, metrics={"interpolate/count": 8})
        for seed, kinds in enumerate(counts, start=1)
    ]
    silent = tiny_record("ntl_was", 1, "multiplication", metrics={"interpolate/count": 8})
    found = shares({1: records[0], 2: records[1], 3: silent}, "interpolate")
    np.testing.assert_array_equal(found["sign"], [0.25, 0.5])
    np.testing.assert_array_equal(found["digits"], [0.125, 0.0])
    drawing = draw(SPEC, [*records, silent])
    assert drawing is not None
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == ["sign", "several digits"]
    assert drawing.caption.endswith(
        "2 seeds. CE: 43.8% of the answers are wrong, above all sign 37.5%, several digits 6.2%."
    )
    assert draw(SPEC, [silent]) is None
