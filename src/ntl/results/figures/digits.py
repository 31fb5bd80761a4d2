"""Figure A4: how often each digit stands first and last in the answers, and in what the models answer."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from ntl.config.figure import FigureSpec
from ntl.results.figures.runs import Source, runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, MARKERS, PAGE, Drawing, finish, panels, seeds_text
from ntl.results.record import RunRecord

PLACES = {"leading": "first digit", "last": "last digit"}


def shares(records: Sequence[RunRecord], split: str, whose: str, place: str) -> np.ndarray:
    """(N, 10): the share of each digit at a place of a record's numbers; a record that has none is left out."""
    counts = [record.digit_histograms.get(split, {}).get(whose, {}).get(place) for record in records]
    return np.array([np.divide(count, sum(count)) for count in counts if count and sum(count)]).reshape(-1, 10)


def draw_digits(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where no panel has a run."""
    by_panel = [(panel, runs) for panel in spec.panels if (runs := runs_by_loss(spec, panel, source))]
    if not by_panel:
        return None
    figure, axes = panels(PAGE, 0.4 + 1.8 * len(by_panel), len(PLACES), len(by_panel), sharex=True, sharey="row")
    counts = []
    for row, (panel, runs) in enumerate(by_panel):
        counts += [len(have) for have in runs.values()]
        for each, (place, name) in zip(axes[row * len(PLACES) :], PLACES.items(), strict=False):
            everyone = [record for have in runs.values() for record in have.values()]
            answers = shares(everyone, panel.split, "answer", place)
            if len(answers):
                each.bar(range(10), 100 * answers[0], color="#D9D9D9", width=0.9, label="answers")
            for at, (loss, have) in enumerate(runs.items()):
                offset = 0.2 * (at - (len(runs) - 1) / 2)
                _points(each, offset, loss, shares(list(have.values()), panel.split, "prediction", place))
            each.set_title(f"{panel.title}, {name}")
            each.set_xticks(range(10))
    for each in axes[:: len(PLACES)]:
        each.set_ylabel("share of numbers (%)")
    for each in axes[-len(PLACES) :]:
        each.set_xlabel("digit")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return finish(spec, figure, seeds=seeds_text(counts))


def _points(axes: Axes, offset: float, loss: str, found: np.ndarray) -> None:
    if not len(found):
        return
    mean, low, high = 100 * found.mean(axis=0), 100 * found.min(axis=0), 100 * found.max(axis=0)
    at = np.arange(10) + offset
    axes.vlines(at, low, high, color=COLOURS[loss], linewidth=1)
    name = LOSSES[loss].replace("\n", " ")
    marks = {"color": COLOURS[loss], "markersize": 3, "linestyle": "none", "clip_on": False}  # 0 lies on the axis
    axes.plot(at, mean, MARKERS[loss], label=name, **marks)
