"""Figures 1b and 2, the losses themselves, from the CSV files of ``scripts/loss_curves.py``.

The losses are torch functions, and this package works without torch: their values are committed as numbers, which a
test compares with the functions, so that `make figures` takes seconds and gives the same bytes on every processor.
"""

import numpy as np
from matplotlib.colors import Normalize

from ntl.results.figures.runs import Source
from ntl.results.figures.spec import FigureSpec
from ntl.results.figures.style import COLOURS, COLUMN, MARKERS, PAGE, RASTER, Drawing, finish, panels
from ntl.results.load import read_rows

LABEL = 4
# Columns that are no loss, or one that is not shown.
BESIDE = {"predicted", "p3", "p5", "ce_original"}


def draw_by_digit(spec: FigureSpec, source: Source) -> Drawing:
    """Figure 1b from ``losses_by_digit.csv``."""
    rows = read_rows(source.file(spec, "curves"))
    digits = _floats(rows, "predicted")
    figure, (axes,) = panels(COLUMN, 2.3, 1)
    known = {"ce": (1.0, "CE"), "ntl_mse": (0.5, "NTL-MSE × 0.5"), "ntl_was": (1.0, "NTL-WAS")}
    for loss in _losses(rows):
        factor, label = known.get(loss, (1.0, loss))
        options = {"color": COLOURS.get(loss), "marker": MARKERS.get(loss), "markersize": 4, "linewidth": 1.2}
        axes.plot(digits, factor * _floats(rows, loss), label=label, **options)
    axes.set_xticks(digits)
    axes.set_ylim(bottom=-0.3)
    axes.set_xlabel(f"predicted digit (the label is {LABEL})")
    axes.set_ylabel("loss")
    axes.grid(axis="y")
    axes.legend(loc="upper center", ncols=1)
    return finish(spec, figure)


def draw_by_mass(spec: FigureSpec, source: Source) -> Drawing:
    """Figure 2 from ``losses_by_mass.csv``."""
    rows = read_rows(source.file(spec, "curves"))
    known = {"ce": "CE (nats)", "ntl_mse": "NTL-MSE (squared units)", "ntl_was": "NTL-WAS (units)"}
    losses = _losses(rows)
    figure, axes = panels(PAGE, 2.1, len(losses), sharey=True)
    for each, loss in zip(axes, losses, strict=True):
        # CE has no largest value: where p(4) < 0.02 its colour is the last one.
        top = 4.0 if loss == "ce" else 1.0
        image = each.imshow(_grid(rows, loss), extent=(0, 1, 0, 1), norm=Normalize(0, top), **RASTER)
        bar = figure.colorbar(image, ax=each, fraction=0.045, pad=0.03, extend="max" if loss == "ce" else "neither")
        bar.set_ticks([0, 2, 4] if loss == "ce" else [0, 0.5, 1])
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        each.set_title(known.get(loss, loss))
        each.set_xlabel("p(3)")
        each.set_xticks([0, 0.5, 1])
        each.set_yticks([0, 0.5, 1])
    axes[0].set_ylabel("p(5)")
    return finish(spec, figure)


def _losses(rows: list[dict[str, str]]) -> list[str]:
    """The columns that are a loss, as they stand."""
    return [name for name in rows[0] if name not in BESIDE]


def _floats(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _grid(rows: list[dict[str, str]], name: str) -> np.ndarray:
    """(S, S): the column at row p(5), column p(3); NaN, which is not drawn, where p(4) would be negative."""
    p3, p5 = _floats(rows, "p3"), _floats(rows, "p5")
    steps = round(1 / p3[p3 > 0].min())
    grid = np.full((steps + 1, steps + 1), np.nan)
    # An infinite cell would not be drawn either: it is beyond the last colour as well as any large number.
    grid[np.rint(p5 * steps).astype(int), np.rint(p3 * steps).astype(int)] = np.minimum(_floats(rows, name), 1e9)
    return grid
