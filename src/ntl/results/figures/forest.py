"""What each comparison shows, claim by claim and task by task; in a band effects are too small to matter."""

import math

from ntl.results.build import build_table
from ntl.results.effects import Outcome
from ntl.results.figures.spec import Source, table_spec
from ntl.results.figures.style import Drawing, finish, name_rows, panels
from ntl.results.spec import BAND
from ntl.results.verdicts import Cell, Whose, judge, load_verdicts

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
