"""Our own figures: gains by claim and task, seed by seed, by how well the base did; depths of a text; drafts."""

import math
from functools import partial
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize

from ntl.results.effects import Outcome, with_outcome
from ntl.results.figures import draw
from ntl.results.figures.draw import LOOKS, PAGE, Drawn, Source, name_of, panels
from ntl.results.match import by_seed
from ntl.results.render import seeds_text
from ntl.results.spec import BAND, Whose, load_verdicts, table_spec
from ntl.results.table import build_table
from ntl.results.verdicts import judge

BASES = ("ce", "ce_digits")
UNSHOWN = Outcome.inconclusive, Outcome.equivalent
EDGE = 100.0  # percent; what lies beyond is drawn as an arrow
HELD = "#767676"  # of an interval that includes 0: the palest legible text on white
MARKS = (("o", "#0072B2"), ("s", "#D55E00"), ("D", "#009E73"), ("^", "#CC79A7"))


def hour_losses(source: Source) -> Drawn:
    """Of models that have learnt it."""
    labels = (*draw.THREE, "NTL-MAE, λ = 0.3", "NTL-Huber, λ = 0.3", "NTL-MSE, λ = 0.3")
    error = ("interpolate/mae", "Arithmetic: error", "mean absolute error (lower is better)")
    exact = ("interpolate/accuracy", "Arithmetic: exact answers", "share of exact answers (higher is better)")
    return _by_seed(source, 1, labels, error, exact)


def plateau(source: Source) -> Drawn:
    """Whether a loss delays the step at which a model stops answering as if all answers were alike."""
    steps = ("validation/steps_until_ce_1.0", "Off the plateau", "steps until validation CE is below 1")
    error = ("interpolate/mae", "Error at the end", "mean absolute error (lower is better)")
    return _by_seed(source, 2, draw.THREE, steps, error)


def _by_seed(source: Source, block: int, labels: tuple[str, ...], *shown: tuple[str, str, str]) -> Drawn:
    """A panel for each metric, title and axis: a dot a run, a bar for the mean, a line for each seed."""
    runs, findings = source.runs("table2", "hour", labels, block), []
    losses, columns = [*runs], {column.metric: column for column in table_spec("table2").blocks[block].columns}
    figure, axes = panels(8.6, 1.2 + 0.42 * len(runs), len(shown), sharey=True)
    for each, (metric, title, axis) in zip(axes, shown, strict=True):
        scores = {loss: by_seed(metric, have) for loss, have in runs.items()}
        first, control = (draw.gaps(scores, base, columns[metric]) for base in BASES)
        for seed in sorted(set().union(*scores.values())):
            at = {place: value for place, loss in enumerate(scores) if (value := scores[loss].get(seed)) is not None}
            each.plot([*at.values()], [*at], color="#BBBBBB", linewidth=0.8, zorder=1)
        beside: dict[str, Any] = {"transform": each.get_yaxis_transform(), "va": "center"}
        each.text(1.03, -0.6, f"against {name_of('ce')} [95% interval]", color="#000000", **beside)
        for place, (loss, seeds) in enumerate(scores.items()):
            look, values = LOOKS[loss], [value for value in seeds.values() if value is not None]
            each.scatter(values, [place] * len(values), s=24, color=look.colour, marker=look.marker, zorder=2)
            each.vlines(np.mean(values), place - 0.28, place + 0.28, color=look.colour, linewidth=2.5, zorder=3)
            if loss in first:
                colour = HELD if loss in with_outcome(first, *UNSHOWN) else "#000000"
                each.text(1.03, place, first[loss].short, color=colour, **beside)
        each.margins(x=0.08)
        each.grid(axis="x")
        count = seeds_text([*map(len, scores.values())])
        each.set_title(f"{title}, {count}", loc="left")
        # Names are not broken.
        held = "; ".join(name_of(loss).replace(" ", "\u00a0") for loss in with_outcome(control, *UNSHOWN))
        note = fill(f"not significantly different from the control: {held}", 60, break_on_hyphens=False) if held else ""
        each.set_xlabel("\n".join(filter(None, [axis, note])), loc="left")
        said = f"{draw.sentence(first, 'ce')} {draw.sentence(control, 'ce_digits')}".strip()
        findings += [f"{title}, {columns[metric].header} ({count}): {said}"] if said else []
    axes[0].set(
        yticks=range(len(losses)), yticklabels=[LOOKS[loss].name for loss in losses], ylim=(len(losses) - 0.4, -0.75)
    )
    return figure, {"findings": " ".join(findings)}


def effects(source: Source) -> Drawn:
    """A line for each claim and task at the largest scale that ran, in percent or log points; an arrow beyond 100."""
    verdicts = load_verdicts()
    ran_at = {record.config.get("scale", {}).get("name") for record in source.records}
    specs = [*map(table_spec, sorted({cell.table for each in verdicts.claims for cell in each.cells} - {""}))]
    tables = [build_table(spec, source.records, scale) for spec in specs for scale in spec.scales if scale in ran_at]
    lines = [
        (verdict.spec.name, task, cell, cell.effect, cell.effect.gain)
        for verdict in judge(verdicts, tables, source.records, source.results / "benchmarks")
        for task, cell in verdict.tasks.items()
        if verdict.spec.whose is not Whose.beyond and cell.scale and cell.effect and cell.effect.gain
    ]
    tested = [line for line in lines if line[2].outcome is not Outcome.not_testable]
    published = [line for line in tested if line[2].scale in ("real", "paper")]
    small = [line for line in tested if line not in published]
    kinds = (("published models", "#D55E00", published), ("small models", "#0072B2", small))
    if not (heights := [len(found) for *_, found in kinds if found]):
        raise draw.NoRuns
    figure, parts = panels(PAGE, 0.2 + 0.7 * len(heights) + 0.17 * sum(heights), 1, len(heights), height_ratios=heights)
    for axes, (kind, colour, found) in zip(parts, (kind for kind in kinds if kind[2]), strict=True):
        axes.axvspan(-100 * BAND, 100 * BAND, color="#EEEEEE")
        axes.axvline(0, color="#555555", linewidth=1)
        names = list[str]()
        for place, (claim, task, cell, gained, ends) in enumerate(found):
            first = not place or claim != found[place - 1][0]
            names.append(f"{claim}: {task}, {cell.scale}" if first else f"{task}, {cell.scale}")
            if place and first:
                axes.axhline(place - 0.5, color="#CCCCCC", linewidth=0.5)
            unit = 100.0 if gained.ratio else 100 * cell.band / gained.band if gained.band else math.inf
            middle = gained.column.better.value * (gained.summary.mean or 0.0)  # which is known where the ends are
            mean, *beyond = (unit * value for value in (middle, *ends))
            inside = np.clip(beyond, -EDGE, EDGE)
            axes.plot(inside, [place, place], "-", color=colour, linewidth=1.5)
            for end, drawn, marker in zip(beyond, inside, "<>", strict=True):
                if end != drawn:
                    axes.plot([drawn], [place], marker, color=colour, markersize=5, clip_on=False)
            if abs(mean) <= EDGE:
                face = "white" if cell.spec.after else colour
                axes.plot([mean], [place], "o", color=colour, markerfacecolor=face, markersize=4)
        axes.set_xlim(-EDGE, EDGE)
        axes.grid(axis="x")
        axes.set_xlabel("gain: errors in log points, rates in percent")
        axes.set_title(kind, loc="left")
        draw.name_rows(axes, names)
    counts = {outcome: sum(cell.outcome is outcome for _, _, cell, *_ in tested) for outcome in Outcome}
    shown = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
    return figure, {"n": str(len(tested)), "found": shown, "left": str(len(lines) - len(tested))}


def when(source: Source) -> Drawn:
    """Gains over CE in percent by the base's accuracy, with an exact rank correlation, and by step. No ties."""
    from scipy.stats import permutation_test, rankdata

    runs = source.runs("table2", "hour", (*draw.THREE, "NTL-MAE, λ = 0.3", "NTL-MSE, λ = 0.3"), block=1)
    bases = {record.id: record.metrics.get("interpolate/accuracy") for record in source.records}
    figure, (left, right) = panels(PAGE, 2.9, 2)
    against, texts, counts = runs.get("ce", {}), [], []
    for loss in [*runs][1:]:
        look, seeds = LOOKS[loss], sorted(runs[loss].keys() & against.keys())
        found = [
            (accuracy, 100 * (other - score) / other)
            for seed in seeds
            if (accuracy := bases.get(str(runs[loss][seed].config.get("base", "")).partition("@")[0])) is not None
            and (score := runs[loss][seed].metrics.get("interpolate/mae")) is not None
            and (other := against[seed].metrics.get("interpolate/mae"))
        ]
        if not found:
            continue
        counts.append(len(found))
        left.plot(*zip(*found, strict=True), look.marker, color=look.colour, label=name_of(loss))
        if len(found) > 2:
            ranks = rankdata(found, axis=0).T
            orders: dict[str, Any] = {"permutation_type": "pairings", "n_resamples": 50_000}  # of 8 seeds 40,320
            p = permutation_test(ranks[:1], partial(np.average, weights=ranks[1]), vectorized=True, **orders).pvalue
            texts.append(f"{name_of(loss)}: ρ = {np.corrcoef(ranks)[0, 1]:+.2f}, n = {len(found)}, exact p = {p:.3g}")
        curves = [{seed: dict(of[seed].curves.get("eval_ce", ())) for seed in seeds} for of in (runs[loss], against)]
        mine, theirs = (pd.DataFrame(curve, dtype=float) for curve in curves)
        gains = (100 * (theirs - mine) / theirs).dropna().sort_index().T
        right.plot(gains.columns, gains.mean(), look.line, marker=look.marker, color=look.colour)
        right.vlines(gains.columns, gains.min(), gains.max(), color=look.colour, linewidth=1)
    if not counts:
        raise draw.NoRuns
    left.set(xlabel="accuracy of the checkpoint before fine-tuning", ylabel=f"gain over {name_of('ce')}, %")
    right.set_xlabel("fine-tuning step")
    for axes, title in ((left, "MAE of the answers"), (right, "Validation CE")):
        axes.axhline(0, color="#555555", linewidth=1)
        axes.set_title(title, loc="left")
        axes.grid(axis="y")
    draw.legend(figure, 4)
    said = f"Rank correlation of the gain with the base's accuracy: {'; '.join(texts)}." if texts else ""
    return figure, {"seeds": seeds_text(counts), "findings": said}


def needle(source: Source) -> Drawn:
    """A panel for each row of the table."""
    rows = ("next token", "15% masked", "15% random tokens (control)")
    runs = {row: have for row in rows for have in source.runs("meap_needle", "tiny", [row]).values()}
    figure, axes = panels(PAGE, 2.3, len(runs), sharey=True)
    for each, (row, have) in zip(axes, runs.items(), strict=True):
        trained = draw.draw_grid(each, have, "accuracy", "@", "mean", Normalize(0, 1), form="{:.2f}", aspect="auto")
        each.axhline(trained - 0.5, color="#000000", linewidth=1.5)
        each.set(title=row.replace("%", " %").removesuffix(" (control)"), xlabel="depth (%)")
    axes[0].set_ylabel("words of the text")
    figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, label="accuracy")
    return figure, {"seeds": draw.seeds_of(runs)}


def speculative(source: Source) -> Drawn:
    """Tokens a forward pass, kept drafts by head, and the speed-up."""
    rows = source.table("benchmarks/speculative.csv")
    first, most = rows.iloc[0], int(rows["heads"].max())
    figure, axes = panels(PAGE, 2.3, 3)
    for (batch, here), (marker, colour) in zip(rows.groupby("batch", sort=False), MARKS, strict=False):
        look = {"color": colour, "marker": marker, "markersize": 4}
        drafting, kept = range(2, most + 1), here[here["heads"] == most].iloc[0]
        axes[0].plot(here["heads"], here["tokens_per_forward"], label=f"batch {batch}", **look)
        axes[1].plot(drafting, [kept[f"accepted_head{head}"] for head in drafting], **look)
        axes[2].plot(here["heads"], here["speedup"], **look)
        axes[2].vlines(here["heads"], here["speedup_low"], here["speedup_high"], color=colour, linewidth=1.2)
    titles = ("tokens a forward pass", f"drafts kept, of {most} heads", "times as fast as greedy")
    for each, title, axis in zip(axes, titles, ("heads", "head", "heads"), strict=True):
        each.set(title=title, xlabel=axis, xticks=range(1 + (axis == "head"), most + 1))
        each.grid(axis="y")
        each.set_ylim(bottom=0)
    axes[1].set_ylim(top=1.05)
    axes[2].axhline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    draw.legend(figure, rows["batch"].nunique())
    where = "one GPU" if first["device"] == "cuda" else "a CPU, one thread"
    return figure, {"shape": f"{first['layers']} blocks {first['width']} wide", "where": where, **first[["rounds"]]}
