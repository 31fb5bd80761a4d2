"""What the plan of the readings names second: its statistics, by hand and against scipy."""

import runpy

import numpy as np
import pytest
from scipy.stats import ttest_rel

from ntl.config.folders import ROOT
from ntl.results import RunRecord
from ntl.results.record import pack_errors

PLAN = runpy.run_path(str(ROOT / "scripts" / "readings_plan.py"))


def test_the_share_of_a_gain_and_its_interval() -> None:
    gains = np.array([0.1, 0.2, 0.4])
    assert PLAN["share_explained"](gains, 0.5 * gains) == pytest.approx((0.5, 0.5, 0.5))  # in every resample
    share, low, high = PLAN["share_explained"](gains, np.array([0.1, 0.0, 0.4]))
    assert share == pytest.approx(5 / 7)
    # The least of 27 resamples has the second seed alone, the largest never has it: each has more than 2.5% of them.
    assert (low, high) == pytest.approx((0.0, 1.0))


def test_two_cells_within_seeds_are_a_paired_t_test() -> None:
    values = np.random.default_rng(1).normal(size=(7, 2))
    expected = ttest_rel(values[:, 0], values[:, 1])
    assert PLAN["same_in_all_cells"](values) == pytest.approx((expected.statistic**2, expected.pvalue))


def test_cells_within_seeds_by_hand() -> None:
    f, _ = PLAN["same_in_all_cells"](np.array([[0.0, 1.5, 4.5], [2.0, 2.5, 7.5]]))
    # Means of cells are 1, 2 and 6, and of all 3; what neither cell nor seed explains is 0.5, four times.
    assert f == pytest.approx((2 * (4 + 1 + 9) / 2) / (4 * 0.25 / 2))


def test_resamples_of_seeds_and_rows() -> None:
    first = [np.array([1.0, 2.0, np.nan, 4.0] * 5), np.array([3.0] * 20)]
    assert PLAN["resampled"](first, [errors - 0.5 for errors in first], 1)[0] == pytest.approx(-0.5)
    gap, low, high = PLAN["resampled"]([np.zeros(9)] * 3, [np.full(9, value) for value in (1.0, 2.0, 3.0)], 999)
    assert (gap, low, high) == pytest.approx((2.0, 1.0, 3.0))  # all seeds the same has 1 in 27 for each


def test_each_run_is_read_as_its_validation_rows_say() -> None:
    metrics = {"validation/mae": 2.0, "validation/mae@median": 1.0, "test/mae": 5.0, "test/mae@median": 7.0}
    undefined = {**metrics, "validation/mae@median": None}
    runs = {
        seed: RunRecord(id=f"r{seed}", overrides=[], config={}, seed=seed, metrics=of)
        for seed, of in ((1, metrics), (2, undefined))
    }
    assert PLAN["chosen"]("validation/mae", "test/mae", runs) == {1: 7.0, 2: 5.0}


def test_an_absurd_answer_and_none_count_as_the_limit() -> None:
    errors = {"test": pack_errors(np.array([1.0, 1e9, np.nan, 7.0]))}
    run = RunRecord(id="r", overrides=[], config={}, seed=1, metrics={}, errors=errors)
    assert PLAN["limited"]({1: run}) == {1: pytest.approx(((1 + 100**2 + 100**2 + 49) / 4) ** 0.5)}
