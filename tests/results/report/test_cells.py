"""The texts of a cell, and a table under another rule."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ntl.results import RunRecord, build_table
from ntl.results.render.text import number
from ntl.results.report.cells import NOTHING, CellText, cell_text, under
from ntl.results.spec import load_table_spec

METRIC = "interpolate/accuracy"


@pytest.mark.parametrize(
    ("value", "spec", "sign", "text"),
    [
        (0.25, ".3f", "", "0.250"),
        (0.25, ".1%", "+", "+25.0%"),
        (-0.0001, ".2f", "", "0.00"),
        (9_999_999.0, ".2f", "", "9999999.00"),
        (-12_345_678.0, ".2f", "", "-1.23e+07"),
        (1e10, ".2f", "+", "+1.00e+10"),
    ],
)
def test_a_long_number_has_an_exponent(value: float, spec: str, sign: str, text: str) -> None:
    assert number(value, spec, sign) == text


def texts(values: list[float | None], make: Callable[..., RunRecord], loss: str = "ce") -> CellText:
    records = [make(loss, seed, {METRIC: value}) for seed, value in enumerate(values, start=1)]
    row = build_table("table2", records).blocks[0].rows[0]
    return cell_text(row.cells[0], row)


def test_three_seeds_have_a_spread_and_an_interval(arithmetic_record: Callable[..., RunRecord]) -> None:
    # mean 0.4, sd 0.1, t(2) = 4.3027: 0.4 ± 4.3027 · 0.1 / √3; the paper has 0.34.
    expected = CellText("0.400 ± 0.100", "[0.152, 0.648]", "0.34 ± 0.01", "+0.060", best=False, beside=False)
    assert texts([0.3, 0.4, 0.5], arithmetic_record) == expected


def test_fewer_seeds_have_their_values(arithmetic_record: Callable[..., RunRecord]) -> None:
    two, one = texts([0.3, 0.4], arithmetic_record), texts([0.24], arithmetic_record)
    assert (two.ours, two.interval, two.difference) == ("0.300, 0.400", "", "+0.010")
    assert (one.ours, one.interval, one.difference) == ("0.240", "", "-0.100")


def test_what_is_undefined_is_said(arithmetic_record: Callable[..., RunRecord]) -> None:
    undefined = texts([None], arithmetic_record)
    assert (undefined.ours, undefined.interval, undefined.difference) == ("undefined", "", "-")
    partly = texts([0.3, None], arithmetic_record)
    assert (partly.ours, partly.interval, partly.difference) == ("undefined in 1 of 2, else 0.300", "", "-")


def test_n_stands_in_a_cell_only_where_it_is_not_that_of_the_row(arithmetic_record: Callable[..., RunRecord]) -> None:
    records = [arithmetic_record("ce", seed, {METRIC: seed / 10, "interpolate/mae": 1.0}) for seed in (1, 2)]
    records.append(arithmetic_record("ce", 3, {METRIC: 0.3}))
    row = build_table("table2", records).blocks[0].rows[0]
    assert cell_text(row.cells[0], row).interval == "[-0.048, 0.448]"  # 0.2 ± 4.3027 · 0.1 / √3
    assert cell_text(row.cells[1], row).interval == "(n=2)"


def test_the_papers_number_belongs_beside_that_of_its_own_model(arithmetic_record: Callable[..., RunRecord]) -> None:
    stand_in = arithmetic_record("ce", 1, {METRIC: 0.1})
    own = arithmetic_record("ce", 1, {METRIC: 0.1})
    own.config |= {"model": {"name": "t5_small", "pretrained": False}, "scale": {"name": "small"}}
    found = {}
    for scale, record in (("tiny", stand_in), ("small", own)):
        row = build_table("table2", [record], scale).blocks[0].rows[0]
        found[scale] = cell_text(row.cells[0], row)
    assert {scale: text.beside for scale, text in found.items()} == {"tiny": False, "small": True}
    assert {text.paper for text in found.values()} == {"0.34 ± 0.01"}


def test_a_cell_without_record(arithmetic_record: Callable[..., RunRecord]) -> None:
    assert texts([], arithmetic_record) == replace(NOTHING, paper="0.34 ± 0.01")


def test_under_another_rule_every_column_and_paper_number_has_its_suffix(
    arithmetic_record: Callable[..., RunRecord],
) -> None:
    spec = under("paper", load_table_spec("table2"))
    suffixes = [column.metric.partition("@")[2] for column in spec.blocks[0].columns]
    assert suffixes == ["paper"] * 6 + ["expectation"] * 4  # a column that names its decoding keeps it
    record = arithmetic_record("ce", 1, {METRIC: 0.1, f"{METRIC}@paper": 0.44})
    row = build_table(spec, [record]).blocks[0].rows[0]
    expected = CellText("0.440", "", "0.34 ± 0.01", "+0.100", best=False, beside=False)
    assert cell_text(row.cells[0], row) == expected
    assert cell_text(row.cells[1], row).ours == "-"


def test_the_default_rule_is_the_table_itself() -> None:
    spec = load_table_spec("table2")
    assert under("default", spec) == spec
