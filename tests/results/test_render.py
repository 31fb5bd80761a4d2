import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from ntl.results import build_table
from ntl.results.render import latex, markdown


def test_markdown_escapes_what_would_break_a_table() -> None:
    assert markdown.escape(r"a|b *c* d_e `f` <g> \h") == r"a\|b \*c\* d\_e \`f\` \<g> \\h"


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


def test_the_terminal_shows_the_finding_bold_and_what_is_missing(make_record) -> None:
    made = [make_record(loss, s, {"test/rmse": s / 7 + len(loss)}) for loss in ("ce", "ntl_was") for s in (1, 2, 3)]
    table = build_table("quickstart", made)
    console = Console(width=300, force_terminal=True, color_system="standard")
    with console.capture() as shown:
        markdown.show(table, console)
    styled = shown.get()
    screen = " ".join(re.sub(r"\x1b\[[\d;]*m", "", styled).split())
    assert "\x1b[1m2.29 ± 0.14" in styled
    assert "\x1b[1m7.29" not in styled
    assert "<br>" not in screen
    assert "Of its runs 9 are missing" in screen
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
