"""Effects of a row over another, by hand: t(2) = 4.302653 and t(5) = 2.570582 of the 95% interval."""

import math
import re
from dataclasses import replace
from itertools import product
from operator import mul
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ntl.results import RunRecord, write_record
from ntl.results.effects import Effect, Outcome, beats, effect, holm, sign_flip_p, summarize
from ntl.results.readings import compare_readings, compare_runs, labels, show_sweep
from ntl.results.spec import ColumnSpec

ERROR, RATE = ColumnSpec("test/mae", "MAE"), ColumnSpec("test/accuracy", "accuracy")


def seeds(*values: float | None) -> dict[int, float | None]:
    return dict(enumerate(values, start=1))


def found(column: ColumnSpec, base: tuple[float | None, ...], other: tuple[float | None, ...]) -> Effect:
    result = effect(column, [seeds(*base)], [seeds(*other)])
    assert result is not None
    return result


def test_errors_are_compared_by_their_ratio() -> None:
    # Log ratios 0.1, 0.2, 0.3: 0.2 ± 4.302653 · 0.1 / √3 = 0.2 ± 0.248413.
    worse = found(ERROR, (1.0, 10.0, 100.0), tuple(base * math.exp(d) for base, d in ((1, 0.1), (10, 0.2), (100, 0.3))))
    assert worse.text == "+22.1% [-4.7, +56.6], n = 3, worse in 3 of 3"
    assert worse.gain == pytest.approx((-0.448413, 0.048413), abs=1e-6)
    assert worse.power == "; half width 28%"
    assert worse.p(says_better=True) == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3], 0).pvalue)
    # That nothing is lost is tested against a loss of the band, 5%.
    assert worse.p(says_better=False) == pytest.approx(stats.ttest_1samp([0.1, 0.2, 0.3], math.log(1.05)).pvalue)
    assert found(ERROR, (2.0, 4.0), (1.0, 8.0)).text == "-50.0%, +100.0%, n = 2"


def test_rates_are_compared_by_their_difference() -> None:
    # Six equal gains but one: mean 0.11, sd 0.0244949, half width 2.570582 · 0.01 = 0.0257.
    better = found(RATE, (0.5,) * 6, (0.6, 0.6, 0.6, 0.6, 0.6, 0.66))
    assert better.text == "+0.110 [+0.084, +0.136], n = 6, better in 6 of 6, exact p = 0.031"
    assert better.band == pytest.approx(0.025)


def test_bits_are_compared_by_their_difference_and_5_percent_of_the_probability_matter() -> None:
    # 0.1, 0.2, 0.3 bits more: 0.2 ± 0.248413; a twentieth more probability is log2(1.05) = 0.070389 bits.
    worse = found(ColumnSpec("test/bits", "bits"), (1.0, 10.0, 100.0), (1.1, 10.2, 100.3))
    assert worse.text == "+0.200 [-0.048, +0.448], n = 3, worse in 3 of 3"
    assert worse.band == pytest.approx(0.070389, abs=1e-6)
    assert worse.nats == math.log(2)


def test_groups_are_averaged_within_a_seed() -> None:
    base = [seeds(1.0, 1.0, 1.0), seeds(1.0, 1.0, 1.0, 5.0)]
    other = [seeds(2.0, 1.0, 4.0), seeds(0.5, 4.0, 1.0)]
    both = effect(ERROR, base, other)
    assert both is not None
    assert both.summary.values == pytest.approx((0.0, math.log(2), math.log(2)))


def test_what_is_undefined_or_not_there() -> None:
    summary = summarize([1.0, None, math.nan, math.inf])
    assert (summary.n, summary.undefined, summary.mean, summary.sd) == (1, 3, 1.0, None)
    assert effect(ERROR, [seeds(1.0)], [{2: 1.0}]) is None
    for other in ((1.0, None, 1.0), (1.0, 0.0, 1.0)):  # an error of 0 has no logarithm
        undefined = found(ERROR, (1.0, 1.0, 1.0), other)
        assert undefined.text == "undefined for 1 seed"
        assert undefined.outcome(says_better=True) is Outcome.inconclusive


@pytest.mark.parametrize(
    ("ratios", "better", "no_worse"),
    [
        ((0.80, 0.81, 0.79), Outcome.supported, Outcome.supported),
        ((1.20, 1.21, 1.19), Outcome.contradicted, Outcome.contradicted),
        ((0.99, 0.98, 0.98), Outcome.equivalent, Outcome.supported),  # a gain, but too small to matter
        ((0.5, 0.9, 0.9), Outcome.inconclusive, Outcome.inconclusive),
    ],
)
def test_the_outcome(ratios: tuple[float, ...], better: Outcome, no_worse: Outcome) -> None:
    result = found(ERROR, (1.0, 1.0, 1.0), ratios)
    assert (result.outcome(says_better=True), result.outcome(says_better=False)) == (better, no_worse)


def test_a_baseline_beats_a_heuristic_with_its_whole_interval() -> None:
    assert beats(ERROR, [seeds(1.0, 1.1, 0.9)], 2.0)
    assert not beats(ERROR, [seeds(1.0, 1.1, 0.9)], 1.1)  # the mean does, the interval does not
    assert not beats(ERROR, [seeds(1.0, 1.1)], 2.0)  # two seeds have no interval
    assert beats(RATE, [seeds(0.5, 0.5, 0.5)], 0.4)
    assert not beats(RATE, [seeds(0.5, 0.5, 0.5)], 0.5)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=9))
def test_sign_flips_are_those_of_every_sign(tenths: list[int]) -> None:
    """Also where sums that are equal differ in their last digits, as tenths do."""
    sums = [sum(map(mul, signs, tenths)) for signs in product((1, -1), repeat=len(tenths))]
    expected = fmean(abs(each) >= abs(sum(tenths)) for each in sums)
    p = sign_flip_p(tuple(tenth / 10 for tenth in tenths))
    assert p == pytest.approx(expected, abs=1e-12)
    assert 2.0 ** (1 - len(tenths)) <= p <= 1
    assert sign_flip_p((1.0,) * 16) == 2.0**-15


def test_holm_by_hand() -> None:
    # Sorted .01, .02, .04, .5: times 4, 3, 2, 1 gives .04, .06, .08, .5.
    assert holm([0.04, 0.01, 0.5, 0.02]) == pytest.approx([0.08, 0.04, 0.5, 0.06])
    # .03 times 2 is below .02 times 3, which came before: never below.
    assert holm([0.02, 0.03, 0.025]) == pytest.approx([0.06, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


# ---- what a sweep prints at its end

FILES = {"train.jsonl": "a", "test.jsonl": "b"}
WAS = "loss=ntl_was, loss.weight=0.3"
ACCURACY, MAE = "test accuracy ↑", "test MAE ↓"


@pytest.fixture
def made(make_record):
    """``made(loss, seed, accuracy)``: a run with these scores."""

    def make(loss: str, seed: int, accuracy: float | None, **changes) -> RunRecord:
        metrics = {"test/count": 4.0, "test/accuracy": accuracy, "test/mae": 2.0, "test/rmse": 1.0}
        return make_record(loss, seed, metrics, **{"data": {"files": FILES}, **changes})

    return make


def test_means_and_differences_by_hand(made) -> None:
    """0.1, 0.2 and 0.3 more: mean 0.2, t interval 0.2 ± 4.302653 · 0.1 / √3."""
    base = [made("ce", seed, 0.5) for seed in (1, 2, 3)]
    runs = [*base, *(made("ntl_was", seed, 0.5 + 0.1 * seed) for seed in (1, 2, 3))]
    found = compare_runs(labels(runs), runs)
    assert [*found.index] == [(loss, metric) for loss in ("loss=ce", WAS) for metric in (ACCURACY, MAE)]
    assert [*found.loc["loss=ce", ACCURACY]] == ["0.500 ± 0.000", 3, ""]
    assert [*found.loc[WAS, ACCURACY]] == ["0.700 ± 0.100", 3, "+0.200 [-0.048, +0.448], n = 3, better in 3 of 3"]
    assert [*found.loc[WAS, MAE]] == ["2.000 ± 0.000", 3, "+0.0% [+0.0, +0.0], n = 3, equal in 3 of 3"]


def test_what_cannot_be_compared_says_why(made) -> None:
    other = {"files": {**FILES, "test.jsonl": "c"}}
    runs = [made("ce", 1, 0.5), made("gce", 1, 0.5, data=other), made("ntl_was", 2, 0.5), made("ntl_crps", 1, None)]
    found = compare_runs(labels(runs), runs)
    assert found.loc["loss=gce, loss.weight=0.3", "effect"].tolist() == ["none: other test data"] * 2
    assert found.loc[WAS, "effect"].tolist() == ["none: no seed in common"] * 2
    assert [*found.loc["loss=ntl_crps, loss.weight=0.3", ACCURACY]] == ["undefined", 0, "undefined for 1 seed"]
    runs = [made("ce", 1, 0.5), made("ce", 2, None), read_by_median(made("ntl_was", 1, 0.5)), made("gce", 1, 0.25)]
    found = compare_runs(labels(runs), runs)
    assert [*found.loc["loss=ce", ACCURACY]] == ["0.500, undefined in 1", 1, ""]
    assert found.loc[WAS, "effect"].tolist() == ["none: another decoding"] * 2
    assert found.loc["loss=gce, loss.weight=0.3", "effect"].iloc[0].startswith("-0.250, n = 1")
    assert labels([made("ce", 1, 0.5), made("ce", 2, 0.5)]) == ["all runs"] * 2  # but for the seed they are one run


def read_by_median(record: RunRecord) -> RunRecord:
    return replace(record, config={**record.config, "decoding": {**record.config["decoding"], "name": "median"}})


def test_each_reading_is_compared_with_the_same_one_of_ce_and_with_ce_greedy(made) -> None:
    """Without CE the first row takes its place; the advice follows from the intervals."""

    def run(loss: str, seed: int, greedy: float, expected: float, lost: float = 0.0) -> RunRecord:
        record = made(loss, seed, 0.5)
        record.metrics |= {"test/mae": greedy, "test/mae@expectation": expected, "test/mae:mean": 9.0}
        record.metrics |= {"test/mae:ridge": 0.5, "test/unparsable": lost}
        record.metrics = {"validation/mae": 7.0, **record.metrics}
        return replace(record, config={**record.config, "extra_decodings": {"expectation": {}}})

    def lines(runs: list[RunRecord]) -> list[str]:
        return [" ".join(line.split()) for line in compare_readings(labels(runs), runs)]

    losses = (("ntl_was", 4.0, 2.0, 0.25), ("ce", 2.0, 1.0, 0.0))
    runs = [run(loss, seed, *rest) for seed in (1, 2, 3) for loss, *rest in losses]
    best, ridge, *table = lines(runs)
    assert best.startswith("Less error than loss=ce, greedy: loss=ce, expectation, -50.0%")
    assert ridge.startswith("Ridge regression on characters has less error than all of these")
    worse, better = "+100.0% [+100.0, +100.0]", "-50.0% [-50.0, -50.0]"
    assert table == [
        "test MAE from loss=ce unparsable",
        "same reading greedy",
        f"{WAS} greedy 4.000 ± 0.000 {worse} {worse} 0.25",
        f"expectation 2.000 ± 0.000 {worse} +0.0% [+0.0, +0.0]",
        "loss=ce greedy 2.000 ± 0.000",
        f"expectation 1.000 ± 0.000 {better}",
        "ridge regression 0.500",
        "best constant 9.000",
    ]
    # Runs whose own decoding is another one are not read in the same way.
    assert f"{WAS} median 4.000 ± 0.000 {worse} 0.25" in lines(
        [read_by_median(r) if r in runs[::2] else r for r in runs]
    )
    small = [run("ce", 1, 4e-5, 1.25e-5)]
    small[0].metrics |= {"test/mae:median": 2e-4, "test/mae:ridge": 1.5e-5, "test/mae:mean": 3e-4}
    errors = ["4e-05", "expectation 1.25e-05", "ridge regression 1.5e-05", "best constant 0.0002"]
    assert all(any(want in line for line in lines(small)) for want in errors)
    assert [*compare_runs(labels(small), small)["mean"]] == ["0.500", "4e-05"]
    assert lines(runs[:2])[0].startswith("One or two seeds show no difference")
    assert lines(runs[::2])[2:5] == [
        "test MAE from greedy unparsable",
        "greedy 4.000 ± 0.000 0.25",
        f"expectation 2.000 ± 0.000 {better}",
    ]
    assert compare_readings(["a"], [replace(runs[1], config={**runs[1].config, "extra_decodings": {}})]) == []


def test_what_a_sweep_prints(made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = made("ce", 1, 0.5, id="other", device="another")
    other.config["dataset"] = {"name": "arithmetic"}
    second = read_by_median(made("ntl_was", 1, 0.75, id="second", git={"commit": "abc"}))
    for run in (made("ce", 1, 0.5, id="first"), second, other):
        write_record(tmp_path / run.id / "record.json", run)
    # The record of the first is of an earlier command, which named no model.
    runs = {"first": "loss=ce", "second": "loss=ntl_was", "other": "loss=ce", "failed": "loss=gce"}
    show_sweep({tmp_path / name: ["model=gpt2_tiny", word, "seed=1"] for name, word in runs.items()})
    printed = capsys.readouterr().out
    assert "\nloss=ntl_was test accuracy" in printed
    assert printed.index("noisy_numbers\n") < printed.index("none: another decoding") < printed.index("arithmetic\n")
    assert re.search(r"^Warning: the runs have different decodings: greedy.*, median.*\.$", printed, re.MULTILINE)
    assert "Warning: the runs have different commits: 0123456789, abc.\n" in printed
    assert printed.splitlines()[-1] == "1 of 4 runs have no record: failed"
