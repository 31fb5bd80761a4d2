import math
from dataclasses import replace

import numpy as np
import pytest

from ntl.results.figures.training import curve, epochs_until


def test_steps_that_every_seed_has(tiny_record) -> None:
    records = {
        1: tiny_record("ce", 1, curves={"ce": [[25, 3.0], [50, 2.0], [75, 1.0]]}),
        2: tiny_record("ce", 2, curves={"ce": [[50, 4.0], [75, None], [100, 1.0]]}),
        3: tiny_record("ce", 3),
    }
    steps, values = curve(records, "ce")
    assert steps.tolist() == [50]
    assert values.tolist() == [[2.0], [4.0]]
    assert curve(records, "ntl")[0].size == 0


def test_mean_and_range_over_seeds(tiny_record, draw) -> None:
    records = [tiny_record("ntl_was", seed, curves={"ce": [[25, float(seed)], [50, 1.0]]}) for seed in (1, 3)]
    drawing = draw("training_curves", records)
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == [2, 1]
    band = axes.collections[0].get_paths()[0].vertices
    assert {(25.0, 1.0), (25.0, 3.0), (50.0, 1.0)} <= {tuple(map(float, point)) for point in band}  # type: ignore[union-attr]
    assert "2 seeds a loss" in drawing.caption
    assert draw("training_curves", []) is None
    assert draw("training_curves", [tiny_record("ce", 1)]) is None


CURVES = {"probe_mape/1x1": [[10, 40.0], [20, 9.0], [30, 12.0], [40, 0.4]], "probe_mape/2x1": [[10, None], [40, 30.0]]}


@pytest.fixture
def probed(tiny_record):
    def make(loss: str, seed: int, curves=CURVES):
        about = {"steps": 40, "examples_seen": 300, "data": {"rows": {"train": 100}}}
        return tiny_record(loss, seed, "multiplication", curves=curves, **about)

    return make


def test_the_first_time_below_the_threshold_in_epochs(probed) -> None:
    record = probed("ce", 1)  # 40 steps are 3 epochs
    assert epochs_until(record, "1x1", 10.0) == 1.5
    assert epochs_until(record, "1x1", 9.0) == 3.0
    assert epochs_until(record, "1x1", 0.4) == math.inf
    assert epochs_until(record, "2x1", 10.0) == math.inf
    assert epochs_until(record, "2x2", 10.0) is None


def test_never_is_an_open_marker_at_the_end(probed, tiny_record, draw, on_evidence) -> None:
    figure4 = on_evidence("figure4")
    assert draw("figure4") is None
    assert draw(figure4, [tiny_record("ce", 1, "multiplication")]) is None
    later = {**CURVES, "probe_mape/1x1": [[30, 9.0], [40, 8.0]]}
    drawing = draw(replace(figure4, panels=figure4.panels[1:]), [probed("ce", 1), probed("ce", 2, later)])
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1 × 1", "2 × 1"]
    first, second = [line for line in axes.lines if len(line.get_xdata())]  # type: ignore[arg-type]
    # Of 1.5 and 2.25 epochs the later; never twice.
    assert (list(first.get_xdata()), first.get_markerfacecolor()) == ([2.25], "#000000")  # type: ignore[arg-type]
    assert (list(second.get_xdata()), second.get_markerfacecolor()) == ([3.0], "none")  # type: ignore[arg-type]
    assert "2 seeds a loss" in drawing.caption


def test_the_caption_says_where_nothing_is_shown_and_what_is_not_separated(probed, draw, on_evidence) -> None:
    def at(step: int):
        return {"probe_mape/1x1": [[step, 9.0], [40, 8.0]]}

    records = [probed("ce", seed, at(20)) for seed in (1, 2, 3)]
    records += [probed("ntl_was", seed, at(step)) for seed, step in ((1, 30), (2, 30), (3, 20))]
    drawing = draw(on_evidence("figure4"), records)
    assert drawing is not None
    assert "(paper): CE at 0 of 1 pairs, NTL-WAS at 0 of 1 pairs, so nothing is shown there." in drawing.caption
    # 40 steps are 3 epochs: +0.75, +0.75 and 0.
    assert "Not separated from CE: NTL-WAS +0.500 [-0.576, +1.576]." in drawing.caption
    assert "The paper's figure is of GPT-2 Small, this one of a tiny GPT-2." in drawing.caption
    left, right = drawing.figure.axes
    words = ["none of the lengths\nwithin the training,\nwhatever the loss", "not reached"]
    assert [text.get_text() for text in left.texts] == words
    assert list(right.texts) == []
