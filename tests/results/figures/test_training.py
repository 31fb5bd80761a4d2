"""Figure 4 and when a loss helps, by hand: epochs until a threshold, gains by the base's accuracy and by step."""

import pytest

from ntl.results.figures.effects import gains_by_base


def test_medians_and_never_as_an_open_marker_at_the_end(tiny_record, draw, on_evidence, points) -> None:
    def record(loss: str, seed: int, step: int):
        about = {"steps": 40, "examples_seen": 300, "data": {"rows": {"train": 100}}}  # 3 epochs
        curves = {"probe_mape/1x1": [[step, 9.0], [40, 8.0]], "probe_mape/2x1": [[10, None], [40, 30.0]]}
        return tiny_record(loss, seed, curves=curves, **about)

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


METRIC = "interpolate/mape_median"


@pytest.fixture
def arm(tiny_record):
    def make(loss: str, seed: int, score: float, *ce: float):
        curves = {"eval_ce": [[2 * place, value] for place, value in enumerate(ce, start=1)]}
        return tiny_record(loss, seed, metrics={METRIC: score}, curves=curves, base=f"base-s{seed}@100")

    return make


@pytest.fixture
def bases(tiny_record):
    return [
        tiny_record("ce", seed, id=f"base-s{seed}", metrics={"interpolate/accuracy": seed / 4}) for seed in (1, 2, 4)
    ]


def test_the_gain_of_each_seed_stands_with_its_base(arm, bases) -> None:
    have = {1: arm("ntl_was", 1, 8.0), 2: arm("ntl_was", 2, 5.0), 3: arm("ntl_was", 3, 1.0), 4: arm("ntl_was", 4, 1.0)}
    against = {1: arm("ce", 1, 10.0), 2: arm("ce", 2, 4.0), 3: arm("ce", 3, 2.0)}
    known = {record.id: record for record in bases}
    # Lower is better: 8 instead of 10 is 20 % better, 5 instead of 4 is 25 % worse; seeds 3 and 4 lack a part.
    assert gains_by_base(have, against, known, METRIC, -1) == [(0.25, 20.0), (0.5, -25.0)]
    assert gains_by_base(have, against, known, METRIC, 1)[0][1] == -20.0


def test_when_a_loss_helps(arm, bases, draw, on_evidence, points) -> None:
    arms = [arm("ce", seed, 10.0, 1.0, 1.0) for seed in (1, 2, 4)]
    arms += [arm("ntl_was", seed, score, 0.75, 0.5) for seed, score in ((1, 8.0), (2, 9.0), (4, 12.0))]
    spec = on_evidence("when", rows=["CE", "NTL-WAS, λ = 0.3"])
    spec.panels[0].metric = METRIC
    drawing = draw(spec, [*arms, *bases])
    left, right = drawing.figure.axes
    assert points(left)[0] == [[0.25, 0.5, 1.0], [20, 10, -20]]
    assert points(right)[0] == [[2, 4], [25, 50]]
    assert "accuracy: NTL-WAS: ρ = -1.00, n = 3, exact p = 0.333." in drawing.caption
