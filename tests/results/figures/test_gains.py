"""Which comparisons the figure of gains shows, and their size."""

from functools import cache

import pytest

from ntl.config.folders import RESULTS
from ntl.results.claims import load_claims
from ntl.results.figures.gains import gains
from ntl.results.figures.spec import FigureSpec, Source

METRIC = "test/rmse_truth"


def spec(*claims: str) -> FigureSpec:
    return FigureSpec("Gains", "{left} left out. {findings}", "ntl.results.figures.gains.draw_gains", claims=[*claims])


@pytest.fixture
def records(tiny_record):
    """The control is 10, 11, 12; NTL-WAS is 1, 1.1 and 0.9 below it."""
    values = {"ce_digits": (10.0, 11.0, 12.0), "ntl_was": (9.0, 9.9, 11.1)}
    return [
        tiny_record(loss, seed, "noisy_numbers", metrics={METRIC: value, f"{METRIC}:mean": 20.0})
        for loss, by_seed in values.items()
        for seed, value in enumerate(by_seed, start=1)
    ]


def test_gains_in_percent_by_hand(records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntl.results.figures.gains.load_claims", cache(load_claims))
    found = gains(Source(spec("distance", "weight on digits"), records, RESULTS))
    ((gain,), left) = found["distance"]
    # Lower is better: a difference of -1 ± 4.3027 · 0.1 / √3 of 11 is a gain.
    assert (gain.n, left) == (3, 0)
    assert (gain.mean, gain.low, gain.high) == pytest.approx((100 / 11, 100 * 0.7516 / 11, 100 * 1.2484 / 11), rel=1e-3)
    assert (gain.setting, gain.against) == ("noisy numbers, tiny GPT-2, tiny: RMSE to the noise-free target", "")
    assert found["weight on digits"] == ([], 0)
    # A row that beats no constant answer is counted and not shown.
    for record in records:
        record.metrics[f"{METRIC}:mean"] = 1.0
    assert gains(Source(spec("distance"), records, RESULTS))["distance"] == ([], 1)
