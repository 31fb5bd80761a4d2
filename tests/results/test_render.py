import io
import re

import pytest
from rich.console import Console

from ntl.config.table import load_table_spec, table_names
from ntl.results import build_table, latex, markdown
from ntl.results.table import Table


def test_markdown_escapes_what_would_break_a_table() -> None:
    assert markdown.escape(r"a|b *c* d_e `f` <g> \h") == r"a\|b \*c\* d\_e \`f\` \<g> \\h"


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
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(table.rich())
    screen = console.export_text()
    forms = {"md": (table.markdown(), markdown.escape), "tex": (table.latex(), latex.escape)}
    for block in table.blocks:
        for row in block.rows:
            for text, escape in forms.values():
                assert escape(row.spec.label) in text
            assert row.spec.label in screen
            assert row.spec.label in table.csv()
    assert table.latex().isascii()
    panels = iter(table.latex().split(r"\toprule")[1:])
    for block in table.blocks:
        shown = 0
        while shown < len(block.columns):  # a block's columns may take several tables
            lines = [line for line in next(panels).splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
            (counted,) = {len(re.findall(r"(?<!\\)&", line)) for line in lines}
            shown += counted - 1
        assert shown == len(block.columns)
    assert next(panels, None) is None
    assert len(table.cells()) == sum(len(block.rows) * len(block.columns) for block in table.blocks)


def test_the_terminal_shows_brackets_bold_and_what_is_missing(make_record) -> None:
    made = [make_record(loss, s, {"test/rmse": s / 7 + len(loss)}) for loss in ("ce", "ntl_was") for s in (1, 2, 3)]
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(build_table("quickstart", made).rich())
    styled = console.export_text(clear=False, styles=True)
    screen = console.export_text()
    assert "2.286 ± 0.143 [1.931, 2.641]" in screen
    assert "+5.000 [+5.000, +5.000] 3/3" in screen
    assert "\x1b[1m2.286 ± 0.143" in styled
    assert "\x1b[1m7.286" not in styled
    assert "CE: test/rmse_truth, test/mae, test/accuracy, test/unparsable not in the records of" in screen
    assert "6 runs are missing" in screen
