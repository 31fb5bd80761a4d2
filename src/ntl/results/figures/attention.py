"""What trained models attend to, from the rows that ``scripts/attention.py`` writes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ntl.results.figures.spec import FigureSpec, Source
from ntl.results.figures.style import PAGE, Drawing, finish, panels, seeds_text
from ntl.results.load import read_rows

SPANS = ("masked", "answer")
_LOOKS = (("#000000", "o"), ("#D55E00", "D"), ("#0072B2", "s"), ("#009E73", "^"))


def attention_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Attention by layer, for each data set (rows of panels) and span: mean and range over runs trained alike."""
    datasets, ways = (list(dict.fromkeys(row[name] for row in rows)) for name in ("dataset", "trained"))
    figure, axes = panels(PAGE, 2.1 * len(datasets) + 0.3, len(SPANS), len(datasets), sharex="row")
    for panel, each in enumerate(axes):
        dataset, span = datasets[panel // len(SPANS)], SPANS[panel % len(SPANS)]
        for k, way in enumerate(ways):
            values: dict[int, list[float]] = {}
            for row in rows:
                if (row["dataset"], row["trained"]) == (dataset, way) and int(row["layer"]) and row[span]:
                    values.setdefault(int(row["layer"]), []).append(float(row[span]))
            colour, marker = _LOOKS[k % len(_LOOKS)]
            layers = sorted(values)
            each.plot(layers, [np.mean(values[at]) for at in layers], marker, ls="-", ms=4, color=colour, label=way)
            low, high = ([pick(values[at]) for at in layers] for pick in (min, max))
            each.vlines(layers, low, high, color=colour, linewidth=1.2)
        each.axhline(1, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
        each.set(title=f"{dataset}: {span} tokens", xlabel="layer", ylim=(0, None))
        each.set_xticks(sorted({int(row["layer"]) for row in rows if row["dataset"] == dataset} - {0}))
        each.grid(axis="y")
    return figure


def draw_attention(spec: FigureSpec, source: Source) -> Drawing:
    """The figure, and in its caption the means over all layers. UserError where the file cannot be read."""
    rows = read_rows(source.file(spec, "attention"))
    runs: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["layer"] == "0":
            runs.setdefault((row["dataset"], row["trained"]), []).append(row)
    said = [
        f"{dataset}, {way}: "
        + " and ".join(f"{np.mean([float(row[span]) for row in own if row[span]]):.2f}" for span in SPANS)
        for (dataset, way), own in runs.items()
    ]
    return finish(
        spec,
        attention_figure(rows),
        legend=len({row["trained"] for row in rows}),
        seeds=seeds_text([len(own) for own in runs.values()]),
        means="; ".join(said),
    )
