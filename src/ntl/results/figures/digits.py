"""Figure A4, and how often each digit is first and last in the right answers and in those of the models."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ntl.results.figures.runs import Source, runs_by_loss
from ntl.results.figures.spec import FigureSpec
from ntl.results.figures.style import (
    COLOURS,
    LOSSES,
    MARKERS,
    ON_AXIS,
    PAGE,
    RASTER,
    Drawing,
    finish,
    name_of,
    panels,
    seeds_text,
)
from ntl.results.record import RunRecord
from ntl.system.errors import UserError

PLACES = {"leading": "first digit", "last": "last digit"}


def shares(records: Sequence[RunRecord], split: str, whose: str, place: str) -> np.ndarray:
    """(N, 10): the share of each digit at a place of a record's numbers; a record that has none is left out."""
    counts = [record.digit_histograms.get(split, {}).get(whose, {}).get(place) for record in records]
    return np.array([np.divide(count, sum(count)) for count in counts if count and sum(count)]).reshape(-1, 10)


def draw_digits(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where no panel has a run."""
    by_panel = [(panel, runs) for panel in spec.panels if (runs := runs_by_loss(spec, panel, source))]
    if not by_panel:
        return None
    figure, axes = panels(PAGE, 0.4 + 1.8 * len(by_panel), len(PLACES), len(by_panel), sharex=True, sharey="row")
    counts = []
    for row, (panel, runs) in enumerate(by_panel):
        counts += [len(have) for have in runs.values()]
        for each, (place, name) in zip(axes[row * len(PLACES) :], PLACES.items(), strict=False):
            everyone = [record for have in runs.values() for record in have.values()]
            answers = shares(everyone, panel.split, "answer", place)
            if len(answers):
                each.bar(range(10), 100 * answers[0], color="#D9D9D9", width=0.9, label="answers")
            for at, (loss, have) in enumerate(runs.items()):
                offset = 0.2 * (at - (len(runs) - 1) / 2)
                _points(each, offset, loss, shares(list(have.values()), panel.split, "prediction", place))
            each.set_title(f"{panel.title}, {name}")
            each.set_xticks(range(10))
    for each in axes[:: len(PLACES)]:
        each.set_ylabel("share of numbers (%)")
    for each in axes[-len(PLACES) :]:
        each.set_xlabel("digit")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return finish(spec, figure, seeds=seeds_text(counts))


def _points(axes: Axes, offset: float, loss: str, found: np.ndarray) -> None:
    if not len(found):
        return
    mean, low, high = 100 * found.mean(axis=0), 100 * found.min(axis=0), 100 * found.max(axis=0)
    at = np.arange(10) + offset
    axes.vlines(at, low, high, color=COLOURS[loss], linewidth=1)
    axes.plot(at, mean, MARKERS[loss], label=name_of(loss), color=COLOURS[loss], markersize=3, **ON_AXIS)


def mean_probabilities(found: Mapping[str, Any], runs: Sequence[str], split: str) -> np.ndarray | None:
    """(10, 10), target digit by digit, averaged over those of the runs that the file has; NaN where unknown."""
    tables = [found[run][split]["digits"] for run in runs if "digits" in found.get(run, {}).get(split, {})]
    grids = [[[np.nan] * 10 if row is None else row for row in table] for table in tables]
    return np.array(grids, dtype=float).mean(axis=0) if grids else None


def draw_probabilities(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where no panel has a run whose probabilities are known. UserError where the file cannot be read."""
    known = _read(source.file(spec, "calibration"))
    grid, counts = [], []
    for panel in spec.panels:
        for loss, have in runs_by_loss(spec, panel, source).items():
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
    for each in axes[-len(losses) :]:
        each.set_xlabel("predicted digit")
    first = next(image for each in axes for image in each.images)
    figure.colorbar(first, ax=axes, label="mean probability (%)", shrink=0.8)
    told = [f"{title}: {'; '.join(_mass(loss, mean) for t, loss, mean in grid if t == title)}" for title in titles]
    return finish(spec, figure, seeds=seeds_text(counts), findings=". ".join([*told, ""]).strip())


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
