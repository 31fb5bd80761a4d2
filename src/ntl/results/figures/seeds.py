"""The README's figure: one dot a run, the same seeds joined, so that a paired difference can be seen."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from ntl.config.figure import FigureSpec, PanelSpec
from ntl.results.figures.runs import Source, runs_by_loss
from ntl.results.figures.style import COLOURS, LOSSES, Drawing, finish, panels, seeds_text


def values_by_seed(spec: FigureSpec, panel: PanelSpec, source: Source) -> dict[str, dict[int, float]]:
    """loss -> seed -> value, for the panel's runs that have one."""
    runs = runs_by_loss(spec, panel, source)
    values = {
        loss: {seed: value for seed, run in have.items() if (value := run.metrics.get(panel.metric)) is not None}
        for loss, have in runs.items()
    }
    return {loss: by_seed for loss, by_seed in values.items() if by_seed}


def draw_seeds(spec: FigureSpec, source: Source) -> Drawing | None:
    """None where a panel has no run."""
    by_panel = [values_by_seed(spec, panel, source) for panel in spec.panels]
    if not all(by_panel):
        return None
    figure, axes = panels(8.0, 3.2, len(spec.panels))
    for each, panel, values in zip(axes, spec.panels, by_panel, strict=True):
        _draw(each, panel, values)
    left, right = (seeds_text([len(seeds) for seeds in values.values()]) for values in by_panel)
    return finish(spec, figure, left=left, right=right)


def _draw(axes: Axes, panel: PanelSpec, values: Mapping[str, Mapping[int, float]]) -> None:
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
