"""Scores of groups of questions: by module, by the digits of two factors, by length and depth, by the right digit."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Rectangle

from ntl.results.figures import style
from ntl.results.figures.style import LOOKS, PAGE, RASTER, THREE, Drawn, Source, name_of, panels, seeds_of
from ntl.results.record import RunRecord
from ntl.results.render import seeds_text
from ntl.system.errors import one_line_errors

SPLITS = {"interpolate": "interpolation", "extrapolate": "extrapolation"}
FIVE = (*THREE, "NTL-CRPS, λ = 0.3", "NTL, number level, λ = 0.3")


def group_values(records: Mapping[int, RunRecord], split: str, metric: str) -> Any:
    """A DataFrame: a row for each seed, a column for each group that has the metric, sorted; NaN where undefined."""
    found = {
        seed: {group: values.get(metric) for group, values in record.groups.get(split, {}).items()}
        for seed, record in records.items()
    }
    return pd.DataFrame(found, dtype=float).T.dropna(axis=1, how="all").sort_index(axis=1)


def figureA1(source: Source) -> Drawn:
    """The mean of each module, and the range over seeds; in the caption all modules and the best constant answer."""
    runs, findings = source.runs("table1", "tiny"), []
    scores = [{loss: group_values(have, split, "accuracy") for loss, have in runs.items()} for split in SPLITS]
    names = [sorted(set().union(*of.values())) for of in scores]
    sizes = [*map(len, names)]
    figure, axes = panels(PAGE, 1.0 + 0.25 * sum(sizes), 1, 2, sharex=True, height_ratios=sizes)
    metrics = {loss: pd.DataFrame([run.metrics for run in have.values()]) for loss, have in runs.items()}
    for each, of, modules, (split, title) in zip(axes, scores, names, SPLITS.items(), strict=True):
        for at, (loss, values) in enumerate(of.items()):
            offset = 0.27 * (at - (len(of) - 1) / 2)  # equal values lie beside one another
            places, found, look = [modules.index(name) + offset for name in values], 100 * values, LOOKS[loss]
            each.hlines(places, found.min(), found.max(), color=look.colour, linewidth=1)
            label = f"{name_of(loss)} ({seeds_text([len(runs[loss])])})"
            each.plot(found.mean(), places, look.marker, label=label, color=look.colour, markersize=3.5)
        style.name_rows(each, [name.replace("__", ": ").replace("_", " ") for name in modules])
        each.set_title(title, loc="left")
        each.grid(axis="both")
        means = {name_of(loss): of.filter(items=[f"{split}/accuracy"]).mean().max() for loss, of in metrics.items()}
        constants = pd.concat(metrics.values()).filter(regex=rf"^{split}/accuracy:\w+$")
        means["the best constant answer"] = constants.mean().max()
        said = ", ".join(f"{name} {mean:.1%}" for name, mean in means.items() if not math.isnan(mean))
        findings.append(f"All of {title}: {said}.")
    # Shared by the panels, and it ends their scaling to what is drawn: after the last of them.
    axes[0].set_xlim(left=-1)
    axes[-1].set_xlabel("exact answers (%)")
    style.legend(figure, 3)
    return figure, {"seeds": seeds_of(runs), "findings": " ".join(findings)}


def _grid(have: Mapping[int, RunRecord], metric: str, mark: str, over: str) -> tuple[Any, int]:
    """Of groups whose names have two numbers: one value over all seeds, and how many of the rows training had.

    Rows and columns are the first and the second numbers, ascending; NaN where there is no such group.
    """
    inside, beyond = (group_values(have, split, metric).agg(over) for split in SPLITS)
    values = pd.concat([inside, beyond])
    values.index = pd.MultiIndex.from_tuples([tuple(map(int, name.split(mark))) for name in values.index])
    return values.unstack(), len({name.split(mark)[0] for name in inside.index})


def _draw_grid(axes: Axes, grid: Any, norm: Normalize, form: str = "{:.0f}", **options: Any) -> None:
    axes.imshow(grid, norm=norm, **RASTER, **options)
    for (row, column), value in np.ndenumerate(grid):
        if not math.isnan(value):
            # viridis reversed: dark where the value is large.
            colour, text = "#FFFFFF" if norm(value) > 0.5 else "#000000", form.format(value)
            axes.text(column, row, text if value < 1000 else ">999", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(grid.columns)), map(str, grid.columns))
    axes.set_yticks(range(len(grid.index)), map(str, grid.index))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def figureA2(source: Source) -> Drawn:
    """Of the runs that Granite 3.1 stands for: the mixture of experts of Table 5."""
    runs = source.runs("table5", "hour", block=1, group="Granite MoE")
    figure, axes = panels(PAGE, 2.5, len(runs), sharey=True)
    for each, (loss, have) in zip(axes, runs.items(), strict=True):
        grid, edge = _grid(have, "mape", "x", "median")
        _draw_grid(each, grid, LogNorm(5, 200))
        each.add_patch(Rectangle((-0.5, -0.5), edge, edge, fill=False, color="#000000", linewidth=1.5))
        each.set(title=LOOKS[loss].name, xlabel="digits of the second factor")
    axes[0].set_ylabel("digits of the first factor")
    bar = figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, extend="both", label="mean relative error (%)")
    bar.set_ticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
    bar.minorticks_off()
    return figure, {"seeds": seeds_of(runs)}


def needle(source: Source) -> Drawn:
    """A panel for each row of the table."""
    rows = ("next token", "15% masked", "15% random tokens (control)")
    runs = {row: have for row in rows for have in source.runs("meap_needle", "tiny", [row]).values()}
    figure, axes = panels(PAGE, 2.3, len(runs), sharey=True)
    for each, (row, have) in zip(axes, runs.items(), strict=True):
        grid, trained = _grid(have, "accuracy", "@", "mean")
        _draw_grid(each, grid, Normalize(0, 1), "{:.2f}", aspect="auto")
        each.axhline(trained - 0.5, color="#000000", linewidth=1.5)
        each.set(title=row.replace("%", " %").removesuffix(" (control)"), xlabel="depth (%)")
    axes[0].set_ylabel("words of the text")
    figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, label="accuracy")
    return figure, {"seeds": seeds_of(runs)}


def figureA4(source: Source) -> Drawn:
    """Grids of the right digit by digit, of the runs that ``scripts/calibrate.py --json`` has written of."""
    blocks = {
        ("noisy numbers", "tiny", "test"): source.runs("evidence", "tiny", FIVE),
        ("multiplication", "tiny", "interpolate"): source.runs("evidence", "tiny", FIVE, block=1),
        ("arithmetic, hour", "hour", "interpolate"): source.runs("table2", "hour", block=1),
    }
    grids, counts, findings = dict[tuple[str, str], np.ndarray](), list[int](), dict[str, list[str]]()
    for (title, scale, split), runs in blocks.items():
        file = source.results / "benchmarks" / f"calibration_{scale}.json"
        with one_line_errors("read", file):
            known = json.loads(file.read_text(encoding="utf-8"))
        for loss, have in runs.items():
            if tables := [known[run.id][split]["digits"] for run in have.values() if run.id in known]:
                full = [[[np.nan] * 10 if row is None else row for row in table] for table in tables]
                grids[title, loss] = np.array(full, dtype=float).mean(axis=0)
                counts.append(len(tables))
    if not grids:
        raise style.NoRuns
    titles, losses = (list(dict.fromkeys(part)) for part in zip(*grids, strict=True))
    figure, axes = panels(PAGE, 0.5 + 1.3 * len(titles), len(losses), len(titles), sharex=True, sharey=True)
    # The colours end at the next ten percent.
    options = {"vmin": 0, "vmax": 10 * math.ceil(10 * max(map(np.nanmax, grids.values()))), **RASTER}
    for each, (title, loss) in zip(axes, ((title, loss) for title in titles for loss in losses), strict=True):
        if (mean := grids.get((title, loss))) is None:
            each.set_visible(False)
            continue
        each.imshow(100 * mean, **options)
        each.set(xticks=range(0, 10, 3), yticks=range(0, 10, 3), title=LOOKS[loss].name if title == titles[0] else "")
        each.set_ylabel(f"{title}\nright digit" if loss == losses[0] else "")
        each.set_xlabel("predicted digit" if title == titles[-1] else "")
        right = np.flatnonzero(~np.isnan(mean).any(axis=1))  # digits that are never right have no row
        away = (mean[right] * np.abs(np.arange(10) - right[:, None])).sum(axis=1).mean()
        findings.setdefault(title, []).append(f"{name_of(loss)} {mean[right, right].mean():.1%} and {away:.2f}")
    figure.colorbar(axes[0].images[0], ax=axes, label="mean probability (%)", shrink=0.8)
    texts = " ".join(f"{title}: {'; '.join(said)}." for title, said in findings.items())
    return figure, {"seeds": seeds_text(counts), "findings": texts}
