"""Figure A4: how often each digit stands first and last in the answers, and in what the models answer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ntl.results.figures.runs import runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, MARKERS, PAGE, Drawing, panels, seeds_text
from ntl.results.record import RunRecord

PLACES = {"leading": "first digit", "last": "last digit"}


class Split(NamedTuple):
    """A test set whose digits are counted."""

    dataset: str
    name: str
    title: str


SPLITS = (
    Split("noisy_numbers", "test", "Noisy two-digit regression"),
    Split("multiplication", "interpolate", "Multiplication, 1 to 3 digits"),
)


def shares(records: Sequence[RunRecord], split: str, whose: str, place: str) -> np.ndarray:
    """(N, 10): the share of each digit at a place of a record's numbers; a record that has none is left out."""
    counts = [record.digit_histograms.get(split, {}).get(whose, {}).get(place) for record in records]
    return np.array([np.divide(count, sum(count)) for count in counts if count and sum(count)]).reshape(-1, 10)


def draw_digits(records: Sequence[RunRecord]) -> Drawing | None:
    """None where no record has counted digits."""
    by_split = [(split, runs_by_loss(records, split.dataset)) for split in SPLITS]
    by_split = [(split, runs) for split, runs in by_split if runs]
    if not by_split:
        return None
    figure, axes = panels(PAGE, 0.4 + 1.8 * len(by_split), len(PLACES), len(by_split), sharex=True, sharey="row")
    counts = []
    for row, (split, runs) in enumerate(by_split):
        counts += [len(have) for have in runs.values()]
        for each, (place, name) in zip(axes[row * len(PLACES) :], PLACES.items(), strict=False):
            everyone = [record for have in runs.values() for record in have.values()]
            answers = shares(everyone, split.name, "answer", place)
            if len(answers):
                each.bar(range(10), 100 * answers[0], color="#D9D9D9", width=0.9, label="answers")
            for at, (loss, have) in enumerate(runs.items()):
                offset = 0.2 * (at - (len(runs) - 1) / 2)
                _points(each, offset, loss, shares(list(have.values()), split.name, "prediction", place))
            each.set_title(f"{split.title}, {name}")
            each.set_xticks(range(10))
    for each in axes[:: len(PLACES)]:
        each.set_ylabel("share of numbers (%)")
    for each in axes[-len(PLACES) :]:
        each.set_xlabel("digit")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return Drawing(
        "figureA4",
        "Figure A4: digits of the predictions and of the answers",
        figure,
        f"Share of each digit at the first and the last place of greedy answers, scale=tiny, {seeds_text(counts)} a "
        "loss: mean, and range over seeds. Grey bars are the right answers. Unparsable answers are not counted.",
    )


def _points(axes: Axes, offset: float, loss: str, found: np.ndarray) -> None:
    if not len(found):
        return
    mean, low, high = 100 * found.mean(axis=0), 100 * found.min(axis=0), 100 * found.max(axis=0)
    at = np.arange(10) + offset
    axes.vlines(at, low, high, color=COLOURS[loss], linewidth=1)
    name = LOSSES[loss].replace("\n", " ")
    axes.plot(at, mean, MARKERS[loss], color=COLOURS[loss], markersize=3, linestyle="none", label=name)
