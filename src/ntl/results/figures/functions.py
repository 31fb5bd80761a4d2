"""A function for each figure: the paper's, then gains by claim and task, depths of a text, drafts."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from operator import gt, lt
from pathlib import Path
from statistics import median_high
from typing import Any, cast

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.patches import Rectangle

from ntl.config.folders import CONFIG_DIR, read_yaml
from ntl.results.effects import Outcome, effect
from ntl.results.figures import draw
from ntl.results.figures.draw import LOOKS, PAGE, Drawn, Source, name_of, panels
from ntl.results.record import RunRecord
from ntl.results.render import LOSSES, READ_BY, seeds_text, square_of
from ntl.results.spec import BAND, SPLITS, Whose
from ntl.results.verdicts import Cell
from ntl.system.errors import one_line_errors
from ntl.system.files import write_text

TEMPLATE = CONFIG_DIR / "figures.md"  # README.md of the folder: a section for each figure, named as its files

OURS, THEIRS = "#0072B2", "#D55E00"
MARKS = (("o", "#0072B2"), ("s", "#D55E00"), ("D", "#009E73"), ("^", "#CC79A7"))
EDGE = 100.0  # percent; what lies beyond is drawn as an arrow
FIVE = (*draw.THREE, "NTL-CRPS, λ = 0.3", "NTL, number level, λ = 0.3")


def figure1b(source: Source) -> Drawn:
    """What CE does not see."""
    curves = source.table("figures/losses_by_digit.csv")
    figure, (axes,) = panels(draw.COLUMN, 2.3, 1)
    for loss, factor, label in (("ce", 1, "CE"), ("ntl_mse", 0.5, "NTL-MSE × 0.5"), ("ntl_was", 1, "NTL-WAS")):
        look = {"color": LOOKS[loss].colour, "marker": LOOKS[loss].marker, "markersize": 4, "linewidth": 1.2}
        axes.plot(curves["predicted"], factor * curves[loss], label=label, **look)
    axes.set(xticks=curves["predicted"], xlabel="predicted digit (the label is 4)", ylabel="loss")
    axes.set_ylim(bottom=-0.3)
    axes.grid(axis="y")
    axes.legend(loc="upper center")
    return figure, {}


def figure2(source: Source) -> Drawn:
    """Where each loss has its minimum; NaN, which is not drawn, where p(4) would be negative."""
    curves = source.table("figures/losses_by_mass.csv")
    titles = {"ce": "CE (nats)", "ntl_mse": "NTL-MSE (squared units)", "ntl_was": "NTL-WAS (units)"}
    figure, axes = panels(PAGE, 2.1, len(titles), sharey=True)
    for panel, (loss, title) in zip(axes, titles.items(), strict=True):
        # CE has no largest value: where p(4) < 0.02 its colour is the last one, as of any large number.
        grid = np.minimum(curves.pivot(index="p5", columns="p3", values=loss).to_numpy(), 1e9)
        top, ticks, extend = (4, [0, 2, 4], "max") if loss == "ce" else (1, [0, 0.5, 1], "neither")
        image = panel.imshow(grid, extent=(0, 1, 0, 1), norm=Normalize(0, top), **draw.RASTER)
        bar = figure.colorbar(image, ax=panel, fraction=0.045, pad=0.03, extend=extend, ticks=ticks)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        panel.set(title=title, xlabel="p(3)", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes[0].set_ylabel("p(5)")
    return figure, {}


def figure3(source: Source) -> Drawn:
    """Time of each loss as a ratio to CE, here and in the paper, whose overhead of 0.01 is a ratio of 1.01."""
    rows = source.table("benchmarks/losses.csv").query("share == 0.8")
    order = [loss for loss in LOOKS if loss in set(rows["loss"])]
    rows = rows.assign(place=rows["loss"].map(order.index))
    printed = read_yaml(source.results / "paper" / "figure3.yaml")["rows"]
    figure, axes = panels(PAGE, 0.95 + 0.2 * len(order), 4, sharey=True)
    for panel, part in zip(axes, ("forward", "forward+backward", "training step"), strict=False):
        measured, theirs = rows[rows["part"] == part], {f"{part}/ratio": 0, f"{part}/overhead": 1}
        panel.hlines(measured["place"], measured["ratio_low"], measured["ratio_high"], color=OURS, linewidth=2)
        panel.plot(measured["ratio"], measured["place"], "o", color=OURS, markersize=4, label="measured here")
        points = {
            order.index(row["label"]): row["values"][key][0] + base
            for row in printed
            for key, base in theirs.items()
            if key in row["values"]
        }
        panel.plot([*points.values()], [*points], "x", color=THEIRS, markersize=5, label="paper (GPU)")
        panel.set(title=part.replace("+", " and\n"), xlabel="time, ratio to CE")
        panel.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    memory = rows[rows["part"] == "forward+backward"]
    axes[-1].barh(memory["place"], memory["peak_mib"], color=OURS, height=0.6)
    axes[-1].set(title="forward and\nbackward", xlabel="peak memory (MiB)")
    for panel in axes:
        draw.name_rows(panel, [name_of(loss) for loss in order])
        panel.grid(axis="x")
    draw.legend(figure, 2)
    first = rows.iloc[0]
    shape = " × ".join(f"{first[name]:,}" for name in ("batch", "length", "vocab"))
    size = first["batch"] * first["length"] * first["vocab"] * (4 if first["dtype"] == "float32" else 2) / 2**20
    where = f"CPU, {first['threads']} thread" if first["threads"] else f"one {first['device'].upper()}"
    times = rows.pivot(index="loss", columns="part", values="ratio")[["forward", "forward+backward"]]
    words = {loss: "{:.2f} and {:.2f}".format(*times.loc[loss]) for loss in ("ce_digits", "ntl_was")}
    return figure, words | {"where": where, "shape": shape, "size": f"{size:.0f}", **first[["dtype", "rounds"]]}


def figure4(source: Source) -> Drawn:
    """Medians over seeds, open and at the right end where that is never."""
    runs = source.runs("table5", "hour", block=1, group="Granite")
    every = [run for have in runs.values() for run in have.values()]
    groups, end = sorted(set().union(*(run.epochs_until(0.0) for run in every))), max(run.epochs for run in every)
    if not groups:
        raise draw.NoRuns
    figure, axes = panels(PAGE, 1.1 + 0.3 * len(groups), 2, sharey=True)
    reached = dict[float, dict[str, list[float]]]()  # by threshold, loss and group, in the median
    # At scale=hour no length comes below the paper's 0.5%: 20% is our choice, as it was at scale=tiny.
    for panel, threshold, more in zip(axes, (0.5, 20.0), (", as in the paper", ""), strict=True):
        middles = reached[threshold] = {}
        for at, (loss, have) in enumerate(runs.items()):
            look, offset = LOOKS[loss], 0.24 * (at - (len(runs) - 1) / 2)
            epochs = [by_group for run in have.values() if (by_group := run.epochs_until(threshold))]
            # Of two middle values the later one, as one of them may be infinite.
            middles[loss] = [median_high(by_group[group] for by_group in epochs) for group in groups if epochs]
            for place, middle in enumerate(middles[loss]):
                marks = {"color": look.colour, "markerfacecolor": look.colour if math.isfinite(middle) else "none"}
                # At the end of the axis it is drawn whole, above it.
                whole = {"markersize": 4, "linestyle": "none", "clip_on": False, "zorder": 4}
                panel.plot(min(middle, end), place + offset, look.marker, **marks, **whole)
            panel.plot([], [], look.marker, color=look.colour, markersize=4, label=name_of(loss))
        grey: dict[str, Any] = {"va": "center", "color": "#555555"}
        counts = [sum(map(math.isfinite, of_loss)) for of_loss in middles.values()]
        if not any(counts):
            words = "none of the lengths\nwithin the training,\nwhatever the loss"
            panel.text(end / 2, (len(groups) - 1) / 2, words, ha="center", backgroundcolor="white", **grey)
        if min(counts) < len(groups):
            panel.text(end, -0.62, "not reached", ha="right", **grey)
        draw.name_rows(panel, [group.replace("x", " × ") for group in groups], -0.95)
        panel.set(title=f"relative error below {threshold:g}%{more}", xlabel="epochs of training", xlim=(0, end))
        panel.grid(axis="x")
    axes[0].set_ylabel("digits of the two factors")
    draw.legend(figure, 3)
    (_, paper), (ce, was) = map(draw.compared, reached.values())
    words = {"sooner": sum(map(lt, was, ce)), "later": sum(map(gt, was, ce)), "pairs": len(groups)}
    return figure, {"seeds": draw.seeds_of(runs), "paper": sum(map(math.isfinite, paper)) or "none", **words}


def figureA1(source: Source) -> Drawn:
    """The mean of each module, and the range over seeds."""
    runs = source.runs("table1", "tiny")
    scores = [{loss: draw.group_values(have, split, "accuracy") for loss, have in runs.items()} for split in SPLITS]
    names = [sorted(set().union(*of.values())) for of in scores]
    sizes = [*map(len, names)]
    figure, axes = panels(PAGE, 1.0 + 0.25 * sum(sizes), 1, 2, sharex=True, height_ratios=sizes)
    for panel, of, modules, title in zip(axes, scores, names, SPLITS.values(), strict=True):
        for at, (loss, values) in enumerate(of.items()):
            offset = 0.27 * (at - (len(of) - 1) / 2)  # equal values lie beside one another
            places, percent, look = [modules.index(name) + offset for name in values], 100 * values, LOOKS[loss]
            panel.hlines(places, percent.min(), percent.max(), color=look.colour, linewidth=1)
            label = f"{name_of(loss)} ({seeds_text([len(runs[loss])])})"
            panel.plot(percent.mean(), places, look.marker, label=label, color=look.colour, markersize=3.5)
        draw.name_rows(panel, [name.replace("__", ": ").replace("_", " ") for name in modules])
        panel.set_title(title, loc="left")
        panel.grid(axis="both")
    # Shared by the panels, and it ends their scaling to what is drawn: after the last of them.
    axes[0].set_xlim(left=-1)
    axes[-1].set_xlabel("exact answers (%)")
    draw.legend(figure, 3)
    gaps = [(was.mean() - ce.mean()).round(9) for ce, was in map(draw.compared, scores)]
    words = {"more": sum((gap > 0).sum() for gap in gaps), "less": sum((gap < 0).sum() for gap in gaps)}
    most = 100 * max(values.max(axis=None) for of in scores for values in of.values())
    return figure, {"seeds": draw.seeds_of(runs), "modules": sum(sizes), "most": f"{most:.0f}", **words}


def figureA2(source: Source) -> Drawn:
    """Of the runs that Granite 3.1 stands for: the mixture of experts of Table 5."""
    runs = source.runs("table5", "hour", block=1, group="Granite MoE")
    figure, axes = panels(PAGE, 2.5, len(runs), sharey=True)
    for panel, (loss, have) in zip(axes, runs.items(), strict=True):
        edge = draw.draw_grid(panel, have, "mape", "x", "median", LogNorm(5, 200))
        panel.add_patch(Rectangle((-0.5, -0.5), edge, edge, fill=False, color="#000000", linewidth=1.5))
        panel.set(title=LOOKS[loss].name, xlabel="digits of the second factor")
    axes[0].set_ylabel("digits of the first factor")
    bar = figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, extend="both", label="mean relative error (%)")
    bar.set_ticks([5, 10, 20, 50, 100, 200], labels=["5", "10", "20", "50", "100", "200"])
    bar.minorticks_off()
    inside, beyond = (
        {loss: draw.group_values(have, split, "mape").median() for loss, have in runs.items()} for split in SPLITS
    )
    (ce, was), least = draw.compared(inside), math.floor(min(errors.min() for errors in beyond.values()))
    return figure, {"seeds": draw.seeds_of(runs), "less": (was < ce).sum(), "pairs": len(ce), "least": least}


def figureA4(source: Source) -> Drawn:
    """Grids of the right digit by digit, of the runs that ``scripts/calibrate.py --json`` has written of."""
    blocks = {
        ("noisy numbers", "tiny", "test"): source.runs("evidence", "tiny", FIVE),
        ("multiplication", "tiny", "interpolate"): source.runs("evidence", "tiny", FIVE, block=1),
        ("arithmetic", "hour", "interpolate"): source.runs("table2", "hour", block=1),
    }
    grids, counts = dict[tuple[str, str], np.ndarray](), list[int]()
    for (title, scale, split), runs in blocks.items():
        file = source.results / "benchmarks" / f"calibration_{scale}.json"
        with one_line_errors("read", file):
            by_id = json.loads(file.read_text(encoding="utf-8"))
        for loss, have in runs.items():
            if tables := [by_id[run.id][split]["digits"] for run in have.values() if run.id in by_id]:
                full = [[[np.nan] * 10 if row is None else row for row in table] for table in tables]
                grids[title, loss] = np.array(full, dtype=float).mean(axis=0)
                counts.append(len(tables))
    if not grids:
        raise draw.NoRuns
    titles, losses = (list(dict.fromkeys(part)) for part in zip(*grids, strict=True))
    figure, axes = panels(PAGE, 0.5 + 1.3 * len(titles), len(losses), len(titles), sharex=True, sharey=True)
    # The colours end at the next ten percent.
    options = {"vmin": 0, "vmax": 10 * math.ceil(10 * max(map(np.nanmax, grids.values()))), **draw.RASTER}
    for panel, (title, loss) in zip(axes, ((title, loss) for title in titles for loss in losses), strict=True):
        if (mean := grids.get((title, loss))) is None:
            panel.set_visible(False)
            continue
        panel.imshow(100 * mean, **options)
        panel.set(xticks=range(0, 10, 3), yticks=range(0, 10, 3), title=LOOKS[loss].name if title == titles[0] else "")
        panel.set_ylabel(f"{title}\nright digit" if loss == losses[0] else "")
        panel.set_xlabel("predicted digit" if title == titles[-1] else "")
    figure.colorbar(axes[0].images[0], ax=axes, label="mean probability (%)", shrink=0.8)
    right = {key: 100 * float(np.nanmean(np.diag(mean))) for key, mean in grids.items()}
    pairs = [draw.compared({loss: right[title, loss] for loss in losses if (title, loss) in right}) for title in titles]
    shares = [f"{was:.0f}% (CE: {ce:.0f}%) on {title}" for title, (ce, was) in zip(titles, pairs, strict=True)]
    return figure, {"seeds": seeds_text(counts), "right": ", ".join(shares)}


def gains(source: Source, whose: Whose) -> Drawn:
    """A row for each claim, with an interval for each task on which it is testable, at the largest scale that ran.

    An arrow where an end of it lies beyond the panel.
    """
    rows, left = dict[str, list[Cell]](), 0
    for verdict in source.verdicts:
        cells = [cell for cell in verdict.tasks.values() if cell.scale and cell.effect and cell.effect.gain]
        if verdict.spec.whose is whose and cells:
            tested = [cell for cell in cells if cell.outcome is not Outcome.not_testable]
            rows |= {verdict.spec.name: tested} if tested else {}
            left += len(cells) - len(tested)
    if not rows:
        raise draw.NoRuns
    figure, (axes,) = panels(PAGE, 0.7 + 0.36 * len(rows), 1)
    axes.axvspan(-100 * BAND, 100 * BAND, color="#EEEEEE")
    axes.axvline(0, color="#555555", linewidth=1)
    for number, cells in enumerate(rows.values()):
        for at, cell in enumerate(cells):
            place, effect = number + 0.8 * ((at + 0.5) / len(cells) - 0.5), cast("Any", cell.effect)
            colour, marker = (THEIRS, "s") if cell.scale in ("real", "paper") else (OURS, "o")
            values = effect.column.better.value * effect.summary.mean, *effect.gain
            unit, nats = 100 * cell.band / effect.band if effect.band else math.inf, effect.nats
            mean, *ends = (-100 * math.expm1(-nats * value) if nats else unit * value for value in values)
            inside = np.clip(ends, -EDGE, EDGE)
            axes.plot(inside, [place, place], "-", color=colour, linewidth=1.2)
            for end, drawn, arrow in zip(ends, inside, "<>", strict=True):
                if end != drawn:
                    axes.plot([drawn], [place], arrow, color=colour, markersize=4, clip_on=False)
            if abs(mean) <= EDGE:
                marks = {"markerfacecolor": "white" if cell.spec.after else colour, "markersize": 3.5}
                axes.plot([mean], [place], linestyle="", color=colour, marker=marker, **marks)
        axes.axhline(number - 0.5, color="#CCCCCC", linewidth=0.5)
    axes.set_xlim(-EDGE, EDGE)
    axes.grid(axis="x")
    axes.set_xlabel("← worse      gain, % of the baseline's error or accuracy      better →")
    for label, colour, marker in (("SmolLM2-135M", THEIRS, "s"), ("under a million weights", OURS, "o")):
        axes.plot([], [], marker=marker, color=colour, markersize=4, label=label)
    draw.name_rows(axes, [*rows])
    outcomes = Counter(cell.outcome for cells in rows.values() for cell in cells)
    shown = ", ".join(f"{outcomes[outcome]} {outcome.value}" for outcome in Outcome if outcome in outcomes)
    axes.set_title(f"{whose.value}, {outcomes.total()} comparisons:\n{shown}", loc="left")
    draw.legend(figure, 2)
    return figure, {"left": str(left)}


def squares(source: Source) -> Drawn:
    """A panel for each task, a bar for each loss and reading: the error, relative to CE read greedily within a seed."""
    ran = {(table.spec.name, table.scale) for table in source.tables}
    wanted = [task for task in source.spec.squares if (task.table, task.scale) in ran]
    squared = [(task, *square_of(task, source.tables)) for task in wanted]
    tasks = [(task, rows, columns) for task, rows, columns in squared if rows[LOSSES[0]].records]
    if not tasks:
        raise draw.NoRuns
    figure, axes = panels(PAGE, 2.2 * math.ceil(len(tasks) / 3), 3, math.ceil(len(tasks) / 3), sharey=True)
    for panel, (spec, rows, columns) in zip(axes, tasks, strict=False):
        greedy = rows[LOSSES[0]].scores(columns[0].metric)
        for at, (label, column) in enumerate(product(LOSSES, columns)):
            gap, name = effect(column, [greedy], [rows[label].scores(column.metric)]), label.partition(",")[0]
            if gap is None or gap.summary.mean is None:
                continue
            height, colour = 100 * math.exp(gap.summary.mean), LOOKS["ce" if label == LOSSES[0] else "ntl_was"].colour
            panel.bar(at, height, 0.8, color=colour, alpha=0.6, label=name if column is columns[0] else None)
            if gap.summary.low is not None and gap.summary.high is not None and at:
                low, high = (100 * math.exp(end) for end in (gap.summary.low, gap.summary.high))
                panel.vlines(at, low, high, color="#000000", linewidth=1)
            mean = f"{rows[label].summary(column.metric).mean:#.3g}"
            panel.text(at, 4, mean, ha="center", color="#FFFFFF" if label == LOSSES[0] else "#000000")
        task, model, unit = spec.task.split(", ", 2)
        reading = READ_BY.get(spec.reading, spec.reading).replace("_", "\n")
        panel.set(title=f"{task}\n{model}, n = {len(greedy)}", xlabel=unit)
        panel.set_xticks(range(4), ["greedy", reading] * 2)
        panel.axhline(100, color="#555555", linewidth=0.8, linestyle=":")
    for panel in axes[len(tasks) :]:
        panel.set_visible(False)
    for panel in axes[::3]:
        panel.set_ylabel("error, % of CE greedy")
    draw.legend(figure, 2)
    return figure, {}


def needle(source: Source) -> Drawn:
    """A panel for each row of the table."""
    rows = ("next token", "15% masked", "15% random tokens (control)")
    runs = {row: have for row in rows for have in source.runs("meap_needle", "tiny", [row]).values()}
    figure, axes = panels(PAGE, 2.3, len(runs), sharey=True)
    for panel, (row, have) in zip(axes, runs.items(), strict=True):
        trained = draw.draw_grid(panel, have, "accuracy", "@", "mean", Normalize(0, 1), form="{:.2f}", aspect="auto")
        panel.axhline(trained - 0.5, color="#000000", linewidth=1.5)
        panel.set(title=row.replace("%", " %").removesuffix(" (control)"), xlabel="depth (%)")
    axes[0].set_ylabel("words of the text")
    figure.colorbar(axes[-1].images[0], ax=axes, shrink=0.8, label="accuracy")
    return figure, {"seeds": draw.seeds_of(runs)}


def speculative(source: Source) -> Drawn:
    """Tokens a forward pass, kept drafts by head, and the speed-up."""
    rows = source.table("benchmarks/speculative.csv")
    first, most = rows.iloc[0], int(rows["heads"].max())
    figure, axes = panels(PAGE, 2.3, 3)
    for (batch, group), (marker, colour) in zip(rows.groupby("batch", sort=False), MARKS, strict=False):
        look = {"color": colour, "marker": marker, "markersize": 4}
        drafting, kept = range(2, most + 1), group[group["heads"] == most].iloc[0]
        axes[0].plot(group["heads"], group["tokens_per_forward"], label=f"batch {batch}", **look)
        axes[1].plot(drafting, [kept[f"accepted_head{head}"] for head in drafting], **look)
        axes[2].plot(group["heads"], group["speedup"], **look)
        axes[2].vlines(group["heads"], group["speedup_low"], group["speedup_high"], color=colour, linewidth=1.2)
    titles = ("tokens a forward pass", f"drafts kept, of {most} heads", "times as fast as greedy")
    for panel, title, axis in zip(axes, titles, ("heads", "head", "heads"), strict=True):
        panel.set(title=title, xlabel=axis, xticks=range(1 + (axis == "head"), most + 1))
        panel.grid(axis="y")
        panel.set_ylim(bottom=0)
    axes[1].set_ylim(top=1.05)
    axes[2].axhline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    draw.legend(figure, rows["batch"].nunique())
    where = "one GPU" if first["device"] == "cuda" else "a CPU, one thread"
    return figure, {"shape": f"{first['layers']} blocks {first['width']} wide", "where": where, **first[["rounds"]]}


FIGURES: dict[str, Callable[[Source], Drawn]] = {
    **{"squares": squares, "claims": partial(gains, whose=Whose.paper), "gains": partial(gains, whose=Whose.ours)},
    **{"figure1b": figure1b, "figure2": figure2, "figure3": figure3, "figure4": figure4, "figureA1": figureA1},
    **{"figureA2": figureA2, "figureA4": figureA4, "needle": needle, "speculative": speculative},
}


def draw_all(records: Sequence[RunRecord], results: Path, folder: Path) -> list[Path]:
    """Draw what can be drawn into a folder, with its page; the files of figures."""
    page, *sections = TEMPLATE.read_text(encoding="utf-8").split("## ")
    source, paths, missing = Source(records, results), list[Path](), ""
    for section in sections:
        name, files = re.split("[:\n]", section)[0], re.findall(r"\[(?:pdf|png)\]\((.+?)\)", section)
        try:
            with draw.style(), one_line_errors("draw into", folder):
                figure, words = FIGURES[files[0].partition(".")[0]](source)
                section = section.format(**words)
                page += f"## {section}"
                draw.set_title(figure, section.partition("\n")[0].partition(": ")[2])
                paths += [draw.write(figure, folder / file) for file in files]
        except draw.NoRuns:
            missing += f"- {name}\n"
    if missing:
        page += f"Not drawn, as no record has what they are drawn from:\n\n{missing}"
    write_text(folder / "README.md", page)
    return paths
