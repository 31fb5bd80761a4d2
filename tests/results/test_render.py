"""Cells, pages and LaTeX as text."""

import re
from pathlib import Path
from typing import Any

from rows import make_row, record, values

from ntl.config.folders import RESULTS
from ntl.results import RunRecord, build_table
from ntl.results.render import number, short_text, to_csv, to_latex, to_markdown, write_tables
from ntl.results.spec import ColumnSpec, Role


def column(spec: str = ".2f", **changes: Any) -> ColumnSpec:
    return ColumnSpec(**{"metric": "test/mae", "header": "MAE", "format": spec, **changes})


def text_of(
    scores: list[float | None] | None,
    spec: str = ".2f",
    records: int | None = None,
    role: Role = Role.ntl,
) -> str:
    """The text of a cell with these values in a row of that many records (None: one a value)."""
    have = {seed: record(seed) for seed in range(len(scores or ()) if records is None else records)}
    return short_text(make_row("a", {"test/mae": values(*scores or ())}, role, records=have), column(spec))


# A number has no more digits than its spread; a second line counts the seeds of a cell.
ON_THE_PAGE: list[tuple[Any, str, str]] = [
    (None, ".2f", "-"),
    ([1.0, 2.0, 3.0], ".3f", "2.0 ± 1.0"),
    ([0.01, 0.02, 0.03], ".1%", "2.0% ± 1.0%"),
    ([2.0, 2.0, 2.0], ".3f", "2.000 ± 0.000"),
    ([0.0, 0.0, 3e10], ".2f", "1e10 ± 2e10"),
    ([2.5e4], ".2f", "2e4"),
    ([9000.0, 10000.0, 11000.0], ",.0f", "10,000 ± 1,000"),
    ([1.0, None, 3.0], ".2f", "1.00, 3.00\n2 of 3 seeds"),
]


def test_cells_by_hand() -> None:
    assert [text_of(scores, spec) for scores, spec, _ in ON_THE_PAGE] == [shown for *_, shown in ON_THE_PAGE]
    assert [number(value, ".2f") for value in (-0.004, -0.006)] == ["0.00", "-0.01"]  # no minus before a zero
    # A metric that some records lack shows its own n; a constant has no seeds to count.
    assert text_of([1.0, 3.0], records=3) == "1.00, 3.00\n2 of 3 seeds"
    assert text_of([1.0], records=3, role=Role.constant) == "1.00"


TABLES = RESULTS / "tables"
WIDEST, MOST = 100, 7  # characters of a row as it is read, and columns


def visible(cell: str) -> int:
    """The widest line of a cell as a page shows it."""
    shown = re.sub(r"\\([\\|*_`<])|\*", lambda found: found[1] or "", cell.strip())
    return max(map(len, shown.split("<br>")))


def test_every_committed_page_is_narrow_enough_to_be_read() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in TABLES.glob("*_*.md")}
    blocks = [(name, block) for name, text in texts.items() for block in re.findall(r"(?m)(?:^\|.*\n)+", text)]
    assert len(blocks) >= len(texts) > 10
    for name, block in blocks:
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        widths = [max(map(visible, column)) for column in zip(*(rows[:1] + rows[2:]), strict=True)]
        assert len(widths) <= MOST, name
        assert sum(widths) + len(widths) - 1 <= WIDEST, (name, widths)


def test_latex_on_demand(make_record, tmp_path: Path) -> None:
    made = [make_record("ce", seed, {"test/rmse_truth": value}) for seed, value in values(-1.0, 0.0, 1.0).items()]
    table = build_table("quickstart", made)
    assert [path.suffix for path in write_tables([table], tmp_path)] == [".md", ".csv"]
    assert write_tables([table], tmp_path, latex=True)[-1].read_text(encoding="utf-8") == to_latex(table)
    lines = to_latex(table).splitlines()
    assert r"CE & 0.0 $\pm$ 1.0 & - & - & - & - \\" in lines
    assert any(r"RMSE to the noise-free target $\downarrow$" in line for line in lines)


def test_the_tables_of_the_published_records_are_those_committed(published: list[RunRecord]) -> None:
    """Pages and CSV, byte for byte; `.ci/run` makes all of them."""
    table = build_table("quickstart", published, "tiny")
    for suffix, render in (("md", to_markdown), ("csv", to_csv)):
        assert render(table) == (TABLES / f"quickstart_tiny.{suffix}").read_text(encoding="utf-8")
