"""Cells, pages and LaTeX as text."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ntl.results import build_table
from ntl.results.render import latex
from ntl.results.render.text import header, interval_text, number, short_text, value_parts
from ntl.results.spec import ColumnSpec
from ntl.results.statistics import summarize


def value_text(cell: Any, row: Any) -> str:
    return " ".join(filter(None, value_parts(cell, row)))


def column(spec: str = ".2f", **changes: Any) -> ColumnSpec:
    return ColumnSpec(**{"metric": "test/mae", "header": "MAE", "format": spec, **changes})


def text_of(
    values: list[float | None] | None,
    spec: str = ".2f",
    records: int | None = None,
    constant: str = "",
    text: Callable[..., str] = value_text,
) -> str:
    """The text of a cell with these values in a row of that many records (None: one a value)."""
    seeds = tuple(range(len(values or ())))
    cell: Any = SimpleNamespace(column=column(spec), seeds=seeds, summary=None if values is None else summarize(values))
    have = dict.fromkeys(range(len(seeds) if records is None else records))
    return text(cell, SimpleNamespace(spec=SimpleNamespace(constant=constant), records=have))


def test_header_says_which_way_is_better() -> None:
    expected = {"test/mae": "E ↓", "test/accuracy@paper": "E ↑", "test/unparsable": "E"}
    assert {metric: header(column(metric=metric, header="E")) for metric in expected} == expected


def test_no_minus_before_a_zero() -> None:
    assert [number(value, ".2f") for value in (-0.004, -0.006)] == ["0.00", "-0.01"]


def test_values_by_hand() -> None:
    assert text_of(None) == "-"
    assert text_of([1.234]) == "1.23"
    assert text_of([1.0, 3.0]) == "1.00, 3.00"
    # Mean 2, sd 1; t(2) = 4.302653 at 97.5%, so that the interval is 2 ± 4.302653 / sqrt(3).
    assert text_of([1.0, 2.0, 3.0]) == "2.00 ± 1.00 [-0.48, 4.48]"
    assert text_of([0.1, 0.2, 0.3], ".1%") == "20.0% ± 10.0% [-4.8%, 44.8%]"


def test_an_undefined_value_is_said_and_never_dropped() -> None:
    assert text_of([None]) == "undefined"
    assert text_of([1.0, None, 3.0]) == "undefined in 1 of 3, else 1.00, 3.00"


def test_a_metric_that_some_records_lack_shows_its_own_n() -> None:
    assert text_of([1.0, 3.0], records=3) == "1.00, 3.00 (n=2)"
    assert text_of([1.0, None], records=3) == "undefined in 1 of 2, else 1.00 (n=2)"
    # A constant has no seeds to count.
    assert text_of([1.0], records=3, constant="mean") == "1.00"


def test_differences_by_hand() -> None:
    texts = {(None, None): "", (-0.5,): "-0.50", (-0.5, 0.25): "-0.50, +0.25", (1.0, 2.0, 3.0): "+2.00 [-0.48, +4.48]"}
    assert {values: interval_text(summarize(values), column()) for values in texts} == texts


@pytest.mark.parametrize(
    ("values", "spec", "expected"),
    [
        (None, ".2f", "-"),
        ([None], ".2f", "undefined"),
        ([1.0, 3.0], ".2f", "1.00, 3.00"),
        ([1.0, 2.0, 3.0], ".3f", "2.0 ± 1.0"),  # two digits of the spread are enough
        ([0.01, 0.02, 0.03], ".3f", "0.020 ± 0.010"),
        ([0.01, 0.02, 0.03], ".1%", "2.0% ± 1.0%"),
        ([2.0, 2.0, 2.0], ".3f", "2.000 ± 0.000"),
        ([0.0, 0.0, 3e10], ".2f", "1e10 ± 2e10"),
        ([2.5e4], ".2f", "2e4"),
        ([9000.0, 10000.0, 11000.0], ",.0f", "10,000 ± 1,000"),
    ],
)
def test_on_the_page_a_number_has_no_more_digits_than_its_spread(
    values: list[float | None] | None, spec: str, expected: str
) -> None:
    assert text_of(values, spec, text=short_text) == expected


def test_on_the_page_a_second_line_counts_the_seeds_of_a_cell() -> None:
    assert text_of([1.0, None, 3.0], text=short_text) == "1.00, 3.00\n2 of 3 seeds"
    assert text_of([1.0, 3.0], records=3, text=short_text) == "1.00, 3.00\n2 of 3 seeds"


TABLES = Path(__file__).resolve().parents[2] / "results" / "tables"
WIDEST, MOST = 100, 7  # characters of a row as it is read, and columns


def visible(cell: str) -> int:
    """The widest line of a cell as a page shows it."""
    shown = re.sub(r"\\([\\|*_`<])|\*", lambda found: found[1] or "", cell.strip())
    return max(map(len, shown.split("<br>")))


@pytest.mark.parametrize("path", sorted(TABLES.glob("*_*.md")), ids=lambda path: path.stem)
def test_every_committed_page_is_narrow_enough_to_be_read(path: Path) -> None:
    blocks = re.findall(r"(?m)(?:^\|.*\n)+", path.read_text(encoding="utf-8"))
    assert blocks
    for block in blocks:
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        widths = [max(map(visible, column)) for column in zip(*(rows[:1] + rows[2:]), strict=True)]
        assert len(widths) <= MOST
        assert sum(widths) + len(widths) - 1 <= WIDEST, widths


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


def test_a_cell_has_its_interval_below_and_minus_signs(make_record) -> None:
    values = {1: -1.0, 2: 0.0, 3: 1.0}
    made = [make_record("ce", seed, {"test/rmse_truth": value}) for seed, value in values.items()]
    lines = latex.to_latex(build_table("quickstart", made)).splitlines()
    at = lines.index(r"CE & 3 & {0.000 $\pm$ 1.000} & {-} & {-} & {-} & {-} \\")
    assert lines[at + 1] == r" & & \footnotesize{[$-$2.484, 2.484]} &  &  &  &  \\"
    assert lines[at + 2].startswith("CE + digit CE")


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
