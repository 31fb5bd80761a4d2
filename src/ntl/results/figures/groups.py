"""Figures A1 and A2: accuracy by module of mathematics, relative error by the digits of two factors."""

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from ntl.results.figures.runs import runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, MARKERS, PAGE, RASTER, Drawing, panels, seeds_text
from ntl.results.record import RunRecord

SPLITS = ("interpolate", "extrapolate")
PAIR = re.compile(r"(\d+)x(\d+)")
PERCENT = (5, 200)  # ends of the colours
PAIR_LOSSES = ("ce", "ce_digits", "ntl_was")


def group_values(records: Mapping[int, RunRecord], split: str, metric: str) -> dict[str, list[float]]:
    """group -> one value a seed, where it is defined."""
    found: dict[str, list[float]] = {}
    for record in records.values():
        for group, values in record.groups.get(split, {}).items():
            if (value := values.get(metric)) is not None:
                found.setdefault(group, []).append(value)
    return found


def draw_modules(records: Sequence[RunRecord]) -> Drawing | None:
    """Figure A1. None where no run of mathematics has modules."""
    runs = runs_by_loss(records, "mathematics")
    modules = {
        split: sorted({group for have in runs.values() for group in group_values(have, split, "accuracy")})
        for split in SPLITS
    }
    rows = {split: names for split, names in modules.items() if names}
    if not rows:
        return None
    ratios = [len(names) for names in rows.values()]
    figure, axes = panels(PAGE, 1.0 + 0.19 * sum(ratios), 1, len(rows), sharex=True, height_ratios=ratios)
    for each, (split, names) in zip(axes, rows.items(), strict=True):
        for at, (loss, have) in enumerate(runs.items()):
            values = group_values(have, split, "accuracy")
            offset = 0.16 * (at - (len(runs) - 1) / 2)
            places = [place + offset for place, name in enumerate(names) if name in values]
            found = [100 * np.array(values[name]) for name in names if name in values]
            each.hlines(places, [v.min() for v in found], [v.max() for v in found], color=COLOURS[loss], linewidth=1)
            label = f"{_name(loss)} ({seeds_text([len(have)])})"
            each.plot([v.mean() for v in found], places, MARKERS[loss], color=COLOURS[loss], markersize=4, label=label)
        each.set_yticks(range(len(names)), [name.replace("__", ": ").replace("_", " ") for name in names])
        each.set_ylim(len(names) - 0.5, -0.5)
        each.set_title(f"{split.removesuffix('e')}ion", loc="left")
        each.set_xlim(left=-1)
        each.grid(axis="both")
    axes[-1].set_xlabel("exact answers (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Drawing(
        "figureA1",
        "Figure A1: accuracy by module of mathematics",
        figure,
        f"Exact greedy answers, scale=tiny, {seeds_text([len(have) for have in runs.values()])} a loss: the mean, and "
        "the range over seeds.",
    )


def pair_grid(records: Mapping[int, RunRecord], metric: str) -> np.ndarray:
    """(D, D): the median over seeds at row (digits of the first factor − 1) and column (of the second − 1), or NaN."""
    cells = {}
    for split in SPLITS:
        for group, values in group_values(records, split, metric).items():
            if pair := PAIR.fullmatch(group):
                cells[int(pair[1]) - 1, int(pair[2]) - 1] = float(np.median(values))
    size = 1 + max((max(cell) for cell in cells), default=-1)
    grid = np.full((size, size), np.nan)
    for cell, value in cells.items():
        grid[cell] = value
    return grid


def draw_pairs(records: Sequence[RunRecord]) -> Drawing | None:
    """Figure A2. None where no run of multiplication has pairs of digits."""
    runs = {loss: have for loss, have in runs_by_loss(records, "multiplication").items() if loss in PAIR_LOSSES}
    grids = {loss: grid for loss, have in runs.items() if (grid := pair_grid(have, "mape")).size}
    if not grids:
        return None
    norm = LogNorm(*PERCENT)
    figure, axes = panels(PAGE, 2.5, len(grids), sharey=True)
    image = None
    for each, (loss, grid) in zip(axes, grids.items(), strict=True):
        image = each.imshow(grid, norm=norm, **RASTER)
        _cells(each, grid, norm)
        inside = [max(int(part) for part in PAIR.fullmatch(g).groups()) for g in _inside(runs[loss])]  # pyright: ignore[reportOptionalMemberAccess]
        if inside:
            edge = max(inside)
            each.add_patch(Rectangle((-0.5, -0.5), edge, edge, fill=False, color="#000000", linewidth=1.5))
        each.set_xticks(range(len(grid)), [str(n + 1) for n in range(len(grid))])
        each.set_yticks(range(len(grid)), [str(n + 1) for n in range(len(grid))])
        each.set_title(LOSSES[loss])
        each.set_xlabel("digits of the second factor")
        each.spines[:].set_visible(False)
        each.tick_params(length=0)
    axes[0].set_ylabel("digits of the first factor")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, extend="both", label="mean relative error (%)")  # pyright: ignore[reportArgumentType]
    bar.set_ticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
    bar.minorticks_off()
    return Drawing(
        "figureA2",
        "Figure A2: relative error by digits of the two factors of multiplication",
        figure,
        "Mean absolute percentage error of greedy answers, of the seeds the median, scale=tiny, "
        f"{seeds_text([len(runs[loss]) for loss in grids])} a loss. Framed: lengths that were trained on. The median, "
        "as one answer of ten digits too many makes a seed's mean millions of percent.",
    )


def _inside(records: Mapping[int, RunRecord]) -> list[str]:
    return [group for group in group_values(records, "interpolate", "mape") if PAIR.fullmatch(group)]


def _cells(axes: Axes, grid: np.ndarray, norm: LogNorm) -> None:
    for (row, column), value in np.ndenumerate(grid):
        if not math.isnan(value):
            # viridis reversed: dark where the value is large.
            colour = "#FFFFFF" if norm(value) > 0.5 else "#000000"
            axes.text(column, row, f"{value:.0f}" if value < 1000 else ">999", ha="center", va="center", color=colour)


def _name(loss: str) -> str:
    return LOSSES[loss].replace("\n", " ")
