"""Figures from run records: one dot a seed, the same seeds joined, so that a paired difference can be seen."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntl.config import UserError
from ntl.results.load import load_records
from ntl.results.record import RunRecord

ROOT = Path(__file__).resolve().parents[3]
# Okabe and Ito's colours, told apart by the colour-blind; the order of LOSSES.
COLOURS = ("#000000", "#56B4E9", "#D55E00", "#009E73")
LOSSES = {"ce": "CE", "ce_digits": "CE + digit CE\n(control)", "ntl_was": "NTL-WAS", "ntl_crps": "NTL-CRPS"}


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
    """loss -> seed -> value, for the runs at scale=tiny with the default model and weight."""
    found: dict[str, dict[int, float]] = {}
    for record in records:
        config = record.config
        names = [config.get(group, {}).get("name") for group in ("dataset", "scale", "model", "tokenizer")]
        value = record.metrics.get(panel.metric)
        default = names == [panel.dataset, "tiny", "gpt2_tiny", "digit"] and config["loss"]["weight"] == 0.3
        if default and value is not None:
            found.setdefault(config["loss"]["name"], {})[record.seed] = value
    return found


def _draw(axes: Any, panel: Panel, values: Mapping[str, Mapping[int, float]]) -> None:
    shown = [loss for loss in LOSSES if loss in values]
    for seed in sorted(set().union(*values.values())):
        at = [place for place, loss in enumerate(shown) if seed in values[loss]]
        axes.plot(at, [values[shown[place]][seed] for place in at], color="#BBBBBB", linewidth=0.8, zorder=1)
    for place, loss in enumerate(shown):
        seeds = [value for _, value in sorted(values[loss].items())]
        axes.scatter([place] * len(seeds), seeds, s=22, color=COLOURS[list(LOSSES).index(loss)], zorder=2)
        mean = sum(seeds) / len(seeds)
        axes.hlines(mean, place - 0.25, place + 0.25, color=COLOURS[list(LOSSES).index(loss)], linewidth=2.5, zorder=3)
    axes.set_xticks(range(len(shown)), [LOSSES[loss] for loss in shown], fontsize=8)
    axes.set_xlim(-0.5, len(shown) - 0.5)
    axes.set_ylabel(panel.axis, fontsize=9)
    axes.set_title(panel.title, fontsize=10)
    axes.grid(axis="y", color="#EEEEEE", zorder=0)
    axes.spines[["top", "right"]].set_visible(False)


def draw_losses(records: Sequence[RunRecord], path: Path) -> Path:
    """Write the figure as SVG, the same bytes for the same records. UserError where a panel has no run."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    by_panel = [values_by_seed(records, panel) for panel in PANELS]
    for panel, values in zip(PANELS, by_panel, strict=True):
        if not values:
            raise UserError(
                f"no record of {panel.dataset} at scale=tiny: python scripts/reproduce.py --table quickstart"
            )
    with matplotlib.rc_context({"svg.hashsalt": "ntl", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure, axes = plt.subplots(1, len(PANELS), figsize=(8.4, 3.4), layout="constrained")
        for each, panel, values in zip(axes, PANELS, by_panel, strict=True):
            _draw(each, panel, values)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return path


def main(argv: Sequence[str] | None = None) -> None:
    """Rebuild the figures from records alone."""
    parser = argparse.ArgumentParser(prog="make_figures.py", description=__doc__)
    parser.add_argument("--records", type=Path, nargs="+", default=[ROOT / "results" / "runs"], metavar="DIR")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "figures", metavar="DIR")
    chosen = parser.parse_args(argv)
    print(draw_losses(load_records(chosen.records), chosen.out / "tiny_losses.svg"))
