"""What a table's primary comparison says, in numbers and in a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.results import RunRecord, Table, build_table
from ntl.results.spec import load_table_spec
from ntl.results.table import Verdict

SPEC = """
title: A table
primary: {row: WAS, against: CE, metric: test/mae, named: 2026-11-22, seen: [abc1234]}
blocks:
  - title: noisy_numbers
    dataset: noisy_numbers
    scales: {tiny: {seeds: [1, 2, 3, 4, 5, 6]}}
    columns:
      - {metric: test/mae, header: MAE, better: lower, format: .2f}
      - {metric: test/r2, header: R², better: higher, format: .2f}
    rows:
      - {label: CE, role: baseline, overrides: [loss=ce]}
      - {label: control, role: control, overrides: [loss=ce_digits, loss.weight=0.3]}
      - {label: WAS, role: ntl, overrides: [loss=ntl_was, loss.weight=0.3]}
      - {label: "constant: mean", role: constant, constant: mean}
"""
Values = dict[str, list[float | None]]


@pytest.fixture
def table_of(tmp_path: Path, make_record: Callable[..., RunRecord]) -> Callable[..., Table]:
    """The table of these MAE by loss and seed; ``constant`` is the mean's."""

    def make(values: Values, constant: float | None = 9.0, **changes: Any) -> Table:
        (tmp_path / "mine.yaml").write_text(SPEC)
        records = [
            make_record(loss, seed, {"test/mae": value, "test/mae:mean": constant}, **changes)
            for loss, series in values.items()
            for seed, value in enumerate(series, start=1)
        ]
        return build_table(load_table_spec("mine", tmp_path, tmp_path / "none"), records)

    return make


def test_a_gain_of_six_seeds_is_confirmed(table_of: Callable[..., Table]) -> None:
    """Differences -1, -1.2, ... -2: mean -1.5, sd sqrt(0.14), t(5) = 2.5706, so that the half width is 0.3927."""
    was = [5 - 1 - 0.2 * step for step in range(6)]
    table = table_of({"ce": [5.0] * 6, "ntl_was": was, "ce_digits": [4.9, 4.8, 4.9, 4.8, 4.9, 4.8]})
    primary = table.primary
    assert (primary.row, primary.against, primary.metric, primary.n) == ("WAS", "CE", "test/mae", 6)
    assert (primary.mean, primary.low, primary.high) == pytest.approx((-1.5, -1.89266, -1.10734), abs=1e-5)
    assert (primary.p, primary.verdict, primary.confirmed, primary.named_after) == (2 / 64, Verdict.better, True, False)
    # The control: -0.1 and -0.2 in turns, sd 0.0548, half width 0.0575.
    assert table.finding == (
        "WAS is better than CE in MAE: -1.50 [-1.89, -1.11] (n = 6 seeds; exact p = 0.0312); "
        "the control, which has no distance: -0.15 [-0.21, -0.09]."
    )


def test_an_interval_without_an_exact_test_is_not_confirmed(table_of: Callable[..., Table]) -> None:
    worse = table_of({"ce": [5.0, 6.0, 7.0], "ntl_was": [6.0, 7.1, 8.0]})
    assert (worse.primary.verdict, worse.primary.confirmed, worse.primary.p) == (Verdict.worse, False, 0.25)
    assert worse.finding == (
        "WAS is worse than CE in MAE by the interval, but not by the exact test: +1.03 [+0.89, +1.18] "
        "(n = 3 seeds; exact p = 0.25, and n = 3 cannot reach 0.05)."
    )
    # One seed of six goes the other way, by little: two of its flips are as far from 0, and their mirrors.
    six = table_of({"ce": [5.0] * 6, "ntl_was": [4.0, 4.0, 4.0, 4.0, 4.0, 5.1]})
    assert (six.primary.verdict, six.primary.p, six.primary.confirmed) == (Verdict.better, 0.0625, False)
    assert "exact p = 0.0625)" in six.finding


def test_an_interval_that_holds_0_shows_nothing(table_of: Callable[..., Table]) -> None:
    table = table_of({"ce": [5.0, 6.0, 7.0], "ntl_was": [6.0, 5.0, 7.0]}, git={"commit": "abc123456", "dirty": False})
    assert (table.primary.verdict, table.primary.named_after) == (Verdict.nothing, True)
    assert table.finding == (
        "No difference between WAS and CE in MAE is shown: +0.00 [-2.48, +2.48] "
        "(n = 3 seeds; exact p = 1, and n = 3 cannot reach 0.05; named after these runs)."
    )


@pytest.mark.parametrize(
    ("values", "constant", "verdict", "says"),
    [
        ({"ce": [5.0, 6.0, 7.0]}, 9.0, Verdict.not_run, "Nothing is shown yet: no seed of both WAS and CE has MAE."),
        (
            {"ce": [5.0] * 3, "ntl_was": [None, 4.0, 4.0]},
            9.0,
            Verdict.undefined,
            "MAE is undefined for a run of WAS or",
        ),
        ({"ce": [5.0] * 2, "ntl_was": [4.0, 4.1]}, 9.0, Verdict.too_few, "in MAE: -1.00, -0.90 (n = 2 seeds; exact"),
        (
            {"ce": [5.0], "ntl_was": [4.0]},
            9.0,
            Verdict.too_few,
            "have no interval: WAS minus CE in MAE: -1.00 (n = 1 seed).",
        ),
        (
            {"ce": [5.0] * 3, "ntl_was": [4.0, 4.0, 4.1]},
            3.0,
            Verdict.not_learnt,
            "as neither WAS nor CE beats a constant",
        ),
        ({"ce": [5.0] * 3, "ntl_was": [4.0, 4.0, 4.1]}, 4.5, Verdict.better, "; CE beats no constant answer."),
        ({"ce": [5.0] * 3, "ntl_was": [6.0, 6.0, 6.1]}, 5.5, Verdict.worse, "; WAS beats no constant answer."),
        ({"ce": [5.0] * 3, "ntl_was": [4.0, 4.0, 4.1]}, None, Verdict.better, "WAS is better than CE in MAE by the"),
        (
            {"ce": [5.0] * 3, "ntl_was": [4.999, 4.999, 4.9989]},
            9.0,
            Verdict.nothing,
            "No difference between WAS and CE",
        ),
    ],
)
def test_what_shows_nothing_says_why(
    table_of: Callable[..., Table], values: Values, constant: float | None, verdict: Verdict, says: str
) -> None:
    table = table_of(values, constant)
    assert table.primary.verdict is verdict
    assert says in table.finding
    assert "\n" not in table.finding
