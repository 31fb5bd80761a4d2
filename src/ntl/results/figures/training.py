"""Figure 4, the epochs until a group is answered well; and when a loss helps: by how well the base did, and by step."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ntl.results.figures.effects import CONTROL, gaps, sentence
from ntl.results.figures.spec import Panel, Source
from ntl.results.figures.style import LOOKS, ON_AXIS, PAGE, Drawing, finish, name_of, name_rows, panels
from ntl.results.record import PROBE, RunRecord
from ntl.results.render import seeds_text
from ntl.results.spec import ColumnSpec

MOST_ORDERS = 50_000  # of eight pairs there are 40,320


def epochs_until(have: Mapping[int, RunRecord], threshold: float) -> Any:
    """Epochs until a group's probe is below the threshold for the first time, inf for never; NaN without a probe.

    A DataFrame: a row for each seed that was probed, a column for each group.
    """
    import pandas as pd

    found = {}
    for seed, record in have.items():
        probes = {name.removeprefix(PROBE): each for name, each in record.curves.items() if name.startswith(PROBE)}
        for group, points in probes.items():
            steps = (step for step, value in points if step is not None and value is not None and value < threshold)
            found[seed, group] = next((step / record.steps * _epochs(record) for step in steps), math.inf)
    return pd.Series(found, dtype=float).unstack() if found else pd.DataFrame()


def _epochs(record: RunRecord) -> float:
    return record.examples_seen / record.data["rows"]["train"]


def draw_epochs(source: Source) -> Drawing | None:
    """None where no run was probed. Markers are medians over seeds, open and at the right end where that is never.

    The ``findings`` of the caption say how many groups each loss reaches, and the differences over seeds.
    """
    reached = [
        {loss: epochs_until(have, panel.spec.threshold) for loss, have in panel.runs.items()} for panel in source.panels
    ]
    if not (groups := sorted({group for part in reached for found in part.values() for group in found})):
        return None
    records = [record for panel in source.panels for have in panel.runs.values() for record in have.values()]
    end, counts, findings = max(map(_epochs, records)), [], []
    figure, axes = panels(PAGE, 1.1 + 0.3 * len(groups), len(source.panels), sharey=True)
    for each, panel, epochs in zip(axes, source.panels, reached, strict=True):
        times = {}  # in which a loss reaches a group, in the median
        for at, (loss, found) in enumerate(epochs.items()):
            look, offset = LOOKS[loss], 0.24 * (at - (len(panel.runs) - 1) / 2)
            # Of two middle values the later one, as one of them may be infinite.
            places = {group: statistics.median_high(found[group].dropna()) for group in groups if group in found}
            counts.append(len(found))
            times[loss] = sum(map(math.isfinite, places.values()))
            for group, middle in places.items():
                fill = look.colour if math.isfinite(middle) else "none"
                marks = {"color": look.colour, "markerfacecolor": fill, "markersize": 4, **ON_AXIS}
                each.plot(min(middle, end), groups.index(group) + offset, look.marker, **marks)
            each.plot([], [], look.marker, color=look.colour, markersize=4, label=name_of(loss))
        if not any(times.values()):
            words = "none of the lengths\nwithin the training,\nwhatever the loss"
            style: dict[str, Any] = {"ha": "center", "va": "center", "color": "#555555", "backgroundcolor": "white"}
            each.text(end / 2, (len(groups) - 1) / 2, words, **style)
        if min(times.values(), default=0) < len(groups):
            each.text(end, -0.62, "not reached", ha="right", va="center", color="#555555")
        name_rows(each, [group.replace("x", " × ") for group in groups], -0.95)
        each.set_xlim(0, end)
        each.set(title=panel.spec.title, xlabel=panel.spec.axis)
        each.grid(axis="x")
        findings.append(_finding(panel, groups, times, epochs))
    axes[0].set_ylabel("digits of the two factors")
    first, found = source.panels[0], " ".join(findings)
    return finish(source.spec, figure, 3, seeds=seeds_text(counts), findings=found, model=first.model)


def _finding(panel: Panel, groups: Sequence[str], reached: Mapping[str, int], epochs: Mapping[str, Any]) -> str:
    title = panel.spec.title
    counts = ", ".join(f"{name_of(loss)} at {of} of {len(groups)} pairs" for loss, of in reached.items())
    if not any(reached.values()):
        return f"{title}: {counts}, so nothing is shown there."
    column = ColumnSpec(metric="validation/epochs_until", header="epochs")
    means = {loss: _means(have, groups, epochs[loss]) for loss, have in panel.runs.items()}
    compared = [sentence(gaps(means, base, column), base) for base in (next(iter(means)), CONTROL)]
    lead = "In the mean over the pairs, one that is not reached counted as the end of training, in epochs:"
    return f"{title}: {counts}. {' '.join([lead, *filter(None, compared)])}"


def _means(have: Mapping[int, RunRecord], groups: Sequence[str], epochs: Any) -> dict[int, float]:
    whole = epochs.dropna() if len(epochs.columns) == len(groups) else epochs[:0]
    return {seed: statistics.fmean(found.clip(upper=_epochs(have[seed]))) for seed, found in whole.iterrows()}


def gains_by_base(
    have: Mapping[int, RunRecord],
    against: Mapping[int, RunRecord],
    bases: Mapping[str, RunRecord],
    metric: str,
    sign: int,
) -> list[tuple[float, float]]:
    """For each seed of ``have`` that ``against`` and the ``bases``, by id, have too: the accuracy of the base, and the
    gain over ``against`` in percent of its score.

    ``sign`` is 1 where a higher score is better, otherwise -1.
    """
    arms = []
    for seed in sorted(set(have) & set(against)):
        base = bases.get(str(have[seed].config.get("base", "")).partition("@")[0])
        accuracy = base and base.metrics.get(f"{metric.partition('/')[0]}/accuracy")
        score, other = have[seed].metrics.get(metric), against[seed].metrics.get(metric)
        if accuracy is not None and score is not None and other:
            arms.append((accuracy, 100 * sign * (score - other) / abs(other)))
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
        look = LOOKS[loss]
        left.plot(*zip(*found, strict=True), look.marker, color=look.colour, label=name_of(loss))
        if len(found) > 2:
            rho, p = correlation(found)
            texts.append(f"{name_of(loss)}: ρ = {rho:+.2f}, n = {len(found)}, exact p = {p:.3g}")
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
