"""The losses themselves, what they cost, and what drafts save: committed numbers, so that no figure needs torch."""

import numpy as np
from matplotlib.colors import Normalize

from ntl.results.figures.style import COLUMN, LOOKS, PAGE, RASTER, Drawn, Source, legend, name_of, name_rows, panels
from ntl.results.spec import read_paper

OURS, THEIRS = "#0072B2", "#D55E00"
MARKS = (("o", "#0072B2"), ("s", "#D55E00"), ("D", "#009E73"), ("^", "#CC79A7"))


def figure1b(source: Source) -> Drawn:
    """What CE does not see."""
    curves = source.table("figures/losses_by_digit.csv")
    figure, (axes,) = panels(COLUMN, 2.3, 1)
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
    known = {"ce": "CE (nats)", "ntl_mse": "NTL-MSE (squared units)", "ntl_was": "NTL-WAS (units)"}
    figure, axes = panels(PAGE, 2.1, len(known), sharey=True)
    for each, (loss, title) in zip(axes, known.items(), strict=True):
        # CE has no largest value: where p(4) < 0.02 its colour is the last one, as of any large number.
        grid = np.minimum(curves.pivot(index="p5", columns="p3", values=loss).to_numpy(), 1e9)
        top, ticks, extend = (4, [0, 2, 4], "max") if loss == "ce" else (1, [0, 0.5, 1], "neither")
        image = each.imshow(grid, extent=(0, 1, 0, 1), norm=Normalize(0, top), **RASTER)
        bar = figure.colorbar(image, ax=each, fraction=0.045, pad=0.03, extend=extend, ticks=ticks)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        each.set(title=title, xlabel="p(3)", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes[0].set_ylabel("p(5)")
    return figure, {}


def figure3(source: Source) -> Drawn:
    """Time of each loss as a ratio to CE, here and in the paper, whose overhead of 0.01 is a ratio of 1.01."""
    rows = source.table("benchmarks/losses.csv").query("share == 0.8")
    order = [loss for loss in LOOKS if loss in set(rows["loss"])]
    rows = rows.assign(place=rows["loss"].map(order.index))
    printed = read_paper(source.results / "paper" / "figure3.yaml")
    figure, axes = panels(PAGE, 0.95 + 0.2 * len(order), 4, sharey=True)
    for each, part in zip(axes, ("forward", "forward+backward", "training step"), strict=False):
        here, theirs = rows[rows["part"] == part], {f"{part}/ratio": 0, f"{part}/overhead": 1}
        each.hlines(here["place"], here["ratio_low"], here["ratio_high"], color=OURS, linewidth=2)
        each.plot(here["ratio"], here["place"], "o", color=OURS, markersize=4, label="measured here")
        points = {
            order.index(row["label"]): row["values"][key][0] + base
            for row in printed
            for key, base in theirs.items()
            if key in row["values"]
        }
        each.plot([*points.values()], [*points], "x", color=THEIRS, markersize=5, label="paper (GPU)")
        each.set(title=part.replace("+", " and\n"), xlabel="time, ratio to CE")
        each.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    memory = rows[rows["part"] == "forward+backward"]
    axes[-1].barh(memory["place"], memory["peak_mib"], color=OURS, height=0.6)
    axes[-1].set(title="forward and\nbackward", xlabel="peak memory (MiB)")
    for each in axes:
        name_rows(each, [name_of(loss) for loss in order])
        each.grid(axis="x")
    legend(figure, 2)
    one = rows.iloc[0]
    shape = " × ".join(f"{one[name]:,}" for name in ("batch", "length", "vocab"))
    size = one["batch"] * one["length"] * one["vocab"] * (4 if one["dtype"] == "float32" else 2) / 2**20
    where = f"CPU, {one['threads']} thread" if one["threads"] else f"one {one['device'].upper()}"
    return figure, {"where": where, "shape": shape, "size": f"{size:.0f}", **one[["dtype", "rounds"]]}


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
    legend(figure, rows["batch"].nunique())
    where = "one GPU" if first["device"] == "cuda" else "a CPU, one thread"
    return figure, {"shape": f"{first['layers']} blocks {first['width']} wide", "where": where, **first[["rounds"]]}
