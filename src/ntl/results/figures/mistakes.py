"""Of what kind the wrong answers are, by loss."""

from collections.abc import Mapping

import numpy as np

from ntl.results.figures.spec import ByLoss, FigureSpec, Source, models, runs_by_loss
from ntl.results.figures.style import (
    COLOURS,
    MARKERS,
    ON_AXIS,
    PAGE,
    Drawing,
    finish,
    name_of,
    name_rows,
    panels,
    seeds_text,
)
from ntl.results.record import RunRecord

# The kinds of ntl.evaluation.mistakes, as the figure names them.
KINDS = {
    "no number": "no number",
    "shortcut": "as if without parentheses",
    "sign": "sign",
    "decimal place": "right digits, wrong power of ten",
    "length": "more or fewer digits",
    "units digit": "units digit alone",
    "tens digit": "tens digit alone",
    "one digit": "another digit alone",
    "digits": "several digits",
}


def shares(records: Mapping[int, RunRecord], split: str) -> dict[str, np.ndarray]:
    """Kind -> (S,), its share of all answers of the split in each record that counts them."""
    counted = [
        (run.mistakes[split], run.metrics.get(f"{split}/count")) for run in records.values() if split in run.mistakes
    ]
    return {kind: np.array([found.get(kind, 0) / count for found, count in counted if count]) for kind in KINDS}


def draw_mistakes(spec: FigureSpec, source: Source) -> Drawing | None:
    """One panel of the runs whose published record counts mistakes by kind. None where no run does."""
    (panel,) = spec.panels
    runs: ByLoss = {
        loss: counted
        for loss, have in runs_by_loss(spec, panel, source).items()
        if (counted := {seed: run for seed, run in have.items() if panel.split in run.mistakes})
    }
    if not runs:
        return None
    by_loss = {loss: shares(have, panel.split) for loss, have in runs.items()}
    seen = [kind for kind in KINDS if any(found[kind].any() for found in by_loss.values())]
    figure, (axes,) = panels(PAGE, 0.9 + 0.36 * len(seen), 1)
    for at, (loss, found) in enumerate(by_loss.items()):
        places = np.arange(len(seen)) + 0.2 * (at - (len(by_loss) - 1) / 2)
        values = [100 * found[kind] for kind in seen]
        axes.hlines(places, [v.min() for v in values], [v.max() for v in values], color=COLOURS[loss], linewidth=1)
        means = [v.mean() for v in values]
        axes.plot(means, places, MARKERS[loss], color=COLOURS[loss], markersize=5, label=name_of(loss), **ON_AXIS)
    name_rows(axes, [KINDS[kind] for kind in seen])
    axes.set_xlim(left=0)
    axes.set_xlabel(panel.axis)
    axes.set_title(panel.title, loc="left")
    axes.grid(axis="x")
    parts = []
    for loss, found in by_loss.items():
        largest = sorted(seen, key=lambda kind: -found[kind].mean())[:3]
        wrong = sum(found[kind].mean() for kind in seen)
        kinds = ", ".join(f"{KINDS[kind]} {found[kind].mean():.1%}" for kind in largest)
        parts.append(f"{name_of(loss)}: {wrong:.1%} of the answers are wrong, above all {kinds}")
    counts = seeds_text([len(have) for have in runs.values()])
    return finish(spec, figure, legend=3, seeds=counts, model=models(spec, panel)[0], findings=f"{'; '.join(parts)}.")
