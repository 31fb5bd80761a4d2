"""Figures 1b and 2, the losses themselves, and what losses, heads and drafts cost, from CSV files.

The losses are torch functions, and this package works without torch: their values are committed as numbers by
``scripts/loss_curves.py``, which a test compares with the functions, so that `make figures` takes seconds and gives the
same bytes on every processor.
"""

from pathlib import Path

import numpy as np
from matplotlib.colors import Normalize

from ntl.results.figures.spec import FigureSpec, Source
from ntl.results.figures.style import (
    COLOURS,
    COLUMN,
    MARKERS,
    ON_AXIS,
    PAGE,
    RASTER,
    Drawing,
    finish,
    name_rows,
    panels,
)
from ntl.results.load import read_rows
from ntl.results.spec import read_paper

LABEL = 4
# Columns that are no loss, or one that is not shown.
BESIDE = {"predicted", "p3", "p5", "ce_original"}
HEAD_FORMS = ("one at a time", "together")


def draw_by_digit(spec: FigureSpec, source: Source) -> Drawing:
    """Figure 1b from ``losses_by_digit.csv``."""
    rows = read_rows(source.file(spec, "curves"))
    digits = _floats(rows, "predicted")
    figure, (axes,) = panels(COLUMN, 2.3, 1)
    known = {"ce": (1.0, "CE"), "ntl_mse": (0.5, "NTL-MSE × 0.5"), "ntl_was": (1.0, "NTL-WAS")}
    for loss in _losses(rows):
        factor, label = known.get(loss, (1.0, loss))
        options = {"color": COLOURS.get(loss), "marker": MARKERS.get(loss), "markersize": 4, "linewidth": 1.2}
        axes.plot(digits, factor * _floats(rows, loss), label=label, **options)
    axes.set_xticks(digits)
    axes.set_ylim(bottom=-0.3)
    axes.set_xlabel(f"predicted digit (the label is {LABEL})")
    axes.set_ylabel("loss")
    axes.grid(axis="y")
    axes.legend(loc="upper center", ncols=1)
    return finish(spec, figure)


def draw_by_mass(spec: FigureSpec, source: Source) -> Drawing:
    """Figure 2 from ``losses_by_mass.csv``."""
    rows = read_rows(source.file(spec, "curves"))
    known = {"ce": "CE (nats)", "ntl_mse": "NTL-MSE (squared units)", "ntl_was": "NTL-WAS (units)"}
    losses = _losses(rows)
    figure, axes = panels(PAGE, 2.1, len(losses), sharey=True)
    for each, loss in zip(axes, losses, strict=True):
        # CE has no largest value: where p(4) < 0.02 its colour is the last one.
        top = 4.0 if loss == "ce" else 1.0
        image = each.imshow(_grid(rows, loss), extent=(0, 1, 0, 1), norm=Normalize(0, top), **RASTER)
        bar = figure.colorbar(image, ax=each, fraction=0.045, pad=0.03, extend="max" if loss == "ce" else "neither")
        bar.set_ticks([0, 2, 4] if loss == "ce" else [0, 0.5, 1])
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
        each.set_title(known.get(loss, loss))
        each.set_xlabel("p(3)")
        each.set_xticks([0, 0.5, 1])
        each.set_yticks([0, 0.5, 1])
    axes[0].set_ylabel("p(5)")
    return finish(spec, figure)


def _losses(rows: list[dict[str, str]]) -> list[str]:
    """The columns that are a loss, as they stand."""
    return [name for name in rows[0] if name not in BESIDE]


def _floats(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _grid(rows: list[dict[str, str]], name: str) -> np.ndarray:
    """(S, S): the column at row p(5), column p(3); NaN, which is not drawn, where p(4) would be negative."""
    p3, p5 = _floats(rows, "p3"), _floats(rows, "p5")
    steps = round(1 / p3[p3 > 0].min())
    grid = np.full((steps + 1, steps + 1), np.nan)
    # An infinite cell would not be drawn either: it is beyond the last colour as well as any large number.
    grid[np.rint(p5 * steps).astype(int), np.rint(p3 * steps).astype(int)] = np.minimum(_floats(rows, name), 1e9)
    return grid


SHARE = 0.8
RATIOS = ("ratio", "ratio_low", "ratio_high")
BASE = {"ratio": 0.0, "overhead": 1.0}  # what makes each kind of number a ratio
LOSS_NAMES = {
    "ce": "CE",
    "ce_digits": "CE + digit CE",
    "ntl_mse": "NTL-MSE",
    "ntl_mae": "NTL-MAE",
    "ntl_huber": "NTL-Huber",
    "ntl_was": "NTL-WAS",
    "ntl_was_squashed": "NTL-WAS, squashed",
    "ntl_was_vocab": "NTL-WAS, all tokens",
    "ntl_was_cdf": "NTL-WAS-CDF",
    "ntl_crps": "NTL-CRPS",
    "ntl_number_level": "NTL, number level",
    "gce": "GCE",
    "gce_ntl_was": "GCE + NTL-WAS-CDF",
}
PARTS = {"forward": "forward", "forward+backward": "forward and\nbackward", "training step": "training step"}
OURS, THEIRS = "#0072B2", "#D55E00"


def paper_ratios(path: Path) -> dict[str, dict[str, float]]:
    """part of the benchmark -> loss -> time as a ratio to CE; an overhead of 0.01 is a ratio of 1.01."""
    found: dict[str, dict[str, float]] = {}
    for row in read_paper(path).rows:
        for key, (value,) in row.values.items():
            part, _, kind = key.partition("/")
            found.setdefault(part, {})[row.label] = value + BASE[kind]
    return found


def draw_runtime(spec: FigureSpec, source: Source) -> Drawing:
    """UserError where the benchmark or the paper's numbers cannot be read."""
    printed = paper_ratios(source.file(spec, "paper"))
    rows = [row for row in read_rows(source.file(spec, "benchmark")) if float(row["share"]) == SHARE]
    measured = {row["loss"] for row in rows}
    order = [*(loss for loss in LOSS_NAMES if loss in measured), *sorted(measured - LOSS_NAMES.keys())]
    figure, axes = panels(PAGE, 0.95 + 0.2 * len(order), len(PARTS) + 1, sharey=True)
    for each, (part, title) in zip(axes, PARTS.items(), strict=False):
        here = [row for row in rows if row["part"] == part]
        places = [order.index(row["loss"]) for row in here]
        ratios, low, high = ([float(row[key]) for row in here] for key in RATIOS)
        each.hlines(places, low, high, color=OURS, linewidth=2)
        each.plot(ratios, places, "o", color=OURS, markersize=4, label="measured here")
        theirs = {order.index(loss): ratio for loss, ratio in printed.get(part, {}).items() if loss in order}
        each.plot(list(theirs.values()), list(theirs), "x", color=THEIRS, markersize=5, label="paper (GPU)")
        each.set_title(title)
        each.set_xlabel("time, ratio to CE")
    memory = [row for row in rows if row["part"] == "forward+backward"]
    peaks = {order.index(row["loss"]): float(row["peak_mib"]) for row in memory}
    axes[-1].barh(list(peaks), list(peaks.values()), color=OURS, height=0.6)
    axes[-1].set_title("forward and\nbackward")
    axes[-1].set_xlabel("peak memory (MiB)")
    for each in axes:
        name_rows(each, [LOSS_NAMES.get(loss, loss) for loss in order])
        each.grid(axis="x")
    for each in axes[:-1]:
        each.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    one = rows[0]
    where = f"one {one['device'].upper()}" if not one["threads"] else f"CPU, {one['threads']} thread"
    size = int(one["batch"]) * int(one["length"]) * int(one["vocab"]) * (4 if one["dtype"] == "float32" else 2) / 2**20
    return finish(
        spec,
        figure,
        legend=2,
        where=where,
        shape=_shape(one),
        dtype=one["dtype"],
        size=f"{size:.0f}",
        rounds=one["rounds"],
    )


IMPLEMENTATIONS = {
    "ce": "torch CE alone",
    "was reference": "reference",
    "was fused": "fused",
    "was in place": "in place",
    "liger CE": "liger, CE alone",
    "ntloss": "ntloss",
    "ntloss reweighed": "ntloss, reweighed",
}
SHAPE_MARKERS, SHAPE_COLOURS = "osD^vP", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9")


def draw_implementations(spec: FigureSpec, source: Source) -> Drawing:
    """Time in float32 and bfloat16, and memory in float32. UserError where the benchmark cannot be read."""
    rows = [
        row
        for row in read_rows(source.file(spec, "benchmark"))
        if row["part"] == "loss" and (row["threads"], row["heap"]) == ("1", "cold") and float(row["share"]) == SHARE
    ]
    order = [name for name in IMPLEMENTATIONS if any(row["loss"] == name for row in rows)]
    shapes = list(dict.fromkeys(_shape(row) for row in rows))
    drawn = (
        ("float32", "ratio", "time, ratio to CE"),
        ("bfloat16", "ratio", "time, ratio to CE"),
        ("float32", "memory", "memory beyond\nthe logits, × logits"),
    )
    figure, axes = panels(PAGE, 1.3 + 0.3 * len(order), len(drawn), sharey=True)
    for each, (dtype, what, axis) in zip(axes, drawn, strict=True):
        for k, shape in enumerate(shapes):
            here = [r for r in rows if (r["dtype"], _shape(r)) == (dtype, shape) and r["loss"] in order]
            offset = 0.6 * ((k + 0.5) / len(shapes) - 0.5)
            places = [order.index(r["loss"]) + offset for r in here]
            if what == "ratio":
                values, low, high = ([float(r[key]) for r in here] for key in RATIOS)
                each.hlines(places, low, high, color=SHAPE_COLOURS[k], linewidth=1.5)
            else:
                values = [float(r["peak_mib"]) / float(r["logits_mib"]) for r in here]
            each.plot(values, places, SHAPE_MARKERS[k], label=shape, color=SHAPE_COLOURS[k], markersize=4, **ON_AXIS)
        if what == "ratio":
            each.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
        each.set(title=dtype, xlabel=axis, xlim=(0, None))
        name_rows(each, [IMPLEMENTATIONS[name] for name in order])
        each.grid(axis="x")
    where = "one GPU" if any(row["device"] == "cuda" for row in rows) else "CPU, one thread, a cold heap"
    return finish(spec, figure, legend=len(shapes), where=where, rounds=str(max(int(row["rounds"]) for row in rows)))


def _shape(row: dict[str, str]) -> str:
    return " × ".join(f"{int(row[name]):,}" for name in ("batch", "length", "vocab"))


def draw_drafts(spec: FigureSpec, source: Source) -> Drawing:
    """Tokens a forward pass, kept drafts by head, and the speed-up. UserError where the benchmark cannot be read."""
    rows = read_rows(source.file(spec, "benchmark"))
    first, batches = rows[0], list(dict.fromkeys(row["batch"] for row in rows))
    most = max(int(row["heads"]) for row in rows)
    figure, axes = panels(PAGE, 2.3, 3)
    for batch, marker, colour in zip(batches, SHAPE_MARKERS, SHAPE_COLOURS, strict=False):
        here = [row for row in rows if row["batch"] == batch]
        heads, looks = [int(row["heads"]) for row in here], {"color": colour, "marker": marker, "markersize": 4}
        axes[0].plot(heads, _floats(here, "tokens_per_forward"), label=f"batch {batch}", **looks)
        axes[2].plot(heads, _floats(here, "speedup"), **looks)
        axes[2].vlines(heads, _floats(here, "speedup_low"), _floats(here, "speedup_high"), color=colour, linewidth=1.2)
        drafting = range(2, most + 1)
        kept = next((row for row in here if int(row["heads"]) == most), here[-1])
        axes[1].plot(drafting, [float(kept[f"accepted_head{head}"]) for head in drafting], **looks)
    titles = ("tokens a forward pass", f"drafts kept, of {most} heads", "times as fast as greedy")
    for each, title, axis in zip(axes, titles, ("heads", "head", "heads"), strict=True):
        each.set(title=title, xlabel=axis, xticks=range(1 + (axis == "head"), most + 1))
        each.grid(axis="y")
    axes[0].set_ylim(bottom=0)
    axes[1].set_ylim(0, 1.05)
    axes[2].axhline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    axes[2].set_ylim(bottom=0)
    where = "one GPU" if first["device"] == "cuda" else "a CPU, one thread"
    shape = f"{first['layers']} blocks {first['width']} wide"
    return finish(spec, figure, legend=len(batches), where=where, shape=shape, rounds=first["rounds"])


def draw_heads(spec: FigureSpec, source: Source) -> Drawing:
    """Time and peak memory of a step by number of heads. UserError where the benchmark cannot be read."""
    rows = read_rows(source.file(spec, "benchmark"))
    first = rows[0]
    lines = list(dict.fromkeys((row["implementation"], row["form"]) for row in rows if row["form"] in HEAD_FORMS))
    heads = sorted({int(row["heads"]) for row in rows})
    figure, axes = panels(PAGE, 2.3, 2)
    for line, marker, colour in zip(lines, SHAPE_MARKERS, SHAPE_COLOURS, strict=False):
        here = [row for row in rows if (row["implementation"], row["form"]) == line]
        places, looks = [int(row["heads"]) for row in here], {"color": colour, "marker": marker, "markersize": 4}
        axes[0].plot(places, _floats(here, "ratio"), label=", ".join(line), **looks)
        axes[0].vlines(places, _floats(here, "ratio_low"), _floats(here, "ratio_high"), color=colour, linewidth=1.2)
        axes[1].plot(places, _floats(here, "peak_ratio"), **looks)
    for each, title in zip(axes, ("time of a step", "peak memory of a step"), strict=True):
        each.axhline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
        each.set(title=f"{title}, next token = 1", xlabel="heads", xticks=heads, ylim=(0, None))
        each.grid(axis="y")
    where = "one GPU" if first["device"] == "cuda" else "a CPU"
    shape = f"{first['layers']} blocks {first['width']} wide with {int(first['vocab']):,} tokens"
    return finish(spec, figure, legend=len(lines), where=where, shape=shape, rounds=first["rounds"])
