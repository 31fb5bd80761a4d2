"""What a table says: marks, differences, its finding, and rows that are no fair comparison."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rows import make_row, record, values

from ntl.config.folders import CONFIG_DIR
from ntl.results import RunRecord, Table, build_table
from ntl.results.effects import Outcome, Seeds
from ntl.results.match import Row
from ntl.results.spec import (
    BlockSpec,
    CellSpec,
    ClaimSpec,
    ColumnSpec,
    Role,
    ScaleSpec,
    VerdictsSpec,
    Whose,
    load_table_spec,
)
from ntl.results.table import MODELS, Block, constant_values, differences, warnings
from ntl.results.verdicts import correct, judge

LOWER, HIGHER, NEITHER = (ColumnSpec(f"test/{name}", name, ".3f") for name in ("mae", "r2", "count"))
METRICS = (LOWER.metric, HIGHER.metric, NEITHER.metric)


def rows_of(*scores: Seeds | tuple[Seeds, dict[str, Any]]) -> list[Row]:
    """A row for each of these scores, or of scores and what else is known of it."""
    pairs = [each if isinstance(each, tuple) else (each, {}) for each in scores]
    return [
        make_row(**{"label": str(n), "scores": dict.fromkeys(METRICS, row), **more})
        for n, (row, more) in enumerate(pairs)
    ]


def test_what_is_no_better_than_a_constant_answer_is_marked() -> None:
    """The best constant decides; without one, or at a metric without a better end, nothing is said."""
    nine, best = (values(9), {"role": Role.constant}), (values(2.5), {"role": Role.constant})
    for column, scores, expected in (
        (LOWER, [values(1, 2, 3), values(4, 5, 6), nine, best], [False, True, False, False]),
        (HIGHER, [values(1, 2, 3), values(4, 5, 6), best], [True, False, False]),
        (HIGHER, [values(1, 2, 3)], [False]),
        (NEITHER, [values(1, 2, 3), nine], [False, False]),
    ):
        rows = rows_of(*scores)
        block = Block(BlockSpec("", "", [], [], {}), rows, [], [], column)
        assert [block.is_unlearnt(row) for row in rows] == expected


def test_a_constant_counts_once_however_many_records_have_it() -> None:
    made = [record(seed, metrics={"test/mae:mean": value}) for seed, value in enumerate([9.0, 9.0, 8.0, None])]
    assert constant_values("test/mae:mean", made[:2]) == {0: 9.0}
    assert constant_values("test/mae:mean", made[:3]) == {0: 8.0, 1: 9.0}  # two versions of the data
    assert constant_values("test/mae:mean", made) == {0: 8.0, 1: 9.0, 2: None}
    assert constant_values("test/mae:mode", made) == {}
    # Of two data sets that it happens to score alike on, each counts.
    alike = [record(seed, metrics={"test/mae:mean": 9.0}, data={"files": {"test": str(seed)}}) for seed in (1, 2, 2)]
    assert constant_values("test/mae:mean", alike) == {0: 9.0, 1: 9.0}


def name(difference: dict[str, Any]) -> str:
    return f"{difference['row']} minus {difference['against']}"


def test_every_row_against_the_baseline_and_ntl_against_the_control() -> None:
    def compared(scores: list[Seeds], groups: str = "aaaa") -> list[str]:
        roles = [Role.baseline, Role.control, Role.ntl, Role.constant]
        about = [{"label": role.name, "role": role, "group": group} for role, group in zip(roles, groups, strict=True)]
        return [*map(name, differences([LOWER], rows_of(*zip(scores, about, strict=True))))]

    scores = [values(1, 2), values(2, 3), values(3, 4), values(0)]
    assert compared(scores) == ["control minus baseline", "ntl minus baseline", "ntl minus control"]
    assert compared(scores, "abab") == ["ntl minus baseline"]
    assert compared([values(1), values(2), {7: 3.0}, {}]) == ["control minus baseline"]


BASELINE = {"label": "ce", "role": Role.baseline}


def test_the_primary_comparison_stands_first() -> None:
    zero, sure = values(6, 6, 6, 6, 6), values(5, 4, 3, 2, 1)
    was, mae, head = {"label": "was"}, {"label": "mae"}, {"label": "head", "role": Role.other}
    rows = rows_of((zero, BASELINE), (sure, was), (values(7, 7, 7, 7, 5), mae), (sure, head))
    plain = differences([LOWER], rows)
    assert [name(each) for each in plain] == ["was minus ce", "mae minus ce", "head minus ce"]
    found = differences([LOWER], rows, (rows[3], rows[1]), LOWER.metric)
    assert [name(each) for each in found] == ["was minus head", "was minus ce", "mae minus ce", "head minus ce"]
    assert [each["primary"] for each in found] == [True, False, False, False]
    sides = ("equal in 5 of 5", "better in 5 of 5", "worse in 4 of 5", "better in 5 of 5")
    assert all(side in each["text"] for side, each in zip(sides, found, strict=True))


SPEC = """
title: A table
primary: {row: WAS, against: CE, metric: test/mae, named: 2026-11-22, seen: [abc1234]}
blocks:
  - title: noisy_numbers
    dataset: noisy_numbers
    overrides: [model=gpt2_tiny, tokenizer=digit]
    scales: {tiny: {seeds: [1, 2, 3, 4, 5, 6]}}
    columns:
      - {metric: test/mae, header: MAE, format: .2f}
      - {metric: test/r2, header: R², format: .2f}
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
        path = tmp_path / "mine.yaml"
        path.write_text(SPEC)
        records = [
            make_record(loss, seed, {"test/mae": value, "test/mae:mean": constant}, **changes)
            for loss, series in values.items()
            for seed, value in enumerate(series, start=1)
        ]
        return build_table(load_table_spec(str(path)), records)

    return make


@pytest.mark.parametrize(
    ("was", "constant", "says"),
    [
        ([], 9.0, "No run of a common seed of WAS and CE yet."),
        ([None, 4.0, 4.0], 9.0, "WAS and CE do not differ significantly in MAE: undefined for 1 seed"),
        ([4.0, 4.1], 3.0, "Fewer than three seeds, so no interval: WAS against CE in MAE: -20.0%, -18.0%, n = 2"),
        ([4.0, 4.0, 4.1], 4.5, "the baseline does not beat constant: mean (4.50): -19.3% [-"),
        ([6.0, 6.1, 6.0], 9.0, "WAS is worse than CE in MAE: +20.7% [+"),
        ([4.0, 5.0, 6.0], 9.0, "WAS and CE do not differ significantly in MAE: -1.4% [-40.4, +63.4], n = 3"),
    ],
)
def test_the_finding_says_what_the_comparison_shows(
    table_of: Callable[..., Table], was: list[float | None], constant: float | None, says: str
) -> None:
    seen = {"git": {"commit": "abc123456", "dirty": False}}  # that of the file, so that it was named after these runs
    finding = table_of({"ce": [5.0] * 3, "ntl_was": was}, constant, **seen).finding
    assert says in finding
    assert finding.endswith("; named after these runs.") == bool(was)


CELLS = """
title: A table
primary: {PRIMARY, row: WAS, against: CE, metric: test/METRIC, band: 0.025, named: 2026-11-29}
blocks:
  - title: noisy_numbers
    dataset: noisy_numbers
    overrides: [model=gpt2_tiny, tokenizer=digit]
    scales: {tiny: {seeds: [1, 2, 3]}}
    columns: [{metric: test/METRIC}, {metric: test/METRIC@digit_median}]
    rows:
      - {label: CE, role: baseline, group: few, overrides: [loss=ce]}
      - {label: WAS, role: ntl, group: few, overrides: [loss=ntl_was, loss.weight=0.3]}
      - {label: CE, role: baseline, group: many, overrides: [loss=ce_digits, loss.weight=0.3]}
      - {label: WAS, role: ntl, group: many, overrides: [loss=ntl_was, loss.weight=0.7]}
"""
BOTH = "groups: [few, many], against_metric: test/rmse@digit_median, assay: test/rmse"
LESS = "groups: [few], less: many"


@pytest.mark.parametrize(
    ("primary", "metric", "scores", "says"),
    [
        # Means over groups 0, -0.004975, -0.004975: -0.003317, sd 0.002872, half width 4.3027 sd / √3 = 0.007135.
        (BOTH, "rmse", [5.0, 4.0, 5.0, 4.0], "equivalent in RMSE, within 2.5% (few; many): -0.3% [-1.0, +0.4]"),
        (BOTH, "rmse", [4.0] * 4, "in RMSE: WAS does not beat CE in RMSE (+0.0% [+0.0, +0.0]) (few; many): -0.3"),
        # In log points: (2.0 - 2.2) - (1.0 - 1.1) = -0.1 in each seed, and no logarithm of it.
        (LESS, "log_ape", [2.2, 2.0, 1.1, 1.0], "few, is better than many in mean log(1 + APE): -0.100 [-0.100,"),
        (LESS, "log_ape", [2.2, 2.0, 1.1, 0.9], "WAS over CE, few, and many are equivalent"),
    ],
)
def test_a_primary_over_groups_readings_and_effects(
    tmp_path: Path, make_record: Callable[..., RunRecord], primary: str, metric: str, scores: list[float], says: str
) -> None:
    """By digit median CE has 4, 4, 4.04 and 4, 4.04, 4 beside 4 of WAS: log ratios 0, 0, -0.01 and 0, -0.01, 0."""
    (tmp_path / "cells.yaml").write_text(CELLS.replace("METRIC", metric).replace("PRIMARY", primary))
    rows = zip((("ce", 0.3), ("ntl_was", 0.3), ("ce_digits", 0.3), ("ntl_was", 0.7)), scores, strict=True)
    records = []
    for n, ((loss, weight), score) in enumerate(rows):
        for seed in (1, 2, 3):
            metrics = {f"test/{metric}": score, "test/rmse@digit_median": 4.04 if seed == 3 - n // 2 else 4.0}
            records.append(make_record(loss, seed, metrics, weight))
    table = build_table(load_table_spec(str(tmp_path / "cells.yaml")), records)
    assert says in table.finding
    assert table.blocks[0].lines[0]["primary"]
    assert table.primary is not None
    assert table.primary.band == pytest.approx(0.024693, abs=1e-6)
    if primary == BOTH:  # a claim may name its two readings the other way round
        readings = {"metric": "test/rmse@digit_median", "against_metric": "test/rmse"}
        cell = CellSpec(row="CE", against="WAS", groups=["few", "many"], **readings, task="noise", table="cells")
        claim = ClaimSpec("it", "It helps.", "here", Whose.ours, [cell])
        found = judge(VerdictsSpec([], [], [], [claim]), [table])
        assert correct(found, [table]) == []
        (judged,) = found[0].cells
        assert judged.corrected == pytest.approx(table.primary.p(says_better=True))
        assert judged.outcome is (Outcome.equivalent if scores[0] == 5 else Outcome.not_testable)
        assert ("; WAS does not beat CE in RMSE (+0.0% [+0.0, +0.0])" in judged.text) == (scores[0] == 4)


# ---- what is said of rows that are no fair comparison


def test_every_model_has_a_name() -> None:
    files = {path.stem.removesuffix("_regression") for path in (Path(CONFIG_DIR) / "model").glob("*.yaml")}
    assert set(MODELS) == files - {"hf"}  # whose name is made of the weights


def run(loss: str, seed: int = 1, config: dict[str, Any] | None = None, **changes: Any) -> RunRecord:
    own = {"loss": {"name": loss, "weight": 0.3}, "trainer": {"lr": 0.1}, "seed": seed, "device": f"d{seed}"}
    about = {"id": f"{loss}{seed}", "config": own | (config or {}), "device": "cpu"}
    return record(seed, **{**about, "git": {"commit": "0123456789", "dirty": False}, **changes})


def remarks(*records: RunRecord) -> list[str]:
    """Warnings on CE's and NTL-WAS' records, told apart by the first letter of their id."""
    rows = [
        make_row(label, None, role, "T5", {"loss": label.lower()}, {r.seed: r for r in records if r.id[0] == letter})
        for letter, label, role in (("c", "CE", Role.baseline), ("w", "WAS", Role.ntl))
    ]
    columns = [replace(LOWER, metric=f"{split}/mae") for split in ("test", "far")]
    block = BlockSpec("t", "noisy_numbers", columns, [row.spec for row in rows], {"tiny": ScaleSpec(seeds=[1, 2])})
    return [*warnings(block, "tiny", rows)]


def tokenizer(loss: str, seed: int, path: str) -> RunRecord:
    return run(loss, seed, {"tokenizer": {"path": path}})


def reading(loss: str, digest: str, **shares: float) -> RunRecord:
    return run(loss, data={"files": {"train": digest}, "longer_than_train": shares})


CE, WAS, OTHER = run("ce"), run("was"), "Not a fair comparison: the runs also differ in {}."
EXACT = run("ce", config={"trainer": {"lr": 0.1, "bf16": False}})
WEIGHTED = {"loss": {"name": "was", "weight": 0.5}}
OWN = {"objective": {"name": "expected_error", "families": "number"}}
NEXT = run("ce", config={"objective": {"name": "ntp", "families": "all"}})
OF_SEED = [tokenizer("ce", 1, "a"), tokenizer("ce", 2, "b"), tokenizer("was", 1, "a")]
RULES = [{"default": version, "paper": 1} for version in (1, 2, 3, 4)]
REMARKS: list[tuple[list[RunRecord], str]] = [
    # Rows may differ in what they pin, here the whole group ``loss``, and any other difference is named.
    ([CE, run("was", config=WEIGHTED)], ""),
    ([EXACT, run("was", config={"trainer": {"lr": 0.2, "bf16": True}})], OTHER.format("trainer.bf16, trainer.lr")),
    # A tokenizer that differs from seed to seed is compared within a seed.
    ([*OF_SEED, tokenizer("was", 2, "b")], ""),
    ([*OF_SEED, tokenizer("was", 2, "a")], OTHER.format("tokenizer.path")),
    # An objective that a loss brings is compared among runs of that loss.
    ([NEXT, run("was", config={**OWN, "loss": {"name": "expected_error", "weight": 0.3}})], ""),
    ([NEXT, run("was", config=OWN)], OTHER.format("objective.families, objective.name")),
    ([run("ce", rules=RULES[1]), run("was", rules=RULES[2])], ""),
    ([run("ce", rules=RULES[0]), run("was", rules=RULES[3])], "Not a fair comparison: 2 versions of the rules read"),
    ([run("ce", rules=RULES[2]), run("was", rules=RULES[3])], "Two versions of the rules read the answers: numerals"),
    ([reading("ce", "a"), reading("was", "b")], "Not a fair comparison: the runs read 2 different versions"),
    # A record that names no data says nothing of it, and what was measured on the data makes no other data.
    ([reading("ce", "a"), WAS], ""),
    (
        [reading("ce", "a", near=0.0, far=0.5), reading("was", "a", far=0.25)],
        "Test examples with more tokens than any that was trained on: far 25% to 50%.",
    ),
    ([CE, run("was", device="gpu")], "Not all rows of seed 1 ran on the same kind of processor."),
]


@pytest.mark.parametrize(("records", "line"), REMARKS)
def test_a_difference_that_is_not_the_rows_own_is_named(records: list[RunRecord], line: str) -> None:
    found = remarks(*records)
    assert [each for each in found if each.startswith(line)] if line else found == []
