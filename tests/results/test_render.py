import re
from pathlib import Path

import pytest
from rich.console import Console

from ntl.results import build_table
from ntl.results.render import csv as flat
from ntl.results.render import latex, markdown, terminal
from ntl.results.spec import load_table_spec, table_names
from ntl.results.table import Table


def test_markdown_escapes_what_would_break_a_table() -> None:
    assert markdown.escape(r"a|b *c* d_e `f` <g> \h") == r"a\|b \*c\* d\_e \`f\` \<g> \\h"


def test_a_label_is_broken_neither_at_a_hyphen_nor_around_an_equals_sign(make_record) -> None:
    text = markdown.render(build_table("evidence", [make_record("ntl_number_level", 1, {"test/rmse": 1.0})]))
    assert "| NTL, number level,<br>λ = 0.3<br>" in text
    assert "| GCE, σ = 0.5, +<br>NTL-WAS-CDF,<br>λ = 0.3 |" in markdown.render(build_table("table_a6", []))


def everything(make_record, name: str, scale: str):
    columns = {column.metric for block in load_table_spec(name).blocks for column in block.columns}
    constants = {f"{metric}:{constant}": 1.0 for metric in columns for constant in ("mode", "median", "mean")}
    made = [
        make_record(loss, seed, {metric: seed + len(loss) / 7 for metric in columns} | constants)
        for loss in ("ce", "ce_digits", "ntl_was")
        for seed in (1, 2, 3)
    ]
    return build_table(name, made, scale)


@pytest.mark.slow
@pytest.mark.parametrize("name", table_names())
def test_every_form_of_every_table_names_every_row(make_record, name: str) -> None:
    for scale in load_table_spec(name).scales:
        check_every_form(everything(make_record, name, scale))


def check_every_form(table: Table) -> None:
    screen = terminal.render(table, Console(width=300))
    for block in table.blocks:
        shown = [column for column in block.columns if not column.details]
        for row in block.rows:
            assert markdown.escape(row.spec.label) in markdown.render(table).replace("<br>", " ")
            assert f"| {markdown.escape(row.spec.label)}" in markdown.render_details(table)
            assert latex.escape(row.spec.label) in latex.render(table)
            assert row.spec.label in screen
            assert row.spec.label in flat.render(table)
        for text in (markdown.render(table), markdown.render_details(table)):
            assert markdown.escape(block.title) in text
        columns = [len(shown), len(block.columns)]
        for text, count in zip((markdown.render(table), markdown.render_details(table)), columns, strict=True):
            part = text.split(f"## {markdown.escape(block.title)}")[1].split("\n\n")[1]
            assert {len(re.findall(r"(?<!\\)\|", line)) for line in part.splitlines()} == {
                count + 2 if text == markdown.render(table) else count + 3
            }
    assert latex.render(table).isascii()
    panels = latex.render(table).split(r"\toprule")[1:]
    for block, panel in zip(table.blocks, panels, strict=True):
        lines = [line for line in panel.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        (counted,) = {len(re.findall(r"(?<!\\)&", line)) for line in lines}
        assert counted - 1 == sum(not column.details for column in block.columns)
    every = [cell for cell in flat.cells(table) if cell["kind"] == "cell"]
    assert len(every) == sum(len(block.rows) * len(block.columns) for block in table.blocks)


TABLES = Path(__file__).resolve().parents[2] / "results" / "tables"
WIDEST, MOST = 100, 7  # characters of a row as it is read, and columns


def visible(cell: str) -> int:
    """The widest line of a cell as a page shows it."""
    shown = re.sub(r"\\([\\|*_`<])|\*", lambda found: found[1] or "", cell.strip())
    return max(map(len, shown.split("<br>")))


def test_what_is_seen_of_a_cell() -> None:
    assert visible(r" **0.52 ± 0.01**<br>paper 0.43 ") == 11
    assert visible(r" \*a\_b\* ") == 5


@pytest.mark.parametrize("path", sorted(TABLES.glob("*_*.md")), ids=lambda path: path.stem)
def test_every_committed_page_is_narrow_enough_to_be_read(path: Path) -> None:
    blocks = re.findall(r"(?m)(?:^\|.*\n)+", path.read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        widths = [max(map(visible, column)) for column in zip(*(rows[:1] + rows[2:]), strict=True)]
        assert len(widths) <= MOST
        assert sum(widths) + len(widths) - 1 <= WIDEST, widths


def test_every_committed_page_begins_with_what_ran_and_what_it_shows() -> None:
    for path in sorted(TABLES.glob("*_*.md")):
        title, _, finding, *_ = path.read_text(encoding="utf-8").splitlines()
        assert title.startswith("# ")
        # Of a table whose runs are under way.
        if not finding.startswith(("**Nothing is shown yet: no seed of both ", "**Nothing is shown, as so few seeds ")):
            assert re.fullmatch(r"\*\*.+\(.*n = \d+ seeds?; exact p = .*\).*\.\*\*", finding), path
        assert (TABLES / "details" / path.name).is_file()


def test_the_terminal_shows_the_finding_bold_and_what_is_missing(make_record) -> None:
    made = [make_record(loss, s, {"test/rmse": s / 7 + len(loss)}) for loss in ("ce", "ntl_was") for s in (1, 2, 3)]
    table = build_table("quickstart", made)
    styled = terminal.render(table, Console(width=300, force_terminal=True, color_system="standard"))
    screen = terminal.render(table, Console(width=300, no_color=True, force_terminal=False))
    assert "2.29 ± 0.14" in screen
    assert "[" not in screen.split("noise")[1].split("multiplication")[0]
    assert "\x1b[1m2.29 ± 0.14" in styled
    assert "\x1b[1m7.29" not in styled
    lost = "test/rmse_truth, test/mae, test/rmse_truth@expectation, test/accuracy, test/unparsable"
    assert f"CE: {lost} not in the records of" in screen
    assert "6 runs are missing" in screen
    assert "Nothing is shown: " not in screen
    assert "Nothing is shown yet: no seed of both NTL-WAS, λ = 0.3 and CE has RMSE to the noise-free target." in screen
