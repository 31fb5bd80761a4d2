"""Cells as text."""

from types import SimpleNamespace
from typing import Any

import pytest

from ntl.results.render.text import (
    difference_text,
    header,
    not_in_records,
    number,
    paper_text,
    seeds_text,
    short_text,
    value_text,
)
from ntl.results.spec import ColumnSpec
from ntl.results.statistics import Paired, summarize
from ntl.results.table import DifferenceCell


def column(spec: str = ".2f", **changes: Any) -> ColumnSpec:
    return ColumnSpec(**{"metric": "test/mae", "header": "MAE", "format": spec, **changes})


def text_of(
    values: list[float | None] | None, spec: str = ".2f", records: int | None = None, constant: str = ""
) -> str:
    """The text of a cell with these values in a row of that many records (None: one a value)."""
    seeds = tuple(range(len(values or ())))
    cell: Any = SimpleNamespace(column=column(spec), seeds=seeds, summary=None if values is None else summarize(values))
    have = dict.fromkeys(range(len(seeds) if records is None else records))
    return value_text(cell, SimpleNamespace(spec=SimpleNamespace(constant=constant), records=have))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "expected"), [("test/mae", "E ↓"), ("test/accuracy@paper", "E ↑"), ("test/unparsable", "E")]
)
def test_header_says_which_way_is_better(metric: str, expected: str) -> None:
    assert header(column(metric=metric, header="E")) == expected


@pytest.mark.parametrize(
    ("value", "spec", "expected"), [(-0.004, ".2f", "0.00"), (-0.006, ".2f", "-0.01"), (0.125, ".1%", "12.5%")]
)
def test_no_minus_before_a_zero(value: float, spec: str, expected: str) -> None:
    assert number(value, spec) == expected


def test_values_by_hand() -> None:
    assert text_of(None) == "-"
    assert text_of([1.234]) == "1.23"
    assert text_of([1.0, 3.0]) == "1.00, 3.00"
    # Mean 2, sd 1; t(2) = 4.302653 at 97.5%, so that the interval is 2 ± 4.302653 / sqrt(3).
    assert text_of([1.0, 2.0, 3.0]) == "2.00 ± 1.00 [-0.48, 4.48]"
    assert text_of([0.1, 0.2, 0.3], ".1%") == "20.0% ± 10.0% [-4.8%, 44.8%]"


def test_an_undefined_value_is_said_and_never_dropped() -> None:
    assert text_of([None]) == "undefined"
    assert text_of([None, float("nan")]) == "undefined"
    assert text_of([1.0, None, 3.0]) == "undefined in 1 of 3, else 1.00, 3.00"


def test_a_metric_that_some_records_lack_shows_its_own_n() -> None:
    assert text_of([1.0, 3.0], records=3) == "1.00, 3.00 (n=2)"
    assert text_of([1.0, None], records=3) == "undefined in 1 of 2, else 1.00 (n=2)"
    # A constant has no seeds to count.
    assert text_of([1.0], records=3, constant="mean") == "1.00"


@pytest.mark.parametrize(
    ("paper", "expected"), [((), ""), ((2.154,), "2.15"), ((2.154, 0.078), "2.15 ± 0.08"), ((-0.0,), "0.00")]
)
def test_the_paper_s_number_in_the_paper_s_digits(paper: tuple[float, ...], expected: str) -> None:
    cell: Any = SimpleNamespace(column=column(".5f", paper_format=".2f"), paper=paper)
    assert paper_text(cell) == expected


def difference(values: list[float | None] | None, agree: int = 0, examples: Any = None, **more: Any) -> str:
    paired = None if values is None else Paired(summarize(values), agree)
    return difference_text(DifferenceCell(column(), paired, examples, **more))


def test_differences_by_hand() -> None:
    assert difference(None) == "-"
    assert difference([None, None]) == "undefined"
    assert difference([-0.5]) == "-0.50"
    assert difference([-0.5, 0.25], agree=1) == "-0.50, +0.25 1/2"
    assert difference([1.0, 2.0, 3.0], agree=3) == "+2.00 [-0.48, +4.48] 3/3"
    assert difference([0.001], examples=(-0.001, -0.25, 0.125)) == "+0.00 [-0.25, +0.12]"


def test_a_difference_has_the_p_that_counts_for_it() -> None:
    # Corrected where it is exploratory, as it is where it is the primary one.
    assert difference([-0.5, 0.25], agree=1, p=0.5, holm=1.0) == "-0.50, +0.25 1/2, p = 1"
    assert difference([-0.5, 0.25], agree=1, p=0.03125, primary=True) == "-0.50, +0.25 1/2, p = 0.031 (primary)"


def short(values: list[float | None] | None, spec: str = ".2f", records: int | None = None, constant: str = "") -> str:
    """As ``text_of``, on the page for people."""
    seeds = tuple(range(len(values or ())))
    cell: Any = SimpleNamespace(column=column(spec), seeds=seeds, summary=None if values is None else summarize(values))
    have = dict.fromkeys(range(len(seeds) if records is None else records))
    return short_text(cell, SimpleNamespace(spec=SimpleNamespace(constant=constant), records=have))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "spec", "expected"),
    [
        (None, ".2f", "-"),
        ([None], ".2f", "undefined"),
        ([1.234], ".2f", "1.23"),
        ([1.0, 3.0], ".2f", "1.00, 3.00"),
        ([1.0, 2.0, 3.0], ".3f", "2.0 ± 1.0"),  # two digits of the spread are enough
        ([0.01, 0.02, 0.03], ".3f", "0.020 ± 0.010"),
        ([10.0, 30.0, 50.0], ".2f", "30 ± 20"),
        ([0.1, 0.2, 0.3], ".1%", "20% ± 10%"),
        ([0.01, 0.02, 0.03], ".1%", "2.0% ± 1.0%"),
        ([2.0, 2.0, 2.0], ".3f", "2.000 ± 0.000"),
        ([0.0, 0.0, 3e10], ".2f", "1e10 ± 2e10"),
        ([-3e4, 0.0, 0.0], ".2f", "-1e4 ± 2e4"),
        ([9999.0], ".2f", "9999.00"),
        ([2.5e4], ".2f", "2e4"),
        ([10250.0], ",.0f", "10,250"),  # a count of steps
        ([9000.0, 10000.0, 11000.0], ",.0f", "10,000 ± 1,000"),
        ([1.5e7], ",.0f", "2e7"),
    ],
)
def test_on_the_page_a_number_has_no_more_digits_than_its_spread(
    values: list[float | None] | None, spec: str, expected: str
) -> None:
    assert short(values, spec) == expected


def test_on_the_page_a_second_line_counts_the_seeds_of_a_cell() -> None:
    assert short([1.0, None, 3.0]) == "1.00, 3.00\n2 of 3 seeds"
    assert short([1.0, 3.0], records=3) == "1.00, 3.00\n2 of 3 seeds"
    assert short([1.0], records=3, constant="mean") == "1.00"


def test_the_seeds_of_rows() -> None:
    assert [seeds_text(counts) for counts in ([3, 3], [1], [0, 3])] == ["n = 3 seeds", "n = 1 seed", "n = 0 to 3 seeds"]


def test_metrics_that_the_records_of_a_row_lack() -> None:
    def row(label: str, ids: list[str], summaries: list[Any], constant: str = "") -> Any:
        names = ("test/mae", "test/r2")
        return SimpleNamespace(
            spec=SimpleNamespace(label=label, constant=constant),
            plan=SimpleNamespace(pins={}),
            records={seed: SimpleNamespace(id=name) for seed, name in enumerate(ids)},
            cells=[SimpleNamespace(column=column(metric=m), summary=s) for m, s in zip(names, summaries, strict=True)],
        )

    there = summarize([1.0])
    rows = [
        row("CE", ["a", "b"], [there, None]),
        row("whole", ["c"], [there, there]),
        row("not run", [], [None, None]),
        row("mean", ["a"], [None, None], constant="mean"),
        row("NTL", ["d"], [None, None]),
    ]
    block: Any = SimpleNamespace(rows=rows)
    rows[1].cells[1] = SimpleNamespace(column=column(metric="test/mae@expectation"), summary=None)  # was not asked for
    assert not_in_records(block) == [
        "CE: test/r2 not in the records of a, b",
        "NTL: test/mae, test/r2 not in the records of d",
    ]
