"""What losses gain: seed by seed, a dot a run; by claim and task; by how well the base did, and by step; and Figure 4,
the epochs until a group is answered well."""

import math
import statistics
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ntl.results.effects import Effect, Outcome, Seeds, effect, with_outcome
from ntl.results.figures.spec import Panel, Source, defined
from ntl.results.figures.style import LOOKS, ON_AXIS, PAGE, Drawing, finish, name_of, name_rows, panels
from ntl.results.record import RunRecord
from ntl.results.render import seeds_text
from ntl.results.spec import BAND, ColumnSpec, table_spec
from ntl.results.table import build_table, by_seed
from ntl.results.verdicts import Cell, Whose, judge, load_verdicts

CONTROL = "ce_digits"
Effects = Mapping[str, Effect]  # loss -> its effect
UNSHOWN = Outcome.inconclusive, Outcome.equivalent
HELD = "#767676"  # of an interval that includes 0: the palest legible text on white
MOST_ORDERS = 50_000  # of eight pairs there are 40,320


def gaps(values: Mapping[str, Seeds], base: str, column: ColumnSpec) -> Effects:
    """The effect of every loss behind ``base`` over it, over the seeds of both; none where ``base`` has no run."""
    behind = list(values)[list(values).index(base) + 1 :] if base in values else []
    return {loss: each for loss in behind if (each := effect(column, [values[base]], [values[loss]])) is not None}


def sentence(found: Effects, base: str) -> str:
    """The effects over ``base`` in words: better, worse, equivalent, not significantly different."""
    words = {Outcome.supported: "Better than {}", Outcome.contradicted: "Worse than {}"}
    words |= {Outcome.equivalent: "Within 5% of {}", Outcome.inconclusive: "Not significantly different from {}"}
    said = {lead: with_outcome(found, outcome) for outcome, lead in words.items()}
    texts = {lead: "; ".join(f"{name_of(loss)} {found[loss].text}" for loss in losses) for lead, losses in said.items()}
    return " ".join(f"{lead.format(name_of(base))}: {text}." for lead, text in texts.items() if text)


def draw_seeds(source: Source) -> Drawing | None:
    """None where a panel has no run."""
    by_panel = [
        {loss: seeds for loss, seeds in panel.scores(panel.spec.metric).items() if defined(seeds)}
        for panel in source.panels
    ]
    if not all(by_panel):
        return None
    shown = list(dict.fromkeys(loss for values in by_panel for loss in values))
    figure, axes = panels(8.6, 1.2 + 0.42 * len(shown), len(by_panel), sharey=True)
    findings = []
    for each, panel, values in zip(axes, source.panels, by_panel, strict=True):
        column, count = panel.column, seeds_text([len(seeds) for seeds in values.values()])
        first, control = (gaps(values, base, column) for base in (shown[0], CONTROL))
        _draw(each, {loss: defined(seeds) for loss, seeds in values.items()}, shown, first)
        each.set_title(f"{panel.spec.title}, {count}", loc="left")
        # Names are not broken.
        held = "; ".join(name_of(loss).replace(" ", "\u00a0") for loss in with_outcome(control, *UNSHOWN))
        note = fill(f"not significantly different from the control: {held}", 60, break_on_hyphens=False) if held else ""
        each.set_xlabel("\n".join(filter(None, [panel.spec.axis, note])), loc="left")
        if text := f"{sentence(first, shown[0])} {sentence(control, CONTROL)}".strip():
            findings.append(f"{panel.spec.title}, {column.header} ({count}): {text}")
    axes[0].set_yticks(range(len(shown)), [LOOKS[loss].name for loss in shown])
    axes[0].set_ylim(len(shown) - 0.4, -0.75)
    return finish(source, figure, findings=" ".join(findings))


def _draw(
    axes: Axes, values: Mapping[str, Mapping[int, float]], shown: Sequence[str], first: Mapping[str, Effect]
) -> None:
    for seed in sorted(set().union(*values.values())):
        at = [place for place, loss in enumerate(shown) if seed in values.get(loss, {})]
        axes.plot([values[shown[place]][seed] for place in at], at, color="#BBBBBB", linewidth=0.8, zorder=1)
    beside = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(1.03, -0.6, f"against {name_of(shown[0])} [95% interval]", color="#000000", **beside)
    for place, loss in enumerate(shown):
        if loss not in values:
            continue
        seeds = list(values[loss].values())
        axes.scatter(seeds, [place] * len(seeds), s=24, color=LOOKS[loss].colour, marker=LOOKS[loss].marker, zorder=2)
        mean = sum(seeds) / len(seeds)
        axes.vlines(mean, place - 0.28, place + 0.28, color=LOOKS[loss].colour, linewidth=2.5, zorder=3)
        if loss in first:
            colour = HELD if loss in with_outcome(first, *UNSHOWN) else "#000000"
            axes.text(1.03, place, first[loss].short, color=colour, **beside)
    axes.margins(x=0.08)
    axes.grid(axis="x")


# ---- all comparisons

COLOURS = {"published models": "#D55E00", "small models": "#0072B2"}
EDGE = 100.0  # percent; what lies beyond is drawn as an arrow
Line = tuple[str, str, Cell]  # a claim, a task of it, and what is seen there


def _percent(cell: Cell) -> tuple[float, float, float]:
    """The gain and the ends of its interval: of an error in log points, of a rate in percent of the baseline's."""
    assert cell.effect is not None
    assert cell.effect.gain is not None
    assert cell.effect.summary.mean is not None
    unit = 100.0 if cell.effect.ratio else 100 * cell.band / cell.effect.band if cell.effect.band else math.inf
    low, high = cell.effect.gain
    return unit * cell.effect.column.better.value * cell.effect.summary.mean, unit * low, unit * high


def _kind(cell: Cell) -> str:
    return "published models" if cell.scale in ("real", "paper") else "small models"


def draw_forest(source: Source) -> Drawing | None:
    """A line for each claim and task at the largest scale that ran, published models above small ones.

    None where no comparison has an interval.
    """
    verdicts = load_verdicts()
    ran_at = {record.config.get("scale", {}).get("name") for record in source.records}
    specs = [*map(table_spec, sorted({cell.table for each in verdicts.claims for cell in each.cells} - {""}))]
    tables = [build_table(spec, source.records, scale) for spec in specs for scale in spec.scales if scale in ran_at]
    lines = [
        (verdict.spec.name, task, cell)
        for verdict in judge(verdicts, tables, source.records, source.results / "benchmarks")
        for task, cell in verdict.tasks.items()
        if verdict.spec.whose is not Whose.beyond and cell.scale and cell.effect and cell.effect.gain
    ]
    tested = [line for line in lines if line[-1].outcome is not Outcome.not_testable]
    by_kind = {kind: found for kind in COLOURS if (found := [line for line in tested if _kind(line[-1]) == kind])}
    if not by_kind:
        return None
    heights = [*map(len, by_kind.values())]
    figure, parts = panels(PAGE, 0.2 + 0.7 * len(heights) + 0.17 * sum(heights), 1, len(heights), height_ratios=heights)
    for axes, (kind, found) in zip(parts, by_kind.items(), strict=True):
        _draw_lines(axes, found, COLOURS[kind])
        axes.set_title(kind, loc="left")
    counts = {outcome: sum(cell.outcome is outcome for _, _, cell in tested) for outcome in Outcome}
    shown = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
    return finish(source, figure, n=str(len(tested)), found=shown, left=str(len(lines) - len(tested)))


def _draw_lines(axes: Axes, lines: Sequence[Line], colour: str) -> None:
    """A line for each claim, task and cell; the first of a claim has its name."""
    axes.axvspan(-100 * BAND, 100 * BAND, color="#EEEEEE")
    axes.axvline(0, color="#555555", linewidth=1)
    names = list[str]()
    for place, (claim, task, cell) in enumerate(lines):
        first = not place or claim != lines[place - 1][0]
        names.append(f"{claim}: {task}, {cell.scale}" if first else f"{task}, {cell.scale}")
        if place and first:
            axes.axhline(place - 0.5, color="#CCCCCC", linewidth=0.5)
        mean, *ends = _percent(cell)
        low, high = (min(max(end, -EDGE), EDGE) for end in ends)
        axes.plot([low, high], [place, place], "-", color=colour, linewidth=1.5)
        for end, inside, marker in ((ends[0], low, "<"), (ends[1], high, ">")):
            if end != inside:
                axes.plot([inside], [place], marker, color=colour, markersize=5, clip_on=False)
        if abs(mean) <= EDGE:
            fill = "white" if cell.spec.after else colour
            axes.plot([mean], [place], "o", color=colour, markerfacecolor=fill, markersize=4)
    axes.set_xlim(-EDGE, EDGE)
    axes.grid(axis="x")
    axes.set_xlabel("gain: errors in log points, rates in percent")
    name_rows(axes, names)


# ---- Figure 4


def draw_epochs(source: Source) -> Drawing | None:
    """None where no run was probed. Markers are medians over seeds, open and at the right end where that is never.

    The ``findings`` of the caption say how many groups each loss reaches, and the differences over seeds.
    """
    reached = [
        {
            loss: [found for record in have.values() if (found := record.epochs_until(panel.spec.threshold))]
            for loss, have in panel.runs.items()
        }
        for panel in source.panels
    ]
    if not (groups := sorted({group for part in reached for of in part.values() for found in of for group in found})):
        return None
    records = [record for panel in source.panels for have in panel.runs.values() for record in have.values()]
    end, counts, findings = max(record.epochs for record in records), [], []
    figure, axes = panels(PAGE, 1.1 + 0.3 * len(groups), len(source.panels), sharey=True)
    for each, panel, epochs in zip(axes, source.panels, reached, strict=True):
        times = {}  # in which a loss reaches a group, in the median
        for at, (loss, found) in enumerate(epochs.items()):
            look, offset = LOOKS[loss], 0.24 * (at - (len(panel.runs) - 1) / 2)
            # Of two middle values the later one, as one of them may be infinite.
            places = {group: statistics.median_high(each[group] for each in found) for group in groups if found}
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
        findings.append(_finding(panel, len(groups), times))
    axes[0].set_ylabel("digits of the two factors")
    return finish(source, figure, 3, seeds=seeds_text(counts), findings=" ".join(findings))


def _finding(panel: Panel, groups: int, reached: Mapping[str, int]) -> str:
    title = panel.spec.title
    counts = ", ".join(f"{name_of(loss)} at {of} of {groups} pairs" for loss, of in reached.items())
    if not any(reached.values()):
        return f"{title}: {counts}, so nothing is shown there."
    column = ColumnSpec(metric=f"probe/epochs_until_{panel.spec.threshold}", header="epochs")
    means = {loss: by_seed(column.metric, have) for loss, have in panel.runs.items()}
    compared = [sentence(gaps(means, base, column), base) for base in (next(iter(means)), CONTROL)]
    lead = "In the mean over the pairs, one that is not reached counted as the end of training, in epochs:"
    return f"{title}: {counts}. {' '.join([lead, *filter(None, compared)])}"


# ---- when a loss helps


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


def gains_by_step(have: Mapping[int, RunRecord], against: Mapping[int, RunRecord], series: str) -> Any:
    """Gains in a curve in percent, lower values being better.

    A DataFrame: a row for each seed of both, a column for each step that all have.
    """
    seeds = sorted(set(have) & set(against))
    curves = [{seed: dict(map(tuple, of[seed].curves.get(series, ()))) for seed in seeds} for of in (have, against)]
    mine, theirs = (pd.DataFrame(curve, dtype=float) for curve in curves)
    return (100 * (theirs - mine) / theirs).dropna().sort_index().T


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
        gains = gains_by_step(by_base.runs[loss], against, by_step.spec.metric)
        right.plot(gains.columns, gains.mean(), look.line, marker=look.marker, color=look.colour)
        right.vlines(gains.columns, gains.min(), gains.max(), color=look.colour, linewidth=1)
    for axes, panel in ((left, by_base), (right, by_step)):
        axes.axhline(0, color="#555555", linewidth=1)
        axes.set_title(panel.spec.title, loc="left")
        axes.set_xlabel(panel.spec.axis)
        axes.grid(axis="y")
    left.set_ylabel(f"gain over {name_of(first)}, %")
    findings = f"Rank correlation of the gain with the base's accuracy: {'; '.join(texts)}." if texts else ""
    return finish(source, figure, 4, seeds=seeds_text([len(found) for found in arms.values()]), findings=findings)
