"""When a loss helps, by hand: gains by the base's accuracy and by step."""

import numpy as np
import pytest

from ntl.config.folders import RESULTS
from ntl.results import load_records
from ntl.results.figures.spec import Source, load_figure_spec
from ntl.results.figures.when import Arm, correlation, draw_when, gains_by_base, gains_by_step
from ntl.results.record import RunRecord

METRIC = "interpolate/mae"


def arm(seed: int, mae: float, *ce: float, base: str = "b") -> RunRecord:
    curves = {"eval_ce": [[2 * place, value] for place, value in enumerate(ce, start=1)]}
    config = {"base": f"{base}{seed}@100"}
    return RunRecord(id=f"{mae}", overrides=[], config=config, seed=seed, metrics={METRIC: mae}, curves=curves)


def base(seed: int, accuracy: float) -> RunRecord:
    return RunRecord(id=f"b{seed}", overrides=[], config={}, seed=seed, metrics={"interpolate/accuracy": accuracy})


def test_the_gain_of_each_seed_stands_with_its_base() -> None:
    have = {1: arm(1, 8.0), 2: arm(2, 5.0), 3: arm(3, 1.0, base="lost"), 4: arm(4, 1.0)}
    against = {1: arm(1, 10.0), 2: arm(2, 4.0), 3: arm(3, 2.0)}
    bases = {record.id: record for record in (base(1, 0.25), base(2, 0.5), base(4, 0.75))}
    # Lower is better: 8 instead of 10 is 20 % better, 5 instead of 4 is 25 % worse; seeds 3 and 4 lack a part.
    assert gains_by_base(have, against, bases, METRIC, -1) == [Arm(1, 0.25, 20.0), Arm(2, 0.5, -25.0)]
    assert gains_by_base(have, against, bases, METRIC, 1)[0].gain == -20.0


def test_ranks_and_their_exact_p() -> None:
    # In the same order: one of 6 orders, and its reverse.
    assert correlation([(1, 10), (2, 100), (3, 1000)]) == pytest.approx((1.0, 2 / 6))
    # Ranks 1 2 3 4 against 2 1 4 3: 1 - 6 · 4 / (4 · 15) = 0.6; 10 of the 24 orders have |ρ| of 0.6 or more.
    assert correlation([(1, 2), (2, 1), (3, 4), (4, 3)]) == pytest.approx((0.6, 10 / 24))


def test_gains_by_step_are_paired_by_seed() -> None:
    have = {1: arm(1, 1.0, 0.9, 0.5), 2: arm(2, 1.0, 1.1, 0.75), 3: arm(3, 1.0, 1.0, 1.0)}
    against = {1: arm(1, 1.0, 1.0, 1.0), 2: arm(2, 1.0, 1.0, 0.5)}
    steps, values = gains_by_step(have, against, "eval_ce")
    assert steps.tolist() == [2, 4]
    np.testing.assert_allclose(values, [[10, 50], [-10, -50]])


def test_of_the_published_runs_it_is_drawn_and_of_none_it_is_not() -> None:
    spec = load_figure_spec("when")
    drawing = draw_when(spec, Source(load_records([RESULTS / "runs"]), RESULTS))
    assert drawing is not None
    assert "Rank correlation of the gain with the base's accuracy: CE + digit CE (control): ρ = " in drawing.caption
    left, right = drawing.figure.axes
    assert len(left.lines) == len(right.lines) == 5  # four losses and the line at 0
    assert draw_when(spec, Source([], RESULTS)) is None
