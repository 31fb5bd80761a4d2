"""The look of every figure, legible at the paper's column width, and its files, the same bytes each time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from ntl.results.figures.spec import FigureSpec
from ntl.system.files import atomic_writer

COLUMN, PAGE = 3.25, 6.75  # inches: one column and the whole width of an ICML page


class Look(NamedTuple):
    name: str
    colour: str
    marker: str
    line: str


# Okabe and Ito's colours, which the colour-blind tell apart; the markers hold in black and white, too.
LOOKS = {
    "ce": Look("CE", "#000000", "o", "-"),
    "ce_digits": Look("CE + digit CE\n(control)", "#56B4E9", "s", "--"),
    "ntl_was": Look("NTL-WAS", "#D55E00", "D", "-"),
    "ntl_crps": Look("NTL-CRPS", "#009E73", "^", "-."),
    "ntl_number_level": Look("NTL,\nnumber level", "#CC79A7", "P", ":"),
    "ntl_mse": Look("NTL-MSE", "#0072B2", "v", "--"),
    "ntl_mae": Look("NTL-MAE", "#E69F00", "<", "-."),
    "ntl_huber": Look("NTL-Huber", "#999999", ">", ":"),
    "ntl_was_cdf": Look("NTL-WAS-CDF", "#D55E00", "d", ":"),
    "ntl_was_squashed": Look("NTL-WAS,\nsquashed", "#E69F00", "h", "--"),
    "ntl_was_vocab": Look("NTL-WAS,\nall tokens", "#999999", "8", "--"),
    "gce": Look("GCE", "#0072B2", "X", "-"),
    "gce_ntl_was": Look("GCE +\nNTL-WAS-CDF", "#009E73", "p", "--"),
    "mse": Look("MSE", "#E69F00", "*", "-"),
    "smmd": Look("SMMD", "#56B4E9", "H", "-"),
    "dist2": Look("DIST2Loss", "#CC79A7", ".", "-"),
    "digit_entropy": Look("DEL", "#999999", "+", "-"),
    "ntil": Look("NTIL", "#009E73", "x", "-"),
    "emo": Look("EMO", "#000000", "1", "--"),
    "place_weighted": Look("NTL-WAS,\nby place", "#CC79A7", "2", "--"),
    "expected_error": Look("expected error", "#000000", "3", ":"),
}

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",  # DejaVu Sans, which matplotlib brings: the same letters on every machine
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "savefig.dpi": 160,
    "svg.hashsalt": "ntl",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # publishers refuse matplotlib's default, Type 3
    "pdf.compression": 0,  # compressed bytes differ between versions of zlib
}
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


@contextmanager
def style() -> Iterator[None]:
    """Figures drawn and written in this block have our settings, whatever the user's own are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def panels(width: float, height: float, columns: int, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of ``width`` × ``height`` inches, and its panels row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def name_rows(axes: Axes, names: list[str], top: float = -0.5) -> None:
    """A line of the panel for each name, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, top)


def finish(spec: FigureSpec, figure: Figure, legend: int = 0, **values: str) -> Drawing:
    """The drawing of a spec, its caption filled in with ``values``.

    ``legend``: the columns of a legend of the first panel, below all of them.
    """
    if legend:
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=legend)
    return Drawing(spec, figure, spec.caption.format(**values))


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
