import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.results import RunRecord, Table, build_table, pack_bits
from ntl.results.compare import beats_constants, best_rows, constant_values, corrected, differences
from ntl.results.match import RowPlan
from ntl.results.spec import Better, ColumnSpec, Role, RowSpec, load_table_spec
from ntl.results.statistics import Paired, summarize
from ntl.results.table import DifferenceCell, Verdict, prints_as_zero

LOWER = ColumnSpec(metric="test/mae", header="MAE", better=Better.lower)
HIGHER = ColumnSpec(metric="test/accuracy", header="accuracy", better=Better.higher)
NEITHER = ColumnSpec(metric="test/unparsable", header="unparsable", better=Better.neither)
Seeds = dict[int, float | None]


def plan(label: str, role: Role = Role.ntl, group: str = "") -> RowPlan:
    overrides = () if role is Role.constant else (f"loss={label}",)
    return RowPlan(RowSpec(label=label, role=role, group=group), overrides, {}, (1, 2, 3))


def values(*row: float | None) -> Seeds:
    return dict(enumerate(row, start=1))


def best(column: ColumnSpec, *rows: Seeds, plans: list[RowPlan] | None = None) -> set[int]:
    plans = plans or [plan(str(index)) for index in range(len(rows))]
    found = best_rows([column], plans, [{column.metric: row} for row in rows])
    assert {metric for _, metric in found} <= {column.metric}
    return {index for index, _ in found}


def test_the_best_row_is_below_the_second_at_every_seed() -> None:
    high, low, middle = values(5, 6, 7), values(1, 2, 3), values(3.0, 4.1, 5.0)
    assert best(LOWER, high, low, middle) == {1}
    assert best(HIGHER, high, low, middle) == {0}
    assert best(NEITHER, high, low, middle) == set()


def test_what_the_interval_does_not_support_is_not_best() -> None:
    # Differences -2, +1, -2: mean -1, sd 1.73, interval -1 ± 4.3.
    assert best(LOWER, values(5, 5, 5), values(3, 6, 3)) == set()
    assert best(LOWER, values(5, 5, 5), values(5, 5, 5)) == set()
    assert best(LOWER, values(5, 6), values(1, 2.5)) == set()  # two seeds have no interval
    assert best(LOWER, values(1, 2, 3)) == set()


def test_the_second_best_decides_not_the_others() -> None:
    first, second, last = values(1.0, 1.2, 1.1), values(1.1, 1.1, 1.1), values(9, 9.1, 9)
    assert best(LOWER, last, first, second) == set()
    assert best(LOWER, last, first) == {1}


def test_a_row_that_is_undefined_for_a_seed_does_not_run() -> None:
    assert best(LOWER, values(1, None, 1), values(5, 6, 7), values(8, 9.5, 10)) == {1}


def test_every_group_has_its_best_and_constants_have_none() -> None:
    plans = [plan("a", group="T5"), plan("b", group="T5"), plan("c", group="GPT"), plan("d", group="GPT")]
    rows = [values(1, 2, 3), values(4, 5, 6.1), values(9, 9, 9), values(7, 7, 7.1)]
    assert best(LOWER, *rows, plans=plans) == {0, 3}
    constant = [*plans[:2], plan("mean", Role.constant, "T5")]
    assert best(LOWER, *rows[:2], values(9, 9.1, 9), plans=constant) == {0}


def record(seed: int = 1, **changes: Any) -> RunRecord:
    given: dict[str, Any] = {"id": f"r{seed}", "overrides": [], "config": {}, "seed": seed, "metrics": {}, **changes}
    return RunRecord(**given)


def test_a_constant_counts_once_however_many_records_have_it() -> None:
    made = [record(seed, metrics={"test/mae:mean": value}) for seed, value in enumerate([9.0, 9.0, 8.0, None])]
    assert constant_values("test/mae:mean", made[:2]) == {0: 9.0}
    assert constant_values("test/mae:mean", made[:3]) == {0: 8.0, 1: 9.0}  # two versions of the data
    assert constant_values("test/mae:mean", made) == {0: 8.0, 1: 9.0, 2: None}
    assert constant_values("test/mae:mode", made) == {}


ROLES = [Role.baseline, Role.control, Role.ntl, Role.constant]


def compared(columns: list[ColumnSpec], rows: list[Seeds], groups: str = "aaaa") -> list[tuple[str, str]]:
    plans = [plan(role.name, role, group) for role, group in zip(ROLES, groups, strict=True)]
    grid = [{column.metric: row for column in columns} for row in rows]
    found = differences(columns, plans, grid, [{seed: record(seed) for seed in row} for row in rows])
    return [(difference.row.label, difference.against.label) for difference in found]


def test_every_row_against_the_baseline_and_ntl_against_the_control() -> None:
    rows = [values(1, 2), values(2, 3), values(3, 4), values(0)]
    expected = [("control", "baseline"), ("ntl", "baseline"), ("ntl", "control")]
    assert compared([LOWER], rows) == expected
    assert compared([LOWER], rows, "abab") == [("ntl", "baseline")]
    assert compared([LOWER], [values(1), values(2), {7: 3.0}, {}]) == [("control", "baseline")]


def test_a_difference_is_the_row_minus_the_base_over_common_seeds() -> None:
    plans = [plan("ce", Role.baseline), plan("was")]
    grid = [{"test/mae": values(5, 6, 7)}, {"test/mae": {2: 4.0, 3: 6.5, 4: 0.0}}]
    (found,) = differences([LOWER], plans, grid, [{seed: record(seed) for seed in row["test/mae"]} for row in grid])
    (cell,) = found.cells
    assert cell.paired is not None
    assert cell.paired.differences.values == (-2.0, -0.5)
    assert (cell.paired.agree, cell.examples) == (2, None)


def test_a_row_that_beats_no_constant_answer_is_never_best() -> None:
    plans = [plan("a"), plan("b"), plan("mode", Role.constant), plan("mean", Role.constant)]
    rows = [values(1, 2, 3), values(4, 5, 6.1)]
    assert best(LOWER, *rows, values(9), values(2.5), plans=plans) == {0}
    assert best(LOWER, *rows, values(9), values(1.9), plans=plans) == set()  # the best constant decides
    assert best(LOWER, *rows, values(9), values(2.0), plans=plans) == set()
    # Learnt or not is said at the endpoint, which need not be this column.
    grid = [{LOWER.metric: row} for row in rows]
    assert best_rows([LOWER], plans[:2], grid, [None, True]) == {(0, LOWER.metric)}
    assert best_rows([LOWER], plans[:2], grid, [False, True]) == set()


def test_what_beats_the_constants() -> None:
    plans = [plan("a"), plan("b"), plan("c"), plan("mean", Role.constant), plan("mode", Role.constant)]
    grid = [{HIGHER.metric: row} for row in (values(1, 3), values(1, 2.9), values(None), values(2), values())]
    assert beats_constants(HIGHER, plans, grid) == [False, False, None, None, None]
    assert beats_constants(HIGHER, plans[:3], grid[:3]) == [None] * 3
    lower = [{LOWER.metric: row} for row in (values(1, 3), values(1, 2.9), values(), values(2), values(9))]
    assert beats_constants(LOWER, plans, lower) == [False, True, None, None, None]


def test_a_difference_that_prints_as_zero_is_not_best() -> None:
    first, second = values(1.0, 1.0, 1.0), values(1.0004, 1.0004, 1.0005)
    assert best(LOWER, first, second) == set()
    finer = ColumnSpec(metric="test/mae", header="MAE", better=Better.lower, format=".4f")
    assert best(finer, first, second) == {0}
    assert best(ColumnSpec(**{**vars(finer), "short": ".2f"}), first, second) == set()


@pytest.mark.parametrize(
    ("value", "spec", "zero"),
    [(0.0004, ".3f", True), (-0.0006, ".3f", False), (0.0004, ".1%", True), (0.001, ".1%", False)],
)
def test_what_prints_as_zero(value: float, spec: str, zero: bool) -> None:
    assert prints_as_zero(value, ColumnSpec(metric="m", header="m", better=Better.lower, format=spec)) is zero


@pytest.mark.parametrize(
    ("paired", "more", "bold"),
    [
        (None, {"primary": True}, False),
        ([1.0, 1.1, 0.9], {"primary": True}, True),
        ([1.0, 1.1, 0.9], {"primary": True, "p": 0.25}, True),
        ([1.0, -1.1, 0.9], {"primary": True}, False),
        ([1e-4, 1.1e-4, 0.9e-4], {"primary": True}, False),
        ([1.0, 1.1, 0.9], {"p": 0.01, "holm": 0.06}, False),
        ([1.0, 1.1, 0.9], {"p": 0.01, "holm": 0.05}, True),
        ([1e-4, 1.1e-4, 0.9e-4], {"p": 0.01, "holm": 0.05}, False),
        ([1.0], {"examples": (1.0, 0.5, 1.5)}, False),
    ],
)
def test_bold_is_the_primary_by_its_interval_and_the_rest_by_their_corrected_p(
    paired: list[float] | None, more: dict[str, Any], bold: bool
) -> None:
    assert DifferenceCell(LOWER, None if paired is None else Paired(summarize(paired), 0), **more).bold is bold


def test_the_primary_comparison_stands_first_and_the_rest_is_corrected() -> None:
    """n = 5: -1..-5 flips to nothing further (p = 2/32); 1, 1, 1, 1, -1 has |sum| >= 3 in 12 of 32."""
    plans = [plan("ce", Role.baseline), plan("was"), plan("mae"), plan("head", Role.other)]
    zero, sure = values(0, 0, 0, 0, 0), values(-1, -2, -3, -4, -5)
    grid = [{"test/mae": row} for row in (zero, sure, values(1, 1, 1, 1, -1), sure)]
    records = [{seed: record(seed) for seed in range(1, 6)}] * 4
    plain = differences([LOWER], plans, grid, records)
    assert [each.name for each in plain] == ["was minus ce", "mae minus ce", "head minus ce"]
    found = differences([LOWER], plans, grid, records, (3, 1, "test/mae"))
    assert [each.name for each in found] == ["was minus head", "was minus ce", "mae minus ce", "head minus ce"]
    ((first, *rest),) = corrected([found])
    cells = [each.cells[0] for each in (first, *rest)]
    assert [(cell.p, cell.primary) for cell in cells] == [(1.0, True), (1 / 16, False), (0.375, False), (1 / 16, False)]
    assert [cell.holm for cell in cells] == [None, 3 / 16, 0.375, 3 / 16]


def test_ntl_is_compared_with_a_control_of_the_same_tokenizer_alone() -> None:
    pins = [{"tokenizer": "default"}, {"tokenizer": "default"}, {"tokenizer": "digit"}, {"tokenizer": "digit"}]
    rows = [plan("ce", Role.baseline), plan("stock"), plan("control", Role.control), plan("digit")]
    plans = [RowPlan(row.row, row.overrides, pin, row.seeds) for row, pin in zip(rows, pins, strict=True)]
    grid = [{"test/mae": values(1, 2)}] * 4
    found = differences([LOWER], plans, grid, [{seed: record(seed) for seed in (1, 2)}] * 4)
    assert [each.name for each in found if each.against.role is Role.control] == ["digit minus control"]


BITS = {"ce": [True, False, False, False] * 25, "was": [True, True, False, False] * 25}
IDS = {"test": hashlib.sha256(b"ids").hexdigest()}
Examples = tuple[float, float, float] | None


def over_examples(column: ColumnSpec, ce: dict[str, Any], was: dict[str, Any], seeds: int = 1) -> Examples:
    """NTL-WAS minus CE, right in 50 and in 25 of the same 100 examples; ``ce`` and ``was`` change their records."""
    records = []
    for name, changes in (("ce", ce), ("was", was)):
        whole = {"metrics": {"test/count": 100}, "correct": {"test": pack_bits(BITS[name])}, "ids_sha256": IDS}
        records.append({seed: record(seed, **{**whole, **changes}) for seed in range(seeds)})
    grid = [{column.metric: dict.fromkeys(range(seeds), share)} for share in (0.25, 0.5)]
    (found,) = differences([column], [plan("ce", Role.baseline), plan("was")], grid, records)
    return found.cells[0].examples


def test_one_common_seed_is_compared_over_examples() -> None:
    examples = over_examples(HIGHER, {}, {})
    assert examples is not None
    mean, low, high = examples
    # 25 of 100 examples differ by 1: the standard error is sqrt(0.25 x 0.75 / 100) = 0.0433.
    assert (mean, low, high) == (0.25, pytest.approx(0.165, abs=0.015), pytest.approx(0.335, abs=0.015))


@pytest.mark.parametrize(
    ("ce", "was"),
    [
        ({"metrics": {}}, {}),
        ({"correct": {}}, {}),
        ({}, {"correct": {}}),
        ({"ids_sha256": {"test": "0"}}, {}),
        ({"ids_sha256": {}}, {"ids_sha256": {}}),
    ],
    ids=str,
)
def test_other_examples_are_never_paired(ce: dict[str, Any], was: dict[str, Any]) -> None:
    assert over_examples(HIGHER, ce, was) is None


def test_with_two_common_seeds_the_values_speak() -> None:
    assert over_examples(HIGHER, {}, {}, seeds=2) is None


def test_only_accuracy_is_compared_over_examples() -> None:
    assert over_examples(LOWER, {}, {}) is None


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
