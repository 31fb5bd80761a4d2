"""Our own figures: gains by claim and task, depths of a text, drafts."""

import math

import numpy as np
from matplotlib.colors import Normalize

from ntl.results.effects import Outcome
from ntl.results.figures import draw
from ntl.results.figures.draw import PAGE, Drawn, Source, panels
from ntl.results.spec import BAND, Whose, load_verdicts, table_spec
from ntl.results.table import build_table
from ntl.results.verdicts import judge

EDGE = 100.0  # percent; what lies beyond is drawn as an arrow
MARKS = (("o", "#0072B2"), ("s", "#D55E00"), ("D", "#009E73"), ("^", "#CC79A7"))


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
