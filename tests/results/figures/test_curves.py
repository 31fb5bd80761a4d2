"""Training curves by hand."""

import numpy as np

from ntl.results.figures.training import curve


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
