"""LaTeX that compiles as it is, on its own and in print."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ntl.results import build_table
from ntl.results.render import latex

TABLES = Path(__file__).resolve().parents[2] / "results" / "tables"
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
