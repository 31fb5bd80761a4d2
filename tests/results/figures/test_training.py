"""Figure 4 and when a loss helps, by hand: epochs until a threshold, gains by the base's accuracy and by step."""


def test_medians_and_never_as_an_open_marker_at_the_end(tiny_record, draw, points) -> None:
    def record(loss: str, seed: int, step: int):
        about = {"steps": 40, "examples_seen": 300, "data": {"rows": {"train": 100}}}  # 3 epochs
        curves = {"probe_mape/1x1": [[step, 9.0], [40, 8.0]], "probe_mape/2x1": [[10, None], [40, 30.0]]}
        return tiny_record(loss, seed, curves=curves, **about)

    records = [record("ce", seed, step) for seed, step in enumerate((20, 20, 30, 30), 1)]
    records += [record("ntl_was", seed, step) for seed, step in enumerate((30, 30, 30, 40), 1)]
    figure, said = draw("figure4", records)
    never, reached = figure.axes
    assert [label.get_text() for label in never.get_yticklabels()] == ["1 × 1", "2 × 1"]
    words = ["none of the lengths\nwithin the training,\nwhatever the loss", "not reached"]
    assert [text.get_text() for text in never.texts] == words
    assert [text.get_text() for text in reached.texts] == words[1:]
    # Of 1.5 and 2.25 epochs the later; the other length at no step.
    shown = [(x, line.get_markerfacecolor()) for line, (x, _) in zip(reached.lines, points(reached), strict=True) if x]
    assert shown[:2] == [([2.25], "#000000"), ([3.0], "none")]
    assert "(paper): CE at 0 of 2 pairs, NTL-WAS at 0 of 2" in said["findings"]
    # In the mean of both pairs, 3 epochs for the one that is not reached: 0.375, 0.375, 0 and 0.375.
    found = "Not significantly different from CE: NTL-WAS +11.7% [-0.8, +25.7], n = 4, worse in 3 of 4."
    assert found in said["findings"]


METRIC = "interpolate/mae"


def test_when_a_loss_helps(tiny_record, draw, points) -> None:
    """Lower is better: 8 instead of 10 is 20% better. Seed 3 has no base, and seed 5 no run of CE."""

    def arm(loss: str, seed: int, score: float, *ce: float):
        curves = {"eval_ce": [[2 * place, value] for place, value in enumerate(ce, start=1)]}
        return tiny_record(loss, seed, metrics={METRIC: score}, curves=curves, base=f"base-s{seed}@100")

    bases = [tiny_record("ce", n, id=f"base-s{n}", metrics={"interpolate/accuracy": n / 4}) for n in (1, 2, 4)]
    arms = [arm("ce", seed, 10.0, 1.0, 1.0) for seed in (1, 2, 3, 4)]
    arms += [arm("ntl_was", seed, score, 0.75, 0.5) for seed, score in enumerate((8.0, 9.0, 1.0, 12.0, 1.0), start=1)]
    figure, said = draw("when", [*arms, *bases])
    left, right = figure.axes
    assert points(left)[0] == [[0.25, 0.5, 1.0], [20, 10, -20]]
    assert points(right)[0] == [[2, 4], [25, 50]]
    assert "accuracy: NTL-WAS: ρ = -1.00, n = 3, exact p = 0.333." in said["findings"]
