"""Figure 4 by hand: epochs until a threshold."""

import pytest


@pytest.fixture
def probed(tiny_record):
    """A run whose 40 steps are 3 epochs."""

    def make(loss: str, seed: int, **probes: list):
        about = {"steps": 40, "examples_seen": 300, "data": {"rows": {"train": 100}}}
        return tiny_record(
            loss, seed, curves={f"probe_mape/{pair[1:]}": each for pair, each in probes.items()}, **about
        )

    return make


def test_medians_and_never_as_an_open_marker_at_the_end(probed, tiny_record, draw, on_evidence, points) -> None:
    def record(loss: str, seed: int, step: int):
        return probed(loss, seed, _1x1=[[step, 9.0], [40, 8.0]], _2x1=[[10, None], [40, 30.0]])

    records = [record("ce", seed, step) for seed, step in enumerate((20, 20, 30, 30), 1)]
    records += [record("ntl_was", seed, step) for seed, step in enumerate((30, 30, 30, 40), 1)]
    drawing = draw(on_evidence("figure4"), [*records])
    never, reached = drawing.figure.axes
    assert [label.get_text() for label in never.get_yticklabels()] == ["1 × 1", "2 × 1"]
    words = ["none of the lengths\nwithin the training,\nwhatever the loss", "not reached"]
    assert [text.get_text() for text in never.texts] == words
    assert [text.get_text() for text in reached.texts] == words[1:]
    # Of 1.5 and 2.25 epochs the later; the other length at no step.
    shown = [(x, line.get_markerfacecolor()) for line, (x, _) in zip(reached.lines, points(reached), strict=True) if x]
    assert shown[:2] == [([2.25], "#000000"), ([3.0], "none")]
    assert "(paper): CE at 0 of 2 pairs, NTL-WAS at 0 of 2" in drawing.caption
    # In the mean of both pairs, 3 epochs for the one that is not reached: 0.375, 0.375, 0 and 0.375.
    assert (
        "Not significantly different from CE: NTL-WAS +11.7% [-0.8, +25.7], n = 4, worse in 3 of 4." in drawing.caption
    )
    assert "The paper's figure is of GPT-2 Small, this one of a tiny GPT-2." in drawing.caption
