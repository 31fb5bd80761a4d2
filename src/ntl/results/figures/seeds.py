"""The README's figure: one dot a run, the same seeds joined, so that a paired difference can be seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from ntl.results.figures.runs import runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, Drawing, panels, seeds_text
from ntl.results.record import RunRecord


@dataclass(frozen=True)
class Panel:
    """One data set and one metric of its runs."""

    title: str
    axis: str
    dataset: str
    metric: str


PANELS = (
    Panel("Noisy two-digit regression", "RMSE to the noise-free target", "noisy_numbers", "test/rmse_truth"),
    Panel(
        "Multiplication, 1 to 3 digits", "median error, % of the answer", "multiplication", "interpolate/mape_median"
    ),
)


def values_by_seed(records: Sequence[RunRecord], panel: Panel) -> dict[str, dict[int, float]]:
    """loss -> seed -> value, for the comparable runs that have one."""
    runs = runs_by_loss(records, panel.dataset)
    values = {
        loss: {seed: value for seed, run in have.items() if (value := run.metrics.get(panel.metric)) is not None}
        for loss, have in runs.items()
    }
    return {loss: by_seed for loss, by_seed in values.items() if by_seed}


def draw_seeds(records: Sequence[RunRecord]) -> Drawing | None:
    """None where a panel has no run."""
    by_panel = [values_by_seed(records, panel) for panel in PANELS]
    if not all(by_panel):
        return None
    figure, axes = panels(8.0, 3.2, len(PANELS))
    for each, panel, values in zip(axes, PANELS, by_panel, strict=True):
        _draw(each, panel, values)
    counts = [seeds_text([len(seeds) for seeds in values.values()]) for values in by_panel]
    return Drawing(
        "tiny_losses",
        "Losses on two tasks, seed by seed",
        figure,
        f"One dot a run at scale=tiny ({counts[0]} left, {counts[1]} right), the bar is the mean, grey lines join the "
        "runs of one seed, which start from the same weights and see the same batches.",
        ("pdf", "png", "svg"),
    )


def _draw(axes: Axes, panel: Panel, values: Mapping[str, Mapping[int, float]]) -> None:
    shown = list(values)
    for seed in sorted(set().union(*values.values())):
        at = [place for place, loss in enumerate(shown) if seed in values[loss]]
        axes.plot(at, [values[shown[place]][seed] for place in at], color="#BBBBBB", linewidth=0.8, zorder=1)
    for place, loss in enumerate(shown):
        seeds = list(values[loss].values())
        axes.scatter([place] * len(seeds), seeds, s=22, color=COLOURS[loss], zorder=2)
        mean = sum(seeds) / len(seeds)
        axes.hlines(mean, place - 0.25, place + 0.25, color=COLOURS[loss], linewidth=2.5, zorder=3)
    axes.set_xticks(range(len(shown)), [LOSSES[loss] for loss in shown])
    axes.set_xlim(-0.5, len(shown) - 0.5)
    axes.set_ylabel(panel.axis)
    axes.set_title(panel.title)
    axes.grid(axis="y")
