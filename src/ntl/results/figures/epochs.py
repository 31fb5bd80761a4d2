"""Figure 4: after how many epochs the answers to a group of examples are near the right ones."""

import math
import statistics

from ntl.config.figure import FigureSpec
from ntl.results.figures.runs import Source, runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, MARKERS, PAGE, Drawing, finish, panels, seeds_text
from ntl.results.record import PROBE, RunRecord


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
    """None where no run was probed. A median over seeds; an open marker at the right end where that is never."""
    by_panel = [runs_by_loss(spec, panel, source) for panel in spec.panels]
    probed = [record for runs in by_panel for have in runs.values() for record in have.values() if _groups([record])]
    if not probed:
        return None
    groups, end = _groups(probed), max(map(_epochs, probed))
    figure, axes = panels(PAGE, 1.0 + 0.22 * len(groups), len(spec.panels), sharey=True)
    counts = []
    for each, panel, runs in zip(axes, spec.panels, by_panel, strict=True):
        for at, (loss, have) in enumerate(runs.items()):
            offset = 0.16 * (at - (len(runs) - 1) / 2)
            colour, name = COLOURS[loss], LOSSES[loss].replace("\n", " ")
            for place, group in enumerate(groups):
                found = [epochs_until(record, group, panel.threshold) for record in have.values()]
                values = [value for value in found if value is not None]
                if not values:
                    continue
                counts.append(len(values))
                # Of two seeds the later one: half of a number and never is neither.
                middle = statistics.median_high(values)
                fill = colour if math.isfinite(middle) else "none"
                each.plot(
                    min(middle, end),
                    place + offset,
                    MARKERS[loss],
                    color=colour,
                    markerfacecolor=fill,
                    markersize=4,
                    clip_on=False,
                )
            each.plot([], [], MARKERS[loss], color=colour, markersize=4, label=name)
        each.set_yticks(range(len(groups)), [group.replace("x", " × ") for group in groups])
        each.set_ylim(len(groups) - 0.5, -0.5)
        each.set_xlim(0, end)
        each.set_title(panel.title)
        each.set_xlabel(panel.axis)
        each.grid(axis="x")
    axes[0].set_ylabel("digits of the two factors")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return finish(spec, figure, seeds=seeds_text(counts))
