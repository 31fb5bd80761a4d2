"""Scores of groups of questions: Figure A1, by module of mathematics; A2, by the digits of two factors; and accuracy by
the length of a text and the depth of what is asked for."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Rectangle

from ntl.results.figures.spec import (
    ByLoss,
    FigureSpec,
    PanelSpec,
    Source,
    constants,
    defined,
    models,
    panel_plans,
    runs_by_loss,
    scores_by_loss,
)
from ntl.results.figures.style import (
    COLOURS,
    LOSSES,
    MARKERS,
    PAGE,
    RASTER,
    Drawing,
    finish,
    name_of,
    name_rows,
    panels,
    seeds_text,
)
from ntl.results.match import row_records
from ntl.results.record import RunRecord

SPLITS = ("interpolate", "extrapolate")
PAIR = re.compile(r"(\d+)x(\d+)")
DEPTH = re.compile(r"(\d+)@(\d+)")  # of ntl.data.sets.key_values
PERCENT = (5, 200)  # ends of the colours


def group_values(records: Mapping[int, RunRecord], split: str, metric: str) -> dict[str, list[float]]:
    """group -> one value a seed, where it is defined."""
    found: dict[str, list[float]] = {}
    for record in records.values():
        for group, values in record.groups.get(split, {}).items():
            if (value := values.get(metric)) is not None:
                found.setdefault(group, []).append(value)
    return found


def draw_modules(spec: FigureSpec, source: Source) -> Drawing | None:
    """Figure A1. None where no run has modules."""
    drawn = []
    for panel in spec.panels:
        runs = runs_by_loss(spec, panel, source)
        if names := sorted({name for have in runs.values() for name in group_values(have, panel.split, panel.metric)}):
            drawn.append((panel, runs, names))
    if not drawn:
        return None
    ratios = [len(names) for _, _, names in drawn]
    figure, axes = panels(PAGE, 1.0 + 0.25 * sum(ratios), 1, len(drawn), sharex=True, height_ratios=ratios)
    for each, (panel, runs, names) in zip(axes, drawn, strict=True):
        for at, (loss, have) in enumerate(runs.items()):
            values = group_values(have, panel.split, panel.metric)
            offset = 0.27 * (at - (len(runs) - 1) / 2)  # equal values lie beside one another
            places = [place + offset for place, name in enumerate(names) if name in values]
            found = [100 * np.array(values[name]) for name in names if name in values]
            each.hlines(places, [v.min() for v in found], [v.max() for v in found], color=COLOURS[loss], linewidth=1)
            label = f"{name_of(loss)} ({seeds_text([len(have)])})"
            each.plot(
                [v.mean() for v in found], places, MARKERS[loss], color=COLOURS[loss], markersize=3.5, label=label
            )
        name_rows(each, [name.replace("__", ": ").replace("_", " ") for name in names])
        each.set_title(panel.title, loc="left")
        each.grid(axis="both")
    # Shared by the panels, and it ends their scaling to what is drawn: after the last of them.
    axes[0].set_xlim(left=-1)
    axes[-1].set_xlabel(drawn[-1][0].axis)
    ran, stood = models(spec, spec.panels[0])
    return finish(
        spec,
        figure,
        legend=3,
        seeds=seeds_text([len(have) for _, runs, _ in drawn for have in runs.values()]),
        findings=" ".join(_overall(spec, panel, runs) for panel, runs, _ in drawn),
        model=ran,
        place=stood,
    )


def _overall(spec: FigureSpec, panel: PanelSpec, runs: ByLoss) -> str:
    """What each loss has over all modules, and the best constant answer."""
    whole = replace(panel, metric=f"{panel.split}/{panel.metric}")
    scores = {loss: defined(found) for loss, found in scores_by_loss(runs, whole.metric).items()}
    parts = [f"{name_of(loss)} {np.mean(list(found.values())):.1%}" for loss, found in scores.items() if found]
    best = max((np.mean(found) for found in constants(spec, whole, runs).values()), default=None)
    parts += [] if best is None else [f"the best constant answer {best:.1%}"]
    return f"All of {panel.title}: {', '.join(parts)}." if parts else ""


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


def draw_pairs(spec: FigureSpec, source: Source) -> Drawing | None:
    """Figure A2. None where no run has pairs of digits."""
    (panel,) = spec.panels
    runs = runs_by_loss(spec, panel, source)
    grids = {loss: grid for loss, have in runs.items() if (grid := pair_grid(have, panel.metric)).size}
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
        ticks = [str(n + 1) for n in range(len(grid))]
        each.set_xticks(range(len(grid)), ticks)
        each.set_yticks(range(len(grid)), ticks)
        each.set_title(LOSSES[loss])
        each.set_xlabel("digits of the second factor")
        each.spines[:].set_visible(False)
        each.tick_params(length=0)
    axes[0].set_ylabel("digits of the first factor")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, extend="both", label=panel.axis)  # pyright: ignore[reportArgumentType]
    bar.set_ticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
    bar.minorticks_off()
    counts = seeds_text([len(runs[loss]) for loss in grids])
    return finish(spec, figure, seeds=counts, model=models(spec, panel)[0])


def _inside(records: Mapping[int, RunRecord]) -> list[str]:
    return [group for group in group_values(records, "interpolate", "mape") if PAIR.fullmatch(group)]


def _cells(axes: Axes, grid: np.ndarray, norm: Normalize, form: str = "{:.0f}") -> None:
    for (row, column), value in np.ndenumerate(grid):
        if not math.isnan(value):
            # viridis reversed: dark where the value is large.
            colour = "#FFFFFF" if norm(value) > 0.5 else "#000000"
            text = form.format(value) if value < 1000 else ">999"
            axes.text(column, row, text, ha="center", va="center", color=colour)


def depth_grid(records: Mapping[int, RunRecord], metric: str) -> tuple[list[int], list[int], np.ndarray]:
    """Lengths (L,), depths in percent (D,), and the means over seeds (L, D), NaN where there is none."""
    cells = {
        (int(place[1]), int(place[2])): float(np.mean(values))
        for split in SPLITS
        for group, values in group_values(records, split, metric).items()
        if (place := DEPTH.fullmatch(group))
    }
    lengths, depths = (sorted({cell[axis] for cell in cells}) for axis in (0, 1))
    grid = np.array([[cells.get((length, depth), np.nan) for depth in depths] for length in lengths])
    return lengths, depths, grid


def draw_depths(spec: FigureSpec, source: Source) -> Drawing | None:
    """One panel for each row of a table. None where a row has no run with such groups."""
    drawn = []
    for panel in spec.panels:
        (plan,) = panel_plans(spec, panel)
        records = row_records(plan, source.records)
        lengths, depths, grid = depth_grid(records, panel.metric)
        if not grid.size:
            return None
        trained = len({DEPTH.sub(r"\1", group) for group in group_values(records, "interpolate", panel.metric)})
        drawn.append((panel, lengths, depths, grid, trained, len(records)))
    figure, axes = panels(PAGE, 2.3, len(drawn), sharey=True)
    norm, image = Normalize(0, 1), None
    for each, (panel, lengths, depths, grid, trained, _) in zip(axes, drawn, strict=True):
        image = each.imshow(grid, norm=norm, aspect="auto", **RASTER)
        _cells(each, grid, norm, "{:.2f}")
        each.axhline(trained - 0.5, color="#000000", linewidth=1.5)
        each.set_xticks(range(len(depths)), [str(depth) for depth in depths])
        each.set_yticks(range(len(lengths)), [str(length) for length in lengths])
        each.set_title(panel.title)
        each.set_xlabel("depth (%)")
        each.spines[:].set_visible(False)
        each.tick_params(length=0)
    axes[0].set_ylabel("words of the text")
    figure.colorbar(image, ax=axes, shrink=0.8, label=drawn[0][0].axis)  # pyright: ignore[reportArgumentType]
    counts = seeds_text([count for *_, count in drawn])
    return finish(spec, figure, seeds=counts, model=models(spec, spec.panels[0])[0])
