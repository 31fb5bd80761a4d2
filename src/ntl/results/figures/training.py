"""Figure 4, the epochs until a group is answered well; and when a loss helps: by how well the base did, and by step."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ntl.results.figures.effects import CONTROL, gaps, sentence
from ntl.results.figures.spec import Panel, Source
from ntl.results.figures.style import LOOKS, ON_AXIS, PAGE, Drawing, finish, name_of, name_rows, panels
from ntl.results.record import PROBE, RunRecord
from ntl.results.render.text import seeds_text
from ntl.results.spec import ColumnSpec

MOST_ORDERS = 50_000  # of eight pairs there are 40,320


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
                marks = {"color": look.colour, "markerfacecolor": fill, "markersize": 4, **ON_AXIS}
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


@dataclass(frozen=True)
class Arm:
    """Of one seed: the accuracy of the base, and the gain over the first loss in percent of that loss's score."""

    seed: int
    base: float
    gain: float


def gains_by_base(
    have: Mapping[int, RunRecord],
    against: Mapping[int, RunRecord],
    bases: Mapping[str, RunRecord],
    metric: str,
    sign: int,
) -> list[Arm]:
    """One `Arm` for each seed of ``have`` that ``against`` and the ``bases``, by id, have too.

    ``sign`` is 1 where a higher score is better, otherwise -1.
    """
    arms = []
    for seed in sorted(set(have) & set(against)):
        base = bases.get(str(have[seed].config.get("base", "")).partition("@")[0])
        accuracy = base and base.metrics.get(f"{metric.partition('/')[0]}/accuracy")
        score, other = have[seed].metrics.get(metric), against[seed].metrics.get(metric)
        if accuracy is not None and score is not None and other:
            arms.append(Arm(seed, accuracy, 100 * sign * (score - other) / abs(other)))
    return arms


def correlation(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Spearman's ρ, and its exact two-sided p over all orders of one side, up to eight pairs. No ties."""
    from scipy.stats import permutation_test, rankdata, spearmanr

    left, right = (rankdata(side) for side in zip(*pairs, strict=True))

    def statistic(order: np.ndarray, axis: int) -> np.ndarray:
        return np.mean(order * right, axis=axis)

    orders = {"permutation_type": "pairings", "n_resamples": MOST_ORDERS, "rng": 0}
    p = permutation_test((left,), statistic, vectorized=True, **orders).pvalue
    found: Any = spearmanr(left, right)
    return float(found.statistic), float(p)


def gains_by_step(
    have: Mapping[int, RunRecord], against: Mapping[int, RunRecord], series: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps (S,) at which all runs have a value of a curve, and the gains there in percent (N, S), a row for each seed
    of both; lower values are better."""
    seeds = sorted(set(have) & set(against))
    curves = [[dict(map(tuple, of[seed].curves.get(series, ()))) for of in (have, against)] for seed in seeds]
    steps = sorted(set.intersection(*(set(curve) for pair in curves for curve in pair))) if curves else []
    values = np.array([[[curve[step] for step in steps] for curve in pair] for pair in curves], dtype=float)
    values = values.reshape(len(seeds), 2, len(steps))
    return np.array(steps), 100 * (values[:, 1] - values[:, 0]) / values[:, 1]


def draw_when(source: Source) -> Drawing | None:
    """Two panels of the same runs: gains by the base's accuracy, and by step. None where no seed has two losses."""
    by_base, by_step = source.panels
    (first, against), *others = by_base.runs.items()
    sign, bases = by_base.column.better.value, {record.id: record for record in source.records}
    arms = {loss: gains_by_base(have, against, bases, by_base.spec.metric, sign) for loss, have in others}
    arms = {loss: found for loss, found in arms.items() if found}
    if not arms:
        return None
    figure, (left, right) = panels(PAGE, 2.9, 2)
    texts = []
    for loss, found in arms.items():
        look, points = LOOKS[loss], [(arm.base, arm.gain) for arm in found]
        left.plot(*zip(*points, strict=True), look.marker, color=look.colour, label=name_of(loss))
        if len(points) > 2:
            rho, p = correlation(points)
            texts.append(f"{name_of(loss)}: ρ = {rho:+.2f}, n = {len(points)}, exact p = {p:.3g}")
        steps, gains = gains_by_step(by_base.runs[loss], against, by_step.spec.metric)
        if steps.size:
            right.plot(steps, gains.mean(axis=0), look.line, marker=look.marker, color=look.colour)
            right.vlines(steps, gains.min(axis=0), gains.max(axis=0), color=look.colour, linewidth=1)
    for axes, panel in ((left, by_base), (right, by_step)):
        axes.axhline(0, color="#555555", linewidth=1)
        axes.set_title(panel.spec.title, loc="left")
        axes.set_xlabel(panel.spec.axis)
        axes.grid(axis="y")
    left.set_ylabel(f"gain over {name_of(first)}, %")
    findings = f"Rank correlation of the gain with the base's accuracy: {'; '.join(texts)}." if texts else ""
    counts = seeds_text([len(found) for found in arms.values()])
    return finish(source.spec, figure, legend=4, seeds=counts, model=by_base.model, findings=findings)
