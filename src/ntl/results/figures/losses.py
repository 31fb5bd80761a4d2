"""Figures 1b and 2, the losses themselves, and what losses cost and drafts save, from CSV files.

The losses are torch functions, and this package works without torch: their values are committed as numbers by
``scripts/loss_curves.py``, which a test compares with the functions, so that `make figures` takes seconds and gives the
same bytes on every processor.
"""

import numpy as np
from matplotlib.colors import Normalize

from ntl.results.figures.spec import Source
from ntl.results.figures.style import COLUMN, LOOKS, PAGE, RASTER, Drawing, finish, name_of, name_rows, panels
from ntl.results.spec import read_paper


def draw_by_digit(source: Source) -> Drawing:
    """Figure 1b from ``losses_by_digit.csv``."""
    curves = source.table("curves")
    figure, (axes,) = panels(COLUMN, 2.3, 1)
    known = {"ce": (1.0, "CE"), "ntl_mse": (0.5, "NTL-MSE × 0.5"), "ntl_was": (1.0, "NTL-WAS")}
    for loss, (factor, label) in known.items():
        look = {"color": LOOKS[loss].colour, "marker": LOOKS[loss].marker, "markersize": 4, "linewidth": 1.2}
        axes.plot(curves["predicted"], factor * curves[loss], label=label, **look)
    axes.set(xticks=curves["predicted"], xlabel="predicted digit (the label is 4)", ylabel="loss")
    axes.set_ylim(bottom=-0.3)
    axes.grid(axis="y")
    axes.legend(loc="upper center", ncols=1)
    return finish(source, figure)


def draw_by_mass(source: Source) -> Drawing:
    """Figure 2 from ``losses_by_mass.csv``; NaN, which is not drawn, where p(4) would be negative."""
    curves = source.table("curves")
    known = {"ce": "CE (nats)", "ntl_mse": "NTL-MSE (squared units)", "ntl_was": "NTL-WAS (units)"}
    figure, axes = panels(PAGE, 2.1, len(known), sharey=True)
    for each, (loss, title) in zip(axes, known.items(), strict=True):
        # CE has no largest value: where p(4) < 0.02 its colour is the last one, as of any large number.
        grid = np.minimum(curves.pivot(index="p5", columns="p3", values=loss).to_numpy(), 1e9)
        top, ticks, extend = (4, [0, 2, 4], "max") if loss == "ce" else (1, [0, 0.5, 1], "neither")
        image = each.imshow(grid, extent=(0, 1, 0, 1), norm=Normalize(0, top), **RASTER)
        bar = figure.colorbar(image, ax=each, fraction=0.045, pad=0.03, extend=extend)
        bar.set_ticks(ticks)
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        each.set(title=title, xlabel="p(3)", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes[0].set_ylabel("p(5)")
    return finish(source, figure)


SHARE = 0.8
BASE = {"ratio": 0.0, "overhead": 1.0}  # what makes each kind of number a ratio
PARTS = {"forward": "forward", "forward+backward": "forward and\nbackward", "training step": "training step"}
OURS, THEIRS = "#0072B2", "#D55E00"


def draw_runtime(source: Source) -> Drawing:
    """Time of each loss as a ratio to CE, here and in the paper, whose overhead of 0.01 is a ratio of 1.01."""
    rows = source.table("benchmark").query(f"share == {SHARE}")
    order = [loss for loss in LOOKS if loss in set(rows["loss"])]
    rows = rows.assign(place=rows["loss"].map(order.index))
    figure, axes = panels(PAGE, 0.95 + 0.2 * len(order), len(PARTS) + 1, sharey=True)
    for each, (part, title) in zip(axes, PARTS.items(), strict=False):
        here = rows[rows["part"] == part]
        each.hlines(here["place"], here["ratio_low"], here["ratio_high"], color=OURS, linewidth=2)
        each.plot(here["ratio"], here["place"], "o", color=OURS, markersize=4, label="measured here")
        theirs = {
            order.index(row["label"]): value + BASE[key.rpartition("/")[2]]
            for row in read_paper(source.file("paper"))
            for key, (value,) in row["values"].items()
            if key.rpartition("/")[0] == part
        }
        each.plot(list(theirs.values()), list(theirs), "x", color=THEIRS, markersize=5, label="paper (GPU)")
        each.set(title=title, xlabel="time, ratio to CE")
    memory = rows[rows["part"] == "forward+backward"]
    axes[-1].barh(memory["place"], memory["peak_mib"], color=OURS, height=0.6)
    axes[-1].set(title="forward and\nbackward", xlabel="peak memory (MiB)")
    for each in axes:
        name_rows(each, [name_of(loss) for loss in order])
        each.grid(axis="x")
    for each in axes[:-1]:
        each.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    one = rows.iloc[0]
    size = one["batch"] * one["length"] * one["vocab"] * (4 if one["dtype"] == "float32" else 2) / 2**20
    return finish(
        source,
        figure,
        legend=2,
        where=f"CPU, {one['threads']} thread" if one["threads"] else f"one {one['device'].upper()}",
        shape=" × ".join(f"{one[name]:,}" for name in ("batch", "length", "vocab")),
        dtype=one["dtype"],
        size=f"{size:.0f}",
        rounds=str(one["rounds"]),
    )


BATCHES = (("o", "#0072B2"), ("s", "#D55E00"), ("D", "#009E73"), ("^", "#CC79A7"))


def draw_drafts(source: Source) -> Drawing:
    """Tokens a forward pass, kept drafts by head, and the speed-up."""
    rows = source.table("benchmark")
    first, most = rows.iloc[0], int(rows["heads"].max())
    by_batch = list(rows.groupby("batch", sort=False))
    figure, axes = panels(PAGE, 2.3, 3)
    for (batch, here), (marker, colour) in zip(by_batch, BATCHES, strict=False):
        looks = {"color": colour, "marker": marker, "markersize": 4}
        axes[0].plot(here["heads"], here["tokens_per_forward"], label=f"batch {batch}", **looks)
        axes[2].plot(here["heads"], here["speedup"], **looks)
        axes[2].vlines(here["heads"], here["speedup_low"], here["speedup_high"], color=colour, linewidth=1.2)
        drafting, kept = range(2, most + 1), here[here["heads"] == most].iloc[0]
        axes[1].plot(drafting, [kept[f"accepted_head{head}"] for head in drafting], **looks)
    titles = ("tokens a forward pass", f"drafts kept, of {most} heads", "times as fast as greedy")
    for each, title, axis in zip(axes, titles, ("heads", "head", "heads"), strict=True):
        each.set(title=title, xlabel=axis, xticks=range(1 + (axis == "head"), most + 1))
        each.grid(axis="y")
    axes[0].set_ylim(bottom=0)
    axes[1].set_ylim(0, 1.05)
    axes[2].axhline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    axes[2].set_ylim(bottom=0)
    where = "one GPU" if first["device"] == "cuda" else "a CPU, one thread"
    shape, rounds = f"{first['layers']} blocks {first['width']} wide", str(first["rounds"])
    return finish(source, figure, legend=len(by_batch), where=where, shape=shape, rounds=rounds)
