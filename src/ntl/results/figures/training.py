"""Figures of the training: the curves of the losses, and Figure 4, the epochs until a group is answered well."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from ntl.results.figures.seeds import CONTROL, gaps
from ntl.results.figures.spec import ByLoss, FigureSpec, PanelSpec, Source, models, runs_by_loss
from ntl.results.figures.style import (
    COLOURS,
    LINES,
    MARKERS,
    ON_AXIS,
    PAGE,
    Drawing,
    finish,
    name_of,
    name_rows,
    panels,
    seeds_text,
)
from ntl.results.record import PROBE, RunRecord
from ntl.results.spec import ColumnSpec

TICKS = [0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 6]


def curve(records: Mapping[int, RunRecord], series: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps (S,) that every record has a value at, and the values (N, S), a row a record that has the series."""
    found = [
        {step: value for step, value in points if value is not None}
        for record in records.values()
        if (points := record.curves.get(series))
    ]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return np.array(steps), np.array([[one[step] for step in steps] for one in found])


def draw_curves(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where no record has a curve."""
    by_panel = [(panel, runs) for panel in spec.panels if (runs := runs_by_loss(spec, panel, source))]
    if not by_panel:
        return None
    figure, axes = panels(PAGE, 2.6, len(by_panel))
    counts = []
    for each, (panel, runs) in zip(axes, by_panel, strict=True):
        for loss, have in runs.items():
            steps, values = curve(have, panel.metric)
            if not steps.size:
                continue
            counts.append(len(values))
            low, high, colour = values.min(axis=0), values.max(axis=0), COLOURS[loss]
            each.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
            each.plot(steps, values.mean(axis=0), LINES[loss], color=colour, linewidth=1.1, label=name_of(loss))
        each.set_yscale("log")
        each.yaxis.set_major_locator(FixedLocator(TICKS))
        each.yaxis.set_major_formatter("{x:g}")
        each.yaxis.set_minor_locator(NullLocator())
        each.set_title(panel.title)
        each.set_ylabel(panel.axis)
        each.set_xlabel("optimizer step")
        each.grid(axis="y")
    if not counts:
        return None
    return finish(spec, figure, legend=4, seeds=seeds_text(counts))


def epochs_until(record: RunRecord, group: str, threshold: float) -> float | None:
    """Epochs until a group's probe is below ``threshold`` for the first time, inf for never; None without a probe."""
    points = record.curves.get(f"{PROBE}{group}")
    if not points:
        return None
    steps = (step for step, value in points if step is not None and value is not None and value < threshold)
    return next((step / record.steps * _epochs(record) for step in steps), math.inf)


def _epochs(record: RunRecord) -> float:
    return record.examples_seen / record.data["rows"]["train"]


def _groups(records: list[RunRecord]) -> list[str]:
    return sorted({name.removeprefix(PROBE) for record in records for name in record.curves if name.startswith(PROBE)})


def draw_epochs(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where no run was probed. Markers are medians over seeds, open and at the right end where that is never.

    The ``findings`` of the caption say how many groups each loss reaches, and the differences over seeds.
    """
    by_panel = [runs_by_loss(spec, panel, source) for panel in spec.panels]
    probed = [record for runs in by_panel for have in runs.values() for record in have.values() if _groups([record])]
    if not probed:
        return None
    groups, end = _groups(probed), max(map(_epochs, probed))
    figure, axes = panels(PAGE, 1.1 + 0.3 * len(groups), len(spec.panels), sharey=True)
    counts, findings = [], []
    for each, panel, runs in zip(axes, spec.panels, by_panel, strict=True):
        reached = {}
        for at, (loss, have) in enumerate(runs.items()):
            offset = 0.24 * (at - (len(runs) - 1) / 2)
            places = _middles(list(have.values()), groups, panel.threshold)
            counts.append(sum(bool(_groups([record])) for record in have.values()))
            reached[loss] = sum(map(math.isfinite, places.values()))
            for group, middle in places.items():
                fill = COLOURS[loss] if math.isfinite(middle) else "none"
                marks = {"color": COLOURS[loss], "markerfacecolor": fill, "markersize": 4, **ON_AXIS}
                each.plot(min(middle, end), groups.index(group) + offset, MARKERS[loss], **marks)
            each.plot([], [], MARKERS[loss], color=COLOURS[loss], markersize=4, label=name_of(loss))
        if not any(reached.values()):
            words = "none of the lengths\nwithin the training,\nwhatever the loss"
            look: dict[str, Any] = {"ha": "center", "va": "center", "color": "#555555", "backgroundcolor": "white"}
            each.text(end / 2, (len(groups) - 1) / 2, words, **look)
        if min(reached.values(), default=0) < len(groups):
            each.text(end, -0.62, "not reached", ha="right", va="center", color="#555555")
        name_rows(each, [group.replace("x", " × ") for group in groups], -0.95)
        each.set_xlim(0, end)
        each.set_title(panel.title)
        each.set_xlabel(panel.axis)
        each.grid(axis="x")
        findings.append(_finding(panel, runs, groups, reached))
    axes[0].set_ylabel("digits of the two factors")
    ran, stood = models(spec, spec.panels[0])
    return finish(spec, figure, legend=3, seeds=seeds_text(counts), findings=" ".join(findings), model=ran, place=stood)


def _middles(records: Sequence[RunRecord], groups: Sequence[str], threshold: float) -> dict[str, float]:
    """Group -> the median over seeds; of two middle values the later one, as one of them may be infinite."""
    found = {group: [epochs_until(record, group, threshold) for record in records] for group in groups}
    known = {group: [value for value in values if value is not None] for group, values in found.items()}
    return {group: statistics.median_high(values) for group, values in known.items() if values}


def _finding(panel: PanelSpec, runs: ByLoss, groups: Sequence[str], reached: Mapping[str, int]) -> str:
    counts = ", ".join(f"{name_of(loss)} at {of} of {len(groups)} pairs" for loss, of in reached.items())
    if not any(reached.values()):
        return f"{panel.title}: {counts}, so nothing is shown there."
    column = ColumnSpec(metric="validation/epochs_until", header="epochs")
    means = {loss: _means(have, groups, panel.threshold) for loss, have in runs.items()}
    compared = [gaps(means, base, column).sentence() for base in (next(iter(means)), CONTROL)]
    lead = "In the mean over the pairs, one that is not reached counted as the end of training, in epochs:"
    return f"{panel.title}: {counts}. {' '.join([lead, *filter(None, compared)])}"


def _means(records: Mapping[int, RunRecord], groups: Sequence[str], threshold: float) -> dict[int, float]:
    found = {}
    for seed, record in records.items():
        values = [epochs_until(record, group, threshold) for group in groups]
        known = [min(value, _epochs(record)) for value in values if value is not None]
        if len(known) == len(groups):
            found[seed] = statistics.fmean(known)
    return found
