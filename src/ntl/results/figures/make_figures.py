"""``make figures``: every figure of config/figure that the published results can give, and a page that shows them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ntl.config.targets import locate
from ntl.results.figures.spec import FigureSpec, Source, figure_names, load_figure_spec

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
