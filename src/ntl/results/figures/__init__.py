"""Every figure, drawn from run records and two small CSV files; the same bytes for the same numbers."""

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
    for each in drawings:
        files = " ".join(f"[{kind}]({each.name}.{kind})" for kind in each.formats)
        lines += [f"## {each.title}", "", f"![{each.title}]({each.name}.png)", "", f"{each.caption} {files}", ""]
    if missing:
        lines += ["Not drawn, as no record has what they are drawn from (config/figure says what that is):", ""]
        lines += [*(f"- {spec.title}" for spec in missing), ""]
    return "\n".join(lines)
