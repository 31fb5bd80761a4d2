"""Training curves: the mean over seeds, and their spread."""

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from ntl.results.figures.runs import Source, runs_by_loss
from ntl.results.figures.spec import FigureSpec
from ntl.results.figures.style import COLOURS, LINES, PAGE, Drawing, finish, name_of, panels, seeds_text
from ntl.results.record import RunRecord

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
            name = name_of(loss)
            each.fill_between(
                steps, values.min(axis=0), values.max(axis=0), color=COLOURS[loss], alpha=0.2, linewidth=0
            )
            each.plot(steps, values.mean(axis=0), LINES[loss], color=COLOURS[loss], linewidth=1.1, label=name)
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
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return finish(spec, figure, seeds=seeds_text(counts))
