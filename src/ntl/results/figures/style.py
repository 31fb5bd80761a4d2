"""The look of every figure, legible at the paper's column width, and its files, the same bytes each time."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from ntl.config.folders import CONFIG_DIR
from ntl.config.targets import locate
from ntl.results.figures.spec import FIGURE_FOLDER, FigureSpec, Source, figure_specs
from ntl.results.record import RunRecord
from ntl.results.render import seeds_text
from ntl.results.spec import read_typed
from ntl.system.files import atomic_writer

COLUMN, PAGE = 3.25, 6.75  # inches: one column and the whole width of an ICML page


@dataclass
class Look:
    name: str
    colour: str
    marker: str
    line: str


LOOKS: dict[str, Look] = read_typed(dict[str, Look], CONFIG_DIR / "looks.yaml")
# Figures drawn and written in a ``with style()`` have our settings, whatever the user's own are.
style = partial(matplotlib.rc_context, fname=FIGURE_FOLDER / "figures.mplstyle")
# A marker at the end of an axis is drawn whole, above it.
ON_AXIS: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 4}
# For imshow: first row below, and cells as they are; resampled ones would be megabytes of a PDF.
RASTER: dict[str, Any] = {"origin": "lower", "interpolation": "none", "cmap": "viridis_r"}

# Without the time and the version that a file was written by.
_METADATA = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True)
class Drawing:
    """A figure, what it shows, and its caption."""

    spec: FigureSpec
    figure: Figure
    caption: str


def panels(width: float, height: float, columns: int, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of ``width`` × ``height`` inches, and its panels row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def name_rows(axes: Axes, names: list[str], top: float = -0.5) -> None:
    """A line of the panel for each name, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, top)


def finish(source: Source, figure: Figure, legend: int = 0, **values: str) -> Drawing:
    """The drawing, its caption filled in with the model of the first panel, the seeds of all, and ``values``.

    ``legend``: the columns of a legend of the first panel, below all of them.
    """
    if source.panels:
        first, counts = source.panels[0], [len(have) for panel in source.panels for have in panel.runs.values()]
        values = {"model": first.model, "place": first.place, "seeds": seeds_text(counts), **values}
    if legend:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=legend)
    return Drawing(source.spec, figure, source.spec.caption.format(**values))


def write(drawing: Drawing, folder: Path) -> list[Path]:
    """The drawing in each of its formats, in the ``style`` it was drawn in."""
    paths = [folder / f"{drawing.spec.name}.{kind}" for kind in drawing.spec.formats]
    for path in paths:
        kind, drawn = path.suffix[1:], BytesIO()
        drawing.figure.savefig(drawn, format=kind, metadata=_METADATA[kind])
        with atomic_writer(path) as stream:
            stream.write(_in_256_colours(drawn) if kind == "png" else drawn.getvalue())
    return paths


def _in_256_colours(png: BytesIO) -> bytes:
    # Enough for lines on white, and a third of the size.
    small = BytesIO()
    with Image.open(png) as image:
        colours = image.convert("RGB").quantize(dither=Image.Dither.NONE)
        colours.save(small, "png", optimize=True, dpi=image.info["dpi"])
    return small.getvalue()


def name_of(loss: str) -> str:
    """The name of a loss in a line of text."""
    return LOOKS[loss].name.replace("\n", " ")


def draw_all(records: Sequence[RunRecord], results: Path) -> tuple[list[Drawing], list[FigureSpec]]:
    """The figures of ``config/figure`` that were drawn, and the specs of those without anything to draw."""
    drawn, missing = list[Drawing](), list[FigureSpec]()
    for source in (Source(spec, records, results) for spec in figure_specs()):
        ran = all(panel.runs for panel in source.panels)
        if drawing := locate(source.spec.draw)(source) if ran else None:
            drawn.append(drawing)
        else:
            missing.append(source.spec)
    return drawn, missing


def page(drawings: Sequence[Drawing], missing: Sequence[FigureSpec]) -> str:
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
