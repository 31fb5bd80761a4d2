"""Training curves: the mean over seeds, and their spread."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from ntl.results.figures.runs import runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, PAGE, Drawing, panels, seeds_text
from ntl.results.record import RunRecord

DATASETS = {"noisy_numbers": "Noisy two-digit regression", "multiplication": "Multiplication, 1 to 3 digits"}
TICKS = [0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 6]
LINES = {"ce": "-", "ce_digits": "--", "ntl_was": "-", "ntl_crps": "-."}


def curve(records: Mapping[int, RunRecord], series: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps (S,) that every record has a value at, and the values (N, S), a row a record that has the series."""
    found = [
        {step: value for step, value in points if value is not None}
        for record in records.values()
        if (points := record.curves.get(series))
    ]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return np.array(steps), np.array([[one[step] for step in steps] for one in found])


def draw_curves(records: Sequence[RunRecord]) -> Drawing | None:
    """None where no record has a curve."""
    by_dataset = {dataset: runs for dataset in DATASETS if (runs := runs_by_loss(records, dataset))}
    if not by_dataset:
        return None
    figure, axes = panels(PAGE, 2.6, len(by_dataset))
    counts = []
    for each, (dataset, runs) in zip(axes, by_dataset.items(), strict=True):
        for loss, have in runs.items():
            steps, values = curve(have, "ce")
            if not steps.size:
                continue
            counts.append(len(values))
            name = LOSSES[loss].replace("\n", " ")
            each.fill_between(
                steps, values.min(axis=0), values.max(axis=0), color=COLOURS[loss], alpha=0.2, linewidth=0
            )
            each.plot(steps, values.mean(axis=0), LINES[loss], color=COLOURS[loss], linewidth=1.1, label=name)
        each.set_yscale("log")
        each.yaxis.set_major_locator(FixedLocator(TICKS))
        each.yaxis.set_major_formatter("{x:g}")
        each.yaxis.set_minor_locator(NullLocator())
        each.set_title(DATASETS[dataset])
        each.set_xlabel("optimizer step")
        each.grid(axis="y")
    if not counts:
        return None
    axes[0].set_ylabel("CE on training batches\n(nats a token)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return Drawing(
        "training_curves",
        "Training curves",
        figure,
        f"Cross-entropy on all labelled tokens, whatever the run minimised, mean and range over {seeds_text(counts)} "
        "a loss at scale=tiny; a point is the mean of the steps since the last one.",
    )
