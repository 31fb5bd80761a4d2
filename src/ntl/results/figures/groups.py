"""Scores of groups of questions: Figure A1, by module of mathematics; A2, by the digits of two factors; accuracy by the
length of a text and the depth of what is asked for; and Figure A4, probabilities by the right digit."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Rectangle

from ntl.results.figures.spec import Panel, Source, defined
from ntl.results.figures.style import LOOKS, PAGE, RASTER, Drawing, finish, name_of, name_rows, panels
from ntl.results.record import RunRecord
from ntl.results.render import seeds_text
from ntl.system.errors import one_line_errors

SPLITS = ("interpolate", "extrapolate")
PAIR = re.compile(r"(\d+)x(\d+)")
DEPTH = re.compile(r"(\d+)@(\d+)")  # of ntl.data.sets.generated


def group_values(records: Mapping[int, RunRecord], split: str, metric: str) -> Any:
    """A DataFrame: a row for each seed, a column for each group that has the metric, sorted; NaN where undefined."""
    found = {
        seed: {group: values.get(metric) for group, values in record.groups.get(split, {}).items()}
        for seed, record in records.items()
    }
    return pd.DataFrame(found, dtype=float).T.dropna(axis=1, how="all").sort_index(axis=1)


def draw_modules(source: Source) -> Drawing:
    """Figure A1."""
    drawn = [
        (panel, {loss: group_values(have, panel.spec.split, panel.spec.metric) for loss, have in panel.runs.items()})
        for panel in source.panels
    ]
    names = [sorted(set().union(*scores.values())) for _, scores in drawn]
    ratios = list(map(len, names))
    figure, axes = panels(PAGE, 1.0 + 0.25 * sum(ratios), 1, len(drawn), sharex=True, height_ratios=ratios)
    for each, (panel, scores), modules in zip(axes, drawn, names, strict=True):
        for at, (loss, values) in enumerate(scores.items()):
            offset = 0.27 * (at - (len(scores) - 1) / 2)  # equal values lie beside one another
            places, found = [modules.index(name) + offset for name in values], 100 * values
            each.hlines(places, found.min(), found.max(), color=LOOKS[loss].colour, linewidth=1)
            look = {"color": LOOKS[loss].colour, "markersize": 3.5}
            label = f"{name_of(loss)} ({seeds_text([len(panel.runs[loss])])})"
            each.plot(found.mean(), places, LOOKS[loss].marker, label=label, **look)
        name_rows(each, [name.replace("__", ": ").replace("_", " ") for name in modules])
        each.set_title(panel.spec.title, loc="left")
        each.grid(axis="both")
    # Shared by the panels, and it ends their scaling to what is drawn: after the last of them.
    axes[0].set_xlim(left=-1)
    axes[-1].set_xlabel(drawn[-1][0].spec.axis)
    return finish(source, figure, 3, findings=" ".join(map(_overall, source.panels)))


def _overall(panel: Panel) -> str:
    """What each loss has over all modules, and the best constant answer."""
    metric = f"{panel.spec.split}/{panel.spec.metric}"
    scores = {loss: list(defined(found).values()) for loss, found in panel.scores(metric).items()}
    parts = [f"{name_of(loss)} {np.mean(found):.1%}" for loss, found in scores.items() if found]
    best = max(map(np.mean, panel.constants(metric)), default=None)
    parts += [] if best is None else [f"the best constant answer {best:.1%}"]
    return f"All of {panel.spec.title}: {', '.join(parts)}."


def group_grid(have: Mapping[int, RunRecord], metric: str, pattern: re.Pattern[str], over: str) -> tuple[Any, int]:
    """Of the groups whose names have two numbers: one value over all seeds, and how many of the rows training had.

    A DataFrame: its rows and columns are the first and the second numbers, ascending; NaN where there is no such group.
    ``over`` makes one value of those of all seeds: "median", "mean".
    """
    found = {
        (int(place[1]), int(place[2])): value
        for split in SPLITS
        for group, value in group_values(have, split, metric).agg(over).items()
        if (place := pattern.fullmatch(group))
    }
    inside = filter(None, map(pattern.fullmatch, group_values(have, SPLITS[0], metric)))
    return pd.Series(found).unstack(), len({place[1] for place in inside})


def _draw_grid(axes: Axes, grid: Any, norm: Normalize, form: str = "{:.0f}", **options: Any) -> None:
    axes.imshow(grid.to_numpy(), norm=norm, **RASTER, **options)
    for (row, column), value in np.ndenumerate(grid.to_numpy()):
        if not math.isnan(value):
            # viridis reversed: dark where the value is large.
            colour = "#FFFFFF" if norm(value) > 0.5 else "#000000"
            text = form.format(value) if value < 1000 else ">999"
            axes.text(column, row, text, ha="center", va="center", color=colour)
    axes.set_xticks(range(len(grid.columns)), list(map(str, grid.columns)))
    axes.set_yticks(range(len(grid.index)), list(map(str, grid.index)))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def draw_pairs(source: Source) -> Drawing:
    """Figure A2."""
    (panel,) = source.panels
    figure, axes = panels(PAGE, 2.5, len(panel.runs), sharey=True)
    for each, (loss, have) in zip(axes, panel.runs.items(), strict=True):
        grid, edge = group_grid(have, panel.spec.metric, PAIR, "median")
        _draw_grid(each, grid, LogNorm(5, 200))
        if edge:
            each.add_patch(Rectangle((-0.5, -0.5), edge, edge, fill=False, color="#000000", linewidth=1.5))
        each.set_title(LOOKS[loss].name)
        each.set_xlabel("digits of the second factor")
    axes[0].set_ylabel("digits of the first factor")
    bar = figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, extend="both", label=panel.spec.axis)
    bar.set_ticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
    bar.minorticks_off()
    return finish(source, figure)


def draw_depths(source: Source) -> Drawing:
    """One panel for each row of a table."""
    figure, axes = panels(PAGE, 2.3, len(source.panels), sharey=True)
    for each, panel in zip(axes, source.panels, strict=True):
        (have,) = panel.runs.values()
        grid, trained = group_grid(have, panel.spec.metric, DEPTH, "mean")
        _draw_grid(each, grid, Normalize(0, 1), "{:.2f}", aspect="auto")
        each.axhline(trained - 0.5, color="#000000", linewidth=1.5)
        each.set(title=panel.spec.title, xlabel="depth (%)")
    axes[0].set_ylabel("words of the text")
    figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, label=source.panels[0].spec.axis)
    return finish(source, figure)


def draw_probabilities(source: Source) -> Drawing | None:
    """Figure A4: grids of target digit by digit. None where no panel has a run that the file of its scale knows."""
    grids: dict[tuple[str, str], np.ndarray] = {}
    counts = []
    for panel in source.panels:
        with one_line_errors("read", source.file(panel.spec.scale)):
            known = json.loads(source.file(panel.spec.scale).read_text(encoding="utf-8"))
        for loss, have in panel.runs.items():
            tables = [known[run.id][panel.spec.split]["digits"] for run in have.values() if run.id in known]
            if tables:
                each = [[[np.nan] * 10 if row is None else row for row in table] for table in tables]
                grids[panel.spec.title, loss] = np.array(each, dtype=float).mean(axis=0)
                counts.append(len(tables))
    if not grids:
        return None
    titles, losses = (list(dict.fromkeys(key[part] for key in grids)) for part in (0, 1))
    figure, axes = panels(PAGE, 0.5 + 1.3 * len(titles), len(losses), len(titles), sharex=True, sharey=True)
    # The colours end at the next ten percent.
    options = {"vmin": 0, "vmax": 10 * math.ceil(10 * max(map(np.nanmax, grids.values()))), **RASTER}
    for (title, loss), mean in grids.items():
        row, column = titles.index(title), losses.index(loss)
        each = axes[row * len(losses) + column]
        each.imshow(100 * mean, **options)
        each.set(xticks=range(0, 10, 3), yticks=range(0, 10, 3))
        if row == 0:
            each.set_title(LOOKS[loss].name)
        if column == 0:
            each.set_ylabel(f"{title}\nright digit")
        if row == len(titles) - 1:
            each.set_xlabel("predicted digit")
    for each in axes:
        each.set_visible(bool(each.images))
    figure.colorbar(axes[0].images[0], ax=axes, label="mean probability (%)", shrink=0.8)
    masses = {title: [_mass(loss, mean) for (of, loss), mean in grids.items() if of == title] for title in titles}
    findings = " ".join(f"{title}: {'; '.join(parts)}." for title, parts in masses.items())
    return finish(source, figure, seeds=seeds_text(counts), findings=findings)


def _mass(loss: str, mean: np.ndarray) -> str:
    """Over the right digits that are known: the mean probability of the right one, and the distance from it."""
    rows = [row for row in range(10) if not np.isnan(mean[row]).any()]
    on = np.mean([mean[row, row] for row in rows])
    away = np.mean([mean[row] @ np.abs(np.arange(10) - row) for row in rows])
    return f"{name_of(loss)} {on:.1%} and {away:.2f}"
