"""Figure 3, what the losses cost beside what the paper says, and what CE + NTL costs by each implementation."""

from pathlib import Path

from ntl.results.figures.runs import Source
from ntl.results.figures.spec import FigureSpec
from ntl.results.figures.style import ON_AXIS, PAGE, Drawing, finish, panels
from ntl.results.load import read_rows
from ntl.results.spec import read_paper

SHARE = 0.8
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
        each.hlines(
            places,
            [float(r["ratio_low"]) for r in here],
            [float(r["ratio_high"]) for r in here],
            color=OURS,
            linewidth=2,
        )
        each.plot([float(r["ratio"]) for r in here], places, "o", color=OURS, markersize=4, label="measured here")
        theirs = {order.index(loss): ratio for loss, ratio in printed.get(part, {}).items() if loss in order}
        each.plot(list(theirs.values()), list(theirs), "x", color=THEIRS, markersize=5, label="paper (GPU)")
        each.set_title(title)
        each.set_xlabel("time, ratio to CE")
    memory = [row for row in rows if row["part"] == "forward+backward"]
    axes[-1].barh(
        [order.index(r["loss"]) for r in memory], [float(r["peak_mib"]) for r in memory], color=OURS, height=0.6
    )
    axes[-1].set_title("forward and\nbackward")
    axes[-1].set_xlabel("peak memory (MiB)")
    for each in axes:
        each.set_yticks(range(len(order)), [LOSS_NAMES.get(loss, loss) for loss in order])
        each.set_ylim(len(order) - 0.5, -0.5)
        each.grid(axis="x")
    for each in axes[:-1]:
        each.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    one = rows[0]
    shape = " × ".join(f"{int(one[name]):,}" for name in ("batch", "length", "vocab"))
    where = f"one {one['device'].upper()}" if not one["threads"] else f"CPU, {one['threads']} thread"
    size = int(one["batch"]) * int(one["length"]) * int(one["vocab"]) * (4 if one["dtype"] == "float32" else 2) / 2**20
    return finish(spec, figure, where=where, shape=shape, dtype=one["dtype"], size=f"{size:.0f}", rounds=one["rounds"])


IMPLEMENTATIONS = {
    "ce": "torch CE alone",
    "was reference": "reference",
    "was fused": "fused",
    "was in place": "in place",
    "was triton": "triton",
    "liger CE": "liger, CE alone",
    "ntloss": "ntloss",
    "ntloss reweighed": "ntloss, reweighed",
}
MARKERS, COLOURS = "osD^vP", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9")


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
                values, low, high = ([float(r[key]) for r in here] for key in ("ratio", "ratio_low", "ratio_high"))
                each.hlines(places, low, high, color=COLOURS[k], linewidth=1.5)
            else:
                values = [float(r["peak_mib"]) / float(r["logits_mib"]) for r in here]
            each.plot(values, places, MARKERS[k], label=shape, color=COLOURS[k], markersize=4, **ON_AXIS)
        if what == "ratio":
            each.axvline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
        each.set(title=dtype, xlabel=axis, xlim=(0, None), ylim=(len(order) - 0.5, -0.5))
        each.set_yticks(range(len(order)), [IMPLEMENTATIONS[name] for name in order])
        each.grid(axis="x")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(shapes))
    where = "one GPU" if any(row["device"] == "cuda" for row in rows) else "CPU, one thread, a cold heap"
    return finish(spec, figure, where=where, rounds=str(max(int(row["rounds"]) for row in rows)))


def _shape(row: dict[str, str]) -> str:
    return " × ".join(f"{int(row[name]):,}" for name in ("batch", "length", "vocab"))
