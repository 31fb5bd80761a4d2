"""What the answers are like: the size of their errors, and how often each digit is first and last (Figure A4)."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ntl.results.figures.spec import (
    ByLoss,
    FigureSpec,
    PanelSpec,
    Source,
    constants,
    defined,
    models,
    runs_by_loss,
    scores_by_loss,
)
from ntl.results.figures.style import (
    COLOURS,
    LINES,
    LOSSES,
    MARKERS,
    ON_AXIS,
    PAGE,
    RASTER,
    Drawing,
    finish,
    name_of,
    name_rows,
    panels,
    seeds_text,
)
from ntl.results.packing import unpack_errors
from ntl.results.record import RunRecord
from ntl.system.errors import UserError

SMALLEST = 0.01  # the share of the errors that are not 0 which may stand on the linear part of the axis
LEFT, LOWEST = -0.03, -0.2  # left end of the axis of scores, without and with negative ones; lower ones are written


def distribution(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct errors, ascending, and the share of all answers whose error is at most that.

    An answer that is no number (NaN) counts as an answer whose error is larger than any.
    """
    values, counts = np.unique(errors[~np.isnan(errors)], return_counts=True)
    return values, np.cumsum(counts) / errors.size


def kept_errors(records: Mapping[int, RunRecord], split: str) -> dict[int, np.ndarray]:
    """Seed -> the errors (N,) that its record keeps of a split, where it keeps any."""
    found = {seed: unpack_errors(run.errors[split]) for seed, run in records.items() if split in run.errors}
    return {seed: errors for seed, errors in found.items() if errors.size}


def draw_closeness(spec: FigureSpec, source: Source) -> Drawing | None:
    """The first panel is of the errors, by its ``split``, the others of a metric each. None where no run kept errors.

    The ``findings`` of the caption have the range over seeds of each metric, and the median of the pooled errors.
    """
    first, *others = spec.panels
    runs = runs_by_loss(spec, first, source)
    errors = {loss: kept for loss, have in runs.items() if (kept := kept_errors(have, first.split))}
    if not errors:
        return None
    scores = [_scores(spec, panel, source) for panel in others]
    labels = list(dict.fromkeys(label for each in scores for label in each))
    ratios = [1.7, *(1.0 for _ in others)]
    figure, axes = panels(9.0, 1.5 + 0.32 * len(labels), len(spec.panels), width_ratios=ratios)
    _draw_errors(axes[0], errors)
    axes[0].set_title(first.title, loc="left")
    axes[0].set_xlabel(first.axis)
    axes[0].set_ylabel("share of the answers (%)")
    for each, panel, found in zip(axes[1:], others, scores, strict=True):
        _draw_scores(each, found, labels)
        each.set_title(panel.title, loc="left")
        each.set_xlabel(panel.axis)
        if each is not axes[1]:
            each.set_yticklabels([])
    pooled = {loss: np.concatenate(list(kept.values())) for loss, kept in errors.items()}
    middle = []
    for each, panel in zip(scores, others, strict=True):
        every = [score for label, found in each.items() if label in LOSSES for score in found]
        middle.append(f"{panel.title} {np.median(every):.3f}")
    ranges = []
    for label in labels:
        parts = [_range(each[label], panel) for each, panel in zip(scores, others, strict=True) if label in each]
        name = name_of(label) if label in LOSSES else label
        ranges.append(f"{name}: {', '.join([*parts, *_median(pooled.get(label))])}")
    ran, _ = models(spec, first)
    return finish(
        spec,
        figure,
        legend=5,
        seeds=seeds_text([len(kept) for kept in errors.values()]),
        model=ran,
        sample=_sample(runs, first.split, errors),
        findings=f"The median over all runs: {', '.join(middle)}. {'; '.join(ranges)}.",
    )


def _scores(spec: FigureSpec, panel: PanelSpec, source: Source) -> dict[str, list[float]]:
    """Loss -> one score a seed, then the table's constant answers by their label."""
    runs = runs_by_loss(spec, panel, source)
    found = {loss: list(defined(scores).values()) for loss, scores in scores_by_loss(runs, panel.metric).items()}
    return {label: scores for label, scores in {**found, **constants(spec, panel, runs)}.items() if scores}


def _draw_errors(axes: Axes, errors: Mapping[str, Mapping[int, np.ndarray]]) -> None:
    every = np.concatenate([one for kept in errors.values() for one in kept.values()])
    positive = every[np.isfinite(every) & (every > 0)]
    high = math.ceil(math.log10(positive.max())) if positive.size else 1
    low = math.floor(math.log10(np.quantile(positive, SMALLEST, method="lower"))) if positive.size else 0
    end = 10.0**high
    for loss, kept in errors.items():
        options: dict[str, Any] = {"color": COLOURS[loss], "drawstyle": "steps-post"}
        for one in kept.values():
            axes.plot(*_until(end, *distribution(one)), "-", linewidth=0.5, alpha=0.35, **options)
        values, shares = _until(end, *distribution(np.concatenate(list(kept.values()))))
        axes.plot(values, shares, LINES[loss], linewidth=1.6, **options)
        axes.plot([0], shares[:1], MARKERS[loss], color=COLOURS[loss], markersize=5, **ON_AXIS)
        axes.plot([], [], LINES[loss], marker=MARKERS[loss], color=COLOURS[loss], markersize=5, label=name_of(loss))
    # Linear from 0 to the smallest decade, a part of the axis that has room for the two numbers.
    axes.set_xscale("symlog", linthresh=10.0**low, linscale=max(0.5, (high - low) / 12))
    axes.axvline(10.0**low, color="#555555", linewidth=1, linestyle=":", zorder=0)
    ticks = [0.0, *(10.0**power for power in range(low, high + 1, 1 + (high - low) // 8))]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, end)
    axes.set_ylim(0, 100)
    axes.grid(axis="both")


def _until(end: float, values: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps in percent from 0, where the share of exact answers stands even if there are none, to the end."""
    if not values.size or values[0] > 0:
        values, shares = np.append(0.0, values), np.append(0.0, shares)
    inside = values <= end
    return np.append(values[inside], end), 100 * np.append(shares[inside], shares[inside][-1])


def _tick(value: float) -> str:
    return f"{value:,g}" if value == 0 or 1e-3 <= value < 1e5 else f"$10^{{{round(math.log10(value))}}}$"


def _draw_scores(axes: Axes, scores: Mapping[str, Sequence[float]], labels: Sequence[str]) -> None:
    left = LOWEST if any(score < 0 for found in scores.values() for score in found) else LEFT
    for place, label in enumerate(labels):
        found = np.array(scores.get(label, []))
        colour, marker, size = (COLOURS[label], MARKERS[label], 5) if label in LOSSES else ("#555555", "|", 11)
        shown = found[found >= left]
        if len(shown):  # nothing, unclipped, lies at the corner of the page
            axes.plot(shown, [place] * len(shown), marker, color=colour, markersize=size, alpha=0.8, **ON_AXIS)
        for score in found[found < left]:
            axes.plot([left], [place], marker=4, color=colour, markersize=6, **ON_AXIS)  # a caret to the left
            axes.text(left + 0.05, place, f"{score:.3g}", color=colour, va="center")
    name_rows(axes, [LOSSES.get(label, label) for label in labels])
    axes.set_xlim(left, 1.03)
    axes.grid(axis="both")


def _range(scores: Sequence[float], panel: PanelSpec) -> str:
    low, high = (f"{end:.3f}" for end in (min(scores), max(scores)))
    return f"{panel.title} {low if low == high else f'{low} to {high}'}"


def _median(errors: np.ndarray | None) -> list[str]:
    # Over all answers: one that is no number has an infinite error.
    return [] if errors is None else [f"median error {np.median(np.where(np.isnan(errors), np.inf, errors)):.3g}"]


def _sample(runs: ByLoss, split: str, errors: Mapping[str, Mapping[int, np.ndarray]]) -> str:
    counts = [int(runs[loss][seed].metrics.get(f"{split}/count") or 0) for loss in errors for seed in errors[loss]]
    every = [one for kept in errors.values() for one in kept.values()]
    many, whole = (
        " to ".join(f"{size:,}" for size in sorted({min(sizes), max(sizes)}))
        for sizes in ([one.size for one in every], counts)
    )
    lost, total = sum(int(np.isnan(one).sum()) for one in every), sum(one.size for one in every)
    return f"{many} of a run's {whole} test answers; {lost} of all {total:,} are no number"


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
    return finish(spec, figure, legend=5, seeds=seeds_text(counts))


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
