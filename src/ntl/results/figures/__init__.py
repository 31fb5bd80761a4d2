"""Every figure, drawn from run records and two small CSV files; the same bytes for the same numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntl.config.targets import locate
from ntl.results.figures.spec import FigureSpec, Source, figure_specs
from ntl.results.record import RunRecord

if TYPE_CHECKING:
    from ntl.results.figures.style import Drawing


def draw_all(records: Sequence[RunRecord], results: Path) -> tuple[list["Drawing"], list[FigureSpec]]:
    """The figures of ``config/figure`` that were drawn, and the specs of those without anything to draw."""
    drawn, missing = list["Drawing"](), list[FigureSpec]()
    for source in (Source(spec, records, results) for spec in figure_specs()):
        ran = all(panel.runs for panel in source.panels)
        if drawing := locate(source.spec.draw)(source) if ran else None:
            drawn.append(drawing)
        else:
            missing.append(source.spec)
    return drawn, missing


def page(drawings: "Sequence[Drawing]", missing: Sequence[FigureSpec]) -> str:
    """``README.md`` of the folder: each figure with its caption and its files; then those not drawn."""
    lines = ["# Figures", "", "Drawn by `make figures`; never edited by hand.", ""]
    for each in drawings:
        files = " ".join(f"[{kind}]({each.spec.name}.{kind})" for kind in each.spec.formats)
        image = f"![{each.spec.title}]({each.spec.name}.png)"
        lines += [f"## {each.spec.title}", "", image, "", f"{each.caption} {files}", ""]
    if missing:
        lines += ["Not drawn, as no record has what they are drawn from (config/figure says what that is):", ""]
        lines += [*(f"- {spec.title}" for spec in missing), ""]
    return "\n".join(lines)
