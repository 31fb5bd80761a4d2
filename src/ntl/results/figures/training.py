"""Figure 4: the epochs until a group is answered well."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ntl.results.figures.seeds import CONTROL, gaps, sentence
from ntl.results.figures.spec import Panel, Source
from ntl.results.figures.style import LOOKS, PAGE, Drawing, finish, name_of, name_rows, panels
from ntl.results.packing import PROBE
from ntl.results.record import RunRecord
from ntl.results.render.text import seeds_text
from ntl.results.spec import ColumnSpec


def epochs_until(record: RunRecord, group: str, threshold: float) -> float | None:
    """Epochs until a group's probe is below ``threshold`` for the first time, inf for never; None without a probe."""
    if not (points := record.curves.get(f"{PROBE}{group}")):
        return None
    steps = (step for step, value in points if step is not None and value is not None and value < threshold)
    return next((step / record.steps * _epochs(record) for step in steps), math.inf)


def _epochs(record: RunRecord) -> float:
    return record.examples_seen / record.data["rows"]["train"]


def _groups(records: Sequence[RunRecord]) -> list[str]:
    return sorted({name.removeprefix(PROBE) for record in records for name in record.curves if name.startswith(PROBE)})


def draw_epochs(source: Source) -> Drawing | None:
    """None where no run was probed. Markers are medians over seeds, open and at the right end where that is never.

    The ``findings`` of the caption say how many groups each loss reaches, and the differences over seeds.
    """
    records = [record for panel in source.panels for have in panel.runs.values() for record in have.values()]
    if not (groups := _groups(records)):
        return None
    probed = [record for record in records if _groups([record])]
    end, counts, findings = max(map(_epochs, probed)), [], []
    figure, axes = panels(PAGE, 1.1 + 0.3 * len(groups), len(source.panels), sharey=True)
    for each, panel in zip(axes, source.panels, strict=True):
        reached = {}
        for at, (loss, have) in enumerate(panel.runs.items()):
            look, offset = LOOKS[loss], 0.24 * (at - (len(panel.runs) - 1) / 2)
            places = _middles(list(have.values()), groups, panel.spec.threshold)
            counts.append(sum(bool(_groups([record])) for record in have.values()))
            reached[loss] = sum(map(math.isfinite, places.values()))
            for group, middle in places.items():
                fill = look.colour if math.isfinite(middle) else "none"
                marks: dict[str, Any] = {"color": look.colour, "markerfacecolor": fill, "markersize": 4}
                marks |= {"linestyle": "none", "clip_on": False, "zorder": 4}  # whole at the end of the axis, above it
                each.plot(min(middle, end), groups.index(group) + offset, look.marker, **marks)
            each.plot([], [], look.marker, color=look.colour, markersize=4, label=name_of(loss))
        if not any(reached.values()):
            words = "none of the lengths\nwithin the training,\nwhatever the loss"
            style: dict[str, Any] = {"ha": "center", "va": "center", "color": "#555555", "backgroundcolor": "white"}
            each.text(end / 2, (len(groups) - 1) / 2, words, **style)
        if min(reached.values(), default=0) < len(groups):
            each.text(end, -0.62, "not reached", ha="right", va="center", color="#555555")
        name_rows(each, [group.replace("x", " × ") for group in groups], -0.95)
        each.set_xlim(0, end)
        each.set(title=panel.spec.title, xlabel=panel.spec.axis)
        each.grid(axis="x")
        findings.append(_finding(panel, groups, reached))
    axes[0].set_ylabel("digits of the two factors")
    first, found = source.panels[0], " ".join(findings)
    return finish(source.spec, figure, 3, seeds=seeds_text(counts), findings=found, model=first.model)


def _middles(records: Sequence[RunRecord], groups: Sequence[str], threshold: float) -> dict[str, float]:
    """Group -> the median over seeds; of two middle values the later one, as one of them may be infinite."""
    found = {group: [epochs_until(record, group, threshold) for record in records] for group in groups}
    known = {group: [value for value in values if value is not None] for group, values in found.items()}
    return {group: statistics.median_high(values) for group, values in known.items() if values}


def _finding(panel: Panel, groups: Sequence[str], reached: Mapping[str, int]) -> str:
    title, threshold = panel.spec.title, panel.spec.threshold
    counts = ", ".join(f"{name_of(loss)} at {of} of {len(groups)} pairs" for loss, of in reached.items())
    if not any(reached.values()):
        return f"{title}: {counts}, so nothing is shown there."
    column = ColumnSpec(metric="validation/epochs_until", header="epochs")
    means = {loss: _means(have, groups, threshold) for loss, have in panel.runs.items()}
    compared = [sentence(gaps(means, base, column), base) for base in (next(iter(means)), CONTROL)]
    lead = "In the mean over the pairs, one that is not reached counted as the end of training, in epochs:"
    return f"{title}: {counts}. {' '.join([lead, *filter(None, compared)])}"


def _means(records: Mapping[int, RunRecord], groups: Sequence[str], threshold: float) -> dict[int, float]:
    found = {}
    for seed, record in records.items():
        values = [epochs_until(record, group, threshold) for group in groups]
        known = [min(value, _epochs(record)) for value in values if value is not None]
        if len(known) == len(groups):
            found[seed] = statistics.fmean(known)
    return found
