"""Scores of groups of questions: Figure A1, by module of mathematics; A2, by the digits of two factors; accuracy by the
length of a text and the depth of what is asked for; and Figure A4, probabilities by the right digit."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.image import AxesImage
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
)
from ntl.results.match import row_records
from ntl.results.record import RunRecord
from ntl.results.render.text import seeds_text
from ntl.system.errors import UserError

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


@dataclass(frozen=True)
class Grid:
    """Of the groups whose names have two numbers: one value over all seeds.

    Attributes:
        rows, columns: (R,) and (C,), the first and the second numbers, ascending.
        values: (R, C), NaN where there is no such group.
        trained: How many of the rows, from the first on, training had.
    """

    rows: list[int]
    columns: list[int]
    values: np.ndarray
    trained: int


def group_grid(records: Mapping[int, RunRecord], metric: str, pattern: re.Pattern[str], over: Callable) -> Grid:
    """The groups of both splits whose names fit the pattern; ``over`` makes one value of those of all seeds."""
    found = {
        split: {
            (int(place[1]), int(place[2])): float(over(values))
            for group, values in group_values(records, split, metric).items()
            if (place := pattern.fullmatch(group))
        }
        for split in SPLITS
    }
    cells = {place: value for split in SPLITS for place, value in found[split].items()}
    rows, columns = (sorted({place[axis] for place in cells}) for axis in (0, 1))
    values = np.array([[cells.get((row, column), np.nan) for column in columns] for row in rows])
    return Grid(rows, columns, values, len({row for row, _ in found[SPLITS[0]]}))


def _draw_grid(axes: Axes, grid: Grid, norm: Normalize, form: str = "{:.0f}", **options: Any) -> AxesImage:
    image = axes.imshow(grid.values, norm=norm, **RASTER, **options)
    for (row, column), value in np.ndenumerate(grid.values):
        if not math.isnan(value):
            # viridis reversed: dark where the value is large.
            colour = "#FFFFFF" if norm(value) > 0.5 else "#000000"
            text = form.format(value) if value < 1000 else ">999"
            axes.text(column, row, text, ha="center", va="center", color=colour)
    axes.set_xticks(range(len(grid.columns)), list(map(str, grid.columns)))
    axes.set_yticks(range(len(grid.rows)), list(map(str, grid.rows)))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return image


def draw_pairs(spec: FigureSpec, source: Source) -> Drawing | None:
    """Figure A2. None where no run has pairs of digits."""
    (panel,) = spec.panels
    runs = runs_by_loss(spec, panel, source)
    grids = {loss: group_grid(have, panel.metric, PAIR, np.median) for loss, have in runs.items()}
    grids = {loss: grid for loss, grid in grids.items() if grid.values.size}
    if not grids:
        return None
    figure, axes = panels(PAGE, 2.5, len(grids), sharey=True)
    image = None
    for each, (loss, grid) in zip(axes, grids.items(), strict=True):
        image = _draw_grid(each, grid, LogNorm(*PERCENT))
        if edge := grid.trained:
            each.add_patch(Rectangle((-0.5, -0.5), edge, edge, fill=False, color="#000000", linewidth=1.5))
        each.set_title(LOSSES[loss])
        each.set_xlabel("digits of the second factor")
    axes[0].set_ylabel("digits of the first factor")
    bar = figure.colorbar(image, ax=axes, shrink=0.8, extend="both", label=panel.axis)  # pyright: ignore[reportArgumentType]
    bar.set_ticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
    bar.minorticks_off()
    counts = seeds_text([len(runs[loss]) for loss in grids])
    return finish(spec, figure, seeds=counts, model=models(spec, panel)[0])


def draw_depths(spec: FigureSpec, source: Source) -> Drawing | None:
    """One panel for each row of a table. None where a row has no run with such groups."""
    runs = [row_records(plan, source.records) for panel in spec.panels for plan in panel_plans(spec, panel)]
    grids = [group_grid(have, panel.metric, DEPTH, np.mean) for panel, have in zip(spec.panels, runs, strict=True)]
    if not all(grid.values.size for grid in grids):
        return None
    figure, axes = panels(PAGE, 2.3, len(grids), sharey=True)
    image = None
    for each, panel, grid in zip(axes, spec.panels, grids, strict=True):
        image = _draw_grid(each, grid, Normalize(0, 1), "{:.2f}", aspect="auto")
        each.axhline(grid.trained - 0.5, color="#000000", linewidth=1.5)
        each.set_title(panel.title)
        each.set_xlabel("depth (%)")
    axes[0].set_ylabel("words of the text")
    figure.colorbar(image, ax=axes, shrink=0.8, label=spec.panels[0].axis)  # pyright: ignore[reportArgumentType]
    return finish(spec, figure, seeds=seeds_text(list(map(len, runs))), model=models(spec, spec.panels[0])[0])


def mean_probabilities(found: Mapping[str, Any], runs: Sequence[str], split: str) -> np.ndarray | None:
    """(10, 10), target digit by digit, averaged over those of the runs that the file has; NaN where unknown."""
    tables = [found[run][split]["digits"] for run in runs if "digits" in found.get(run, {}).get(split, {})]
    grids = [[[np.nan] * 10 if row is None else row for row in table] for table in tables]
    return np.array(grids, dtype=float).mean(axis=0) if grids else None


def draw_probabilities(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where no panel has a run whose probabilities are known, by the file of its scale.

    Raises:
        UserError: A file cannot be read.
    """
    grid, counts = [], []
    for panel in spec.panels:
        runs = runs_by_loss(spec, panel, source)
        known = _read(source.file(spec, panel.scale)) if runs else {}
        for loss, have in runs.items():
            ids = [record.id for record in have.values()]
            mean = mean_probabilities(known, ids, panel.split)
            if mean is not None:
                grid.append((panel.title, loss, mean))
                counts.append(sum(run in known for run in ids))
    if not grid:
        return None
    titles = list(dict.fromkeys(title for title, _, _ in grid))
    losses = list(dict.fromkeys(loss for _, loss, _ in grid))
    figure, axes = panels(PAGE, 0.5 + 1.3 * len(titles), len(losses), len(titles), sharex=True, sharey=True)
    # The colours end at the next ten percent.
    options = {"vmin": 0, "vmax": 10 * math.ceil(10 * max(np.nanmax(mean) for _, _, mean in grid)), **RASTER}
    for title, loss, mean in grid:
        row, column = titles.index(title), losses.index(loss)
        each = axes[row * len(losses) + column]
        each.imshow(100 * mean, **options)
        each.set_xticks(range(0, 10, 3))
        each.set_yticks(range(0, 10, 3))
        if row == 0:
            each.set_title(LOSSES[loss])
        if column == 0:
            each.set_ylabel(f"{title}\nright digit")
        if row == len(titles) - 1:
            each.set_xlabel("predicted digit")
    for each in axes:
        each.set_visible(bool(each.images))
    first = next(image for each in axes for image in each.images)
    figure.colorbar(first, ax=axes, label="mean probability (%)", shrink=0.8)
    parts = [f"{title}: {'; '.join(_mass(loss, mean) for t, loss, mean in grid if t == title)}." for title in titles]
    return finish(spec, figure, seeds=seeds_text(counts), findings=" ".join(parts))


def _mass(loss: str, mean: np.ndarray) -> str:
    """Over the right digits that are known: the mean probability of the right one, and the distance from it."""
    rows = [row for row in range(10) if not np.isnan(mean[row]).any()]
    on = np.mean([mean[row, row] for row in rows])
    away = np.mean([mean[row] @ np.abs(np.arange(10) - row) for row in rows])
    return f"{name_of(loss)} {on:.1%} and {away:.2f}"


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); write it anew by scripts/calibrate.py --json") from error
