"""Figure 4 by hand: epochs until a threshold."""


def test_medians_and_never_as_an_open_marker_at_the_end(tiny_record, draw, points) -> None:
    def record(loss: str, seed: int, step: int):
        about = {"steps": 40, "examples_seen": 300, "data": {"rows": {"train": 100}}}  # 3 epochs
        curves = {"probe_mape/1x1": [[step, 9.0], [40, 8.0]], "probe_mape/2x1": [[10, None], [40, 30.0]]}
        return tiny_record(loss, seed, curves=curves, **about)

    records = [record("ce", seed, step) for seed, step in enumerate((20, 20, 30, 30), 1)]
    records += [record("ntl_was", seed, step) for seed, step in enumerate((10, 10, 20, 40), 1)]
    figure, told = draw("figure4", records)
    never, reached = figure.axes
    assert [label.get_text() for label in never.get_yticklabels()] == ["1 × 1", "2 × 1"]
    words = ["none of the lengths\nwithin the training,\nwhatever the loss", "not reached"]
    assert [text.get_text() for text in never.texts] == words
    assert [text.get_text() for text in reached.texts] == words[1:]
    # Of 1.5 and 2.25 epochs the later; the other length at no step.
    shown = [(x, line.get_markerfacecolor()) for line, (x, _) in zip(reached.lines, points(reached), strict=True) if x]
    assert shown[:2] == [([2.25], "#000000"), ([3.0], "none")]
    # NTL-WAS after 1.5 epochs; at the other length neither.
    assert told == {"seeds": "4 seeds", "sooner": 1, "later": 0, "pairs": 2, "paper": "none"}
