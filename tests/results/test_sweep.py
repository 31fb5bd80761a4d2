"""What a sweep prints at its end: what differs between its runs, paired differences by hand, and what is no pair."""

from dataclasses import replace
from pathlib import Path

import pytest

from ntl.results import RunRecord, write_record
from ntl.results.readings import compare_readings, compare_runs, labels, show_sweep

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
    assert [*found.loc["loss=ntl_crps, loss.weight=0.3", ACCURACY]] == ["undefined", 1, "undefined for 1 seed"]
    assert labels([made("ce", 1, 0.5), made("ce", 2, 0.5)]) == ["all runs"] * 2  # but for the seed they are one run


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
    for run in (made("ce", 1, 0.5, id="first"), made("ntl_was", 1, 0.75, id="second", git={"commit": "abc"}), other):
        write_record(tmp_path / run.id / "record.json", run)
    # The record of the first is of an earlier command, which named no model.
    runs = {"first": "loss=ce", "second": "loss=ntl_was", "other": "loss=ce", "failed": "loss=gce"}
    show_sweep({tmp_path / name: ["model=gpt2_tiny", word, "seed=1"] for name, word in runs.items()})
    printed = capsys.readouterr().out
    assert "\nloss=ntl_was test accuracy" in printed
    assert printed.index("noisy_numbers\n") < printed.index("+0.250, n = 1") < printed.index("arithmetic\n")
    assert "Warning: the runs have different commits: 0123456789, abc.\n" in printed
    assert printed.splitlines()[-1] == "1 of 4 runs have no record: failed"
