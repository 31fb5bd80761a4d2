"""When a loss helps: its gain by how well the base did, and by how long it has been trained with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ntl.results.figures.spec import FigureSpec, Source, models, panel_column, runs_by_loss
from ntl.results.figures.style import COLOURS, LINES, MARKERS, PAGE, Drawing, finish, name_of, panels, seeds_text
from ntl.results.figures.training import curve
from ntl.results.record import RunRecord


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
    """Spearman's ρ, and its exact two-sided p: the share of the orders of one side with as large a |ρ|. No ties."""
    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0).astype(float)
    left, right = (ranks - ranks.mean(axis=0)).T
    scale = float(left @ left)
    found = float(left @ right) / scale
    each = np.array(list(permutations(right))) @ left / scale
    return found, float(np.mean(np.abs(each) >= abs(found) - 1e-9))


def gains_by_step(
    have: Mapping[int, RunRecord], against: Mapping[int, RunRecord], series: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps (S,) and the gains at each in percent (N, S), a row for each seed of both; lower values are better."""
    seeds = sorted(set(have) & set(against))
    (steps, values), (same, others) = (curve({seed: of[seed] for seed in seeds}, series) for of in (have, against))
    if not np.array_equal(steps, same) or len(values) != len(others):
        return np.array([]), np.empty((0, 0))
    return steps, 100 * (others - values) / others


def draw_when(spec: FigureSpec, source: Source) -> Drawing | None:
    """Two panels of the same runs: gains by the base's accuracy, and by step. None where no seed has two losses."""
    by_base, by_step = spec.panels
    runs = runs_by_loss(spec, by_base, source)
    (first, against), *others = runs.items() if runs else [("", {})]
    sign, bases = panel_column(spec, by_base).better.value, {record.id: record for record in source.records}
    arms = {loss: gains_by_base(have, against, bases, by_base.metric, sign) for loss, have in others}
    arms = {loss: found for loss, found in arms.items() if found}
    if not arms:
        return None
    figure, (left, right) = panels(PAGE, 2.9, 2)
    texts = []
    for loss, found in arms.items():
        points = [(arm.base, arm.gain) for arm in found]
        left.plot(*zip(*points, strict=True), MARKERS[loss], color=COLOURS[loss], label=name_of(loss))
        if len(points) > 2:
            rho, p = correlation(points)
            texts.append(f"{name_of(loss)}: ρ = {rho:+.2f}, n = {len(points)}, exact p = {p:.3g}")
        steps, gains = gains_by_step(runs[loss], against, by_step.metric)
        if steps.size:
            right.plot(steps, gains.mean(axis=0), LINES[loss], marker=MARKERS[loss], color=COLOURS[loss])
            right.vlines(steps, gains.min(axis=0), gains.max(axis=0), color=COLOURS[loss], linewidth=1)
    for axes, panel in ((left, by_base), (right, by_step)):
        axes.axhline(0, color="#555555", linewidth=1)
        axes.set_title(panel.title, loc="left")
        axes.set_xlabel(panel.axis)
        axes.grid(axis="y")
    left.set_ylabel(f"gain over {name_of(first)}, %")
    findings = f"Rank correlation of the gain with the base's accuracy: {'; '.join(texts)}." if texts else ""
    counts = seeds_text([len(found) for found in arms.values()])
    return finish(spec, figure, legend=4, seeds=counts, model=models(spec, by_base)[0], findings=findings)
