"""The README's figure: one dot per run, equal seeds joined, and each loss with its difference from the first one."""

from collections.abc import Mapping, Sequence
from textwrap import fill

from matplotlib.axes import Axes

from ntl.results.effects import Effect, Outcome, Seeds, effect
from ntl.results.figures.spec import Source, defined
from ntl.results.figures.style import LOOKS, Drawing, finish, name_of, panels
from ntl.results.render.text import seeds_text
from ntl.results.spec import ColumnSpec

CONTROL = "ce_digits"
Effects = Mapping[str, Effect]  # loss -> its effect
UNSHOWN = Outcome.inconclusive, Outcome.equivalent
HELD = "#767676"  # of an interval that includes 0: the palest legible text on white


def gaps(values: Mapping[str, Seeds], base: str, column: ColumnSpec) -> Effects:
    """The effect of every loss behind ``base`` over it, over the seeds of both; none where ``base`` has no run."""
    behind = list(values)[list(values).index(base) + 1 :] if base in values else []
    return {loss: each for loss in behind if (each := effect(column, [values[base]], [values[loss]])) is not None}


def with_outcome(found: Effects, *outcomes: Outcome) -> list[str]:
    """The losses whose effect says one of these of being better."""
    return [loss for each in outcomes for loss in found if found[loss].outcome(says_better=True) is each]


def sentence(found: Effects, base: str) -> str:
    """The effects over ``base`` in words: better, worse, equivalent, not significantly different."""
    words = {Outcome.supported: "Better than {}", Outcome.contradicted: "Worse than {}"}
    words |= {Outcome.equivalent: "Within 5% of {}", Outcome.inconclusive: "Not significantly different from {}"}
    parts = []
    for outcome, lead in words.items():
        if losses := with_outcome(found, outcome):
            texts = [f"{name_of(loss)} {found[loss].text}" for loss in losses]
            parts.append(f"{lead.format(name_of(base))}: {'; '.join(texts)}.")
    return " ".join(parts)


def draw_seeds(source: Source) -> Drawing | None:
    """None where a panel has no run."""
    by_panel = [
        {loss: seeds for loss, seeds in panel.scores(panel.spec.metric).items() if defined(seeds)}
        for panel in source.panels
    ]
    if not all(by_panel):
        return None
    shown = list(dict.fromkeys(loss for values in by_panel for loss in values))
    figure, axes = panels(8.6, 1.2 + 0.42 * len(shown), len(by_panel), sharey=True)
    findings = []
    for each, panel, values in zip(axes, source.panels, by_panel, strict=True):
        column, count = panel.column, seeds_text([len(seeds) for seeds in values.values()])
        first, control = (gaps(values, base, column) for base in (shown[0], CONTROL))
        _draw(each, {loss: defined(seeds) for loss, seeds in values.items()}, shown, first)
        each.set_title(f"{panel.spec.title}, {count}", loc="left")
        # Names are not broken.
        held = "; ".join(name_of(loss).replace(" ", "\u00a0") for loss in with_outcome(control, *UNSHOWN))
        note = fill(f"not significantly different from the control: {held}", 60, break_on_hyphens=False) if held else ""
        each.set_xlabel("\n".join(filter(None, [panel.spec.axis, note])), loc="left")
        if text := f"{sentence(first, shown[0])} {sentence(control, CONTROL)}".strip():
            findings.append(f"{panel.spec.title}, {column.header} ({count}): {text}")
    axes[0].set_yticks(range(len(shown)), [LOOKS[loss].name for loss in shown])
    axes[0].set_ylim(len(shown) - 0.4, -0.75)
    return finish(source.spec, figure, findings=" ".join(findings), model=source.panels[0].model)


def _draw(
    axes: Axes, values: Mapping[str, Mapping[int, float]], shown: Sequence[str], first: Mapping[str, Effect]
) -> None:
    for seed in sorted(set().union(*values.values())):
        at = [place for place, loss in enumerate(shown) if seed in values.get(loss, {})]
        axes.plot([values[shown[place]][seed] for place in at], at, color="#BBBBBB", linewidth=0.8, zorder=1)
    beside = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(1.03, -0.6, f"against {name_of(shown[0])} [95% interval]", color="#000000", **beside)
    for place, loss in enumerate(shown):
        if loss not in values:
            continue
        seeds = list(values[loss].values())
        axes.scatter(seeds, [place] * len(seeds), s=24, color=LOOKS[loss].colour, marker=LOOKS[loss].marker, zorder=2)
        mean = sum(seeds) / len(seeds)
        axes.vlines(mean, place - 0.28, place + 0.28, color=LOOKS[loss].colour, linewidth=2.5, zorder=3)
        if loss in first:
            colour = HELD if loss in with_outcome(first, *UNSHOWN) else "#000000"
            axes.text(1.03, place, first[loss].short, color=colour, **beside)
    axes.margins(x=0.08)
    axes.grid(axis="x")
