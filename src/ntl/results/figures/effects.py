"""The README's figure: one dot per run, equal seeds joined, and each loss with its difference from the first one; and
what each comparison shows, claim by claim and task by task: in a band effects are too small to matter."""

import math
from collections.abc import Mapping, Sequence
from textwrap import fill

from matplotlib.axes import Axes

from ntl.results.build import build_table
from ntl.results.effects import Effect, Outcome, Seeds, effect
from ntl.results.figures.spec import Source, defined, table_spec
from ntl.results.figures.style import LOOKS, Drawing, finish, name_of, name_rows, panels
from ntl.results.render import seeds_text
from ntl.results.spec import BAND, ColumnSpec
from ntl.results.verdicts import Cell, Whose, judge, load_verdicts

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


# ---- all comparisons

COLOURS = {"small": "#0072B2", "published": "#D55E00"}
EDGE = 100.0  # percent; what lies beyond is drawn as an arrow


def _percent(cell: Cell) -> tuple[float, float, float]:
    """The gain and the ends of its interval: of an error in log points, of a rate in percent of the baseline's."""
    assert cell.effect is not None
    assert cell.effect.gain is not None
    assert cell.effect.summary.mean is not None
    unit = 100.0 if cell.effect.ratio else 100 * BAND / cell.effect.band if cell.effect.band else math.inf
    low, high = cell.effect.gain
    return unit * cell.effect.column.better.value * cell.effect.summary.mean, unit * low, unit * high


def draw_forest(source: Source) -> Drawing | None:
    """A line for each claim and task at the largest scale that ran. None where no comparison has an interval."""
    verdicts = load_verdicts()
    ran_at = {record.config.get("scale", {}).get("name") for record in source.records}
    specs = [
        table_spec(name) for name in sorted({cell.table for each in verdicts.claims for cell in each.cells} - {""})
    ]
    tables = [build_table(spec, source.records, scale) for spec in specs for scale in spec.scales if scale in ran_at]
    names, cells, first_of_claim, left = list[str](), list[Cell](), list[int](), 0
    for verdict in judge(verdicts, tables, source.results / "benchmarks"):
        if verdict.spec.whose is Whose.beyond:
            continue
        shown = [
            (task, cell) for task, cell in verdict.tasks.items() if cell.scale and cell.effect and cell.effect.gain
        ]
        tested = [(task, cell) for task, cell in shown if cell.outcome is not Outcome.not_testable]
        left += len(shown) - len(tested)
        first_of_claim += [len(cells)] if tested else []
        claim = f"{verdict.spec.name}: "
        names += [f"{claim * (not n)}{task}, {cell.scale}" for n, (task, cell) in enumerate(tested)]
        cells += [cell for _, cell in tested]
    if not cells:
        return None
    figure, (axes,) = panels(6.75, 1.0 + 0.17 * len(cells), 1)
    axes.axvspan(-100 * BAND, 100 * BAND, color="#EEEEEE")
    axes.axvline(0, color="#555555", linewidth=1)
    for place in first_of_claim[1:]:
        axes.axhline(place - 0.5, color="#CCCCCC", linewidth=0.5)
    for place, cell in enumerate(cells):
        colour = COLOURS["published" if cell.scale in ("real", "paper") else "small"]
        mean, *ends = _percent(cell)
        low, high = (min(max(end, -EDGE), EDGE) for end in ends)
        axes.plot([low, high], [place, place], "-", color=colour, linewidth=1.5)
        for end, inside, marker in ((ends[0], low, "<"), (ends[1], high, ">")):
            if end != inside:
                axes.plot([inside], [place], marker, color=colour, markersize=5, clip_on=False)
        if abs(mean) <= EDGE:
            axes.plot([mean], [place], "o", color=colour, markersize=4)
    for kind, colour in COLOURS.items():
        axes.plot([], [], "o-", color=colour, label=f"{kind} models")
    axes.set_xlim(-EDGE, EDGE)
    axes.grid(axis="x")
    axes.set_xlabel("gain, % (right: better)")
    name_rows(axes, names)
    counts = {outcome: sum(cell.outcome is outcome for cell in cells) for outcome in Outcome}
    found = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
    return finish(source.spec, figure, legend=2, n=str(len(cells)), found=found, left=str(left))
