import os
import re
import shutil
import subprocess
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


# The first that is installed is taken.
ENGINES = {
    "pdflatex": ("-interaction=nonstopmode", "-halt-on-error"),
    "lualatex": ("-interaction=nonstopmode", "-halt-on-error"),
    "tectonic": ("--keep-logs",),
}
# An article of one column, with the margins that most have. Each file begins on a page of its own.
ARTICLE = r"""\documentclass{article}
\usepackage{booktabs,graphicx}
\usepackage[margin=1in]{geometry}
\begin{document}
%s
\end{document}
"""
PACKAGES = re.compile(r"^% Needs \\usepackage\{booktabs,graphicx\}\. ")
# What LaTeX goes on after, though something is lost or cut off in print.
FAULTS = re.compile(r"Undefined control sequence|Missing character|Overfull \\[hv]box|Float too large|multiply defined")


def test_every_special_character_is_escaped() -> None:
    text = r"a_b & 5% of $x$ #1 {y} ~ ^ \ <3> ± 4×5 λ R² ↑"
    assert latex.escape(text) == (
        r"a\_b \& 5\% of \$x\$ \#1 \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
        r" \textless{}3\textgreater{} $\pm$ 4$\times$5 $\lambda$ R$^2$ $\uparrow$"
    )


def test_a_cell_has_its_interval_below_and_minus_signs(make_record) -> None:
    values = {1: -1.0, 2: 0.0, 3: 1.0}
    made = [make_record("ce", seed, {"test/rmse_truth": value}) for seed, value in values.items()]
    lines = latex.render(build_table("quickstart", made)).splitlines()
    at = lines.index(r"CE & 3 & {0.000 $\pm$ 1.000} & {-} & {-} & {-} & {-} \\")
    assert lines[at + 1] == r" & & \footnotesize{[$-$2.484, 2.484]} &  &  &  &  \\"
    assert lines[at + 2].startswith("CE + digit CE")


def test_a_header_stands_in_narrow_lines() -> None:
    (column,) = [c for c in build_table("table5", []).blocks[0].columns if c.metric == "interpolate/within_1_percent"]
    lines = r"interpolate \\ within 1\% of \\ the answer $\uparrow$"
    assert latex._header(column) == rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{lines}\end{{tabular}}"


def test_the_columns_are_those_of_the_page_for_people() -> None:
    text = latex.render(build_table("table5", []))
    (caption,) = re.findall(r"\\caption\{(.*)\}", text)
    assert caption.startswith(
        "Paper, Table 5 with a tiny GPT-2, a tiny Granite and a tiny Granite MoE in place of GPT-2 "
    )
    assert caption.endswith(": decoder-only models on integer multiplication (scale: tiny)")
    assert text.count(r"\multicolumn{5}") == 3  # a label, n and three of its twelve columns
    assert "median" not in re.split(r"\\midrule", text)[0]


def compile_article(folder: Path, files: list[Path]) -> str:
    """The log of an article that inputs the files, each from its first line on."""
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        message = f"none of {', '.join(ENGINES)} is installed"
        if os.environ.get("NTL_REQUIRE_LATEX") == "1":
            pytest.fail(message)
        pytest.skip(message)
    (folder / "main.tex").write_text(ARTICLE % "\n".join(rf"\input{{{file}}}\clearpage" for file in files))
    # Without it the log is broken into lines of 79 characters, also within a word.
    environment = os.environ | {"max_print_line": "1000"}
    command = [engine, *ENGINES[engine], "main.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, env=environment, check=False)
    log = (folder / "main.log").read_text(errors="replace") if (folder / "main.log").is_file() else ""
    assert done.returncode == 0, log[-2000:] or done.stderr[-2000:]
    return log


@pytest.mark.slow
def test_every_committed_table_compiles_and_fits_on_its_page(tmp_path: Path) -> None:
    files = sorted(TABLES.glob("*.tex"))
    assert len(files) > 10
    assert all(PACKAGES.match(file.read_text()) for file in files)
    log = compile_article(tmp_path, files)
    assert [line for line in log.splitlines() if FAULTS.search(line)] == []
    assert (tmp_path / "main.pdf").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault"),
    [(r"\rule{9in}{1pt}", "Overfull"), ("\u03bb", "Unicode|Missing character"), (r"\nope", "Undefined")],
)
def test_what_is_lost_in_print_is_seen(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "bad.tex").write_text(f"{text}\n", encoding="utf-8")
    try:
        log = compile_article(tmp_path, [tmp_path / "bad.tex"])
    except AssertionError as error:
        log = str(error)
    assert re.search(fault, log)
