"""What CE + NTL costs by each implementation, from logits."""

from ntl.results.figures.runs import Source, read_rows
from ntl.results.figures.spec import FigureSpec
from ntl.results.figures.style import ON_AXIS, PAGE, Drawing, finish, panels

SHARE = 0.8
NAMES = {
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
    order = [name for name in NAMES if any(row["loss"] == name for row in rows)]
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
        each.set_yticks(range(len(order)), [NAMES[name] for name in order])
        each.grid(axis="x")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(shapes))
    where = "one GPU" if any(row["device"] == "cuda" for row in rows) else "CPU, one thread, a cold heap"
    return finish(spec, figure, where=where, rounds=str(max(int(row["rounds"]) for row in rows)))


def _shape(row: dict[str, str]) -> str:
    return " × ".join(f"{int(row[name]):,}" for name in ("batch", "length", "vocab"))
