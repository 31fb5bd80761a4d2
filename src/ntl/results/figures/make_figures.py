"""``make figures``: every figure of config/figure that the published results can give, and a page that shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.cli import Parser
from ntl.config.folders import RESULTS
from ntl.config.targets import locate
from ntl.results.figures.spec import FigureSpec, Source, figure_names, load_figure_spec
from ntl.results.load import check_folders, load_records
from ntl.system.errors import one_line_errors
from ntl.system.files import write_text

if TYPE_CHECKING:
    from ntl.results.figures.style import Drawing


def draw_all(source: Source) -> tuple[list["Drawing"], list[FigureSpec]]:
    """The figures of ``config/figure`` that were drawn, and the specs of those without anything to draw."""
    specs = [load_figure_spec(name) for name in figure_names()]
    drawn = [(spec, locate(spec.draw)(spec, source)) for spec in specs]
    there = [drawing for _, drawing in drawn if drawing is not None]
    return there, [spec for spec, drawing in drawn if drawing is None]


def page(drawings: "Sequence[Drawing]", missing: Sequence[FigureSpec] = ()) -> str:
    """``README.md`` of the folder: each figure with its caption and its files; then those not drawn."""
    lines = ["# Figures", "", "Drawn by `make figures`; never edited by hand.", ""]
    for drawing in drawings:
        files = " ".join(f"[{kind}]({drawing.name}.{kind})" for kind in drawing.formats)
        lines += [
            f"## {drawing.title}",
            "",
            f"![{drawing.title}]({drawing.name}.png)",
            "",
            f"{drawing.caption} {files}",
            "",
        ]
    if missing:
        lines += ["Not drawn, as no record has what they are drawn from (config/figure says what that is):", ""]
        lines += [*(f"- {spec.title}" for spec in missing), ""]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild the figures from records and committed benchmarks alone. UserError: a folder that does not exist."""
    parser = Parser(description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[RESULTS / "runs"], metavar="DIR")
    parser.add_argument("--out", type=Path, default=RESULTS / "figures", metavar="DIR")
    chosen = parser.parse_args(argv)
    from ntl.results.figures.style import style, write  # matplotlib

    with style():
        drawings, missing = draw_all(Source(load_records(check_folders(chosen.records)), RESULTS))
        with one_line_errors("draw into", chosen.out):
            for drawing in drawings:
                print(*write(drawing, chosen.out))
    write_text(chosen.out / "README.md", page(drawings, missing))
