"""Where a gain comes from: the comparisons of some claims, as shares of what is compared with, task by task."""

from dataclasses import dataclass

from ntl.results.build import build_table
from ntl.results.claims import Compared, capitalized, compare, load_claims
from ntl.results.figures.spec import FigureSpec, Source
from ntl.results.figures.style import PAGE, Drawing, finish, name_rows, panels
from ntl.results.spec import load_table_spec
from ntl.results.table import Table
from ntl.system.errors import UserError

COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7")


@dataclass(frozen=True)
class Gain:
    """Of one comparison: the gain, and the ends of its 95 % interval, in percent of the mean of what it is against."""

    label: str
    mean: float
    low: float
    high: float
    n: int


def _gain(table: Table, compared: Compared) -> Gain | None:
    found = compared.paired.differences if compared.paired else None
    if found is None or found.mean is None or found.low is None or found.high is None or not compared.base_mean:
        return None
    if False in (compared.row.learnt, compared.against.learnt):
        return None
    unit = 100 * compared.column.better.value / abs(compared.base_mean)
    low, high = sorted((unit * found.low, unit * found.high))
    source = table.subject.partition(": ")[0]
    where = source if table.scale in source else f"{source}, {table.scale}"
    label = f"{where}: {compared.header.replace('interpolate ', '').replace(' (%)', '')}"
    return Gain(label, unit * found.mean, low, high, found.n)


def gains(spec: FigureSpec, source: Source) -> dict[str, tuple[list[Gain], int]]:
    """Claim -> the gains of its comparisons that ran, and how many of those have none to show (see the caption)."""
    claims = {claim.name: claim for claim in load_claims()}
    ran_at = {record.config.get("scale", {}).get("name") for record in source.records}
    if lost := [name for name in spec.claims if name not in claims]:
        raise UserError(f"config/figure/{spec.name}.yaml: claims: config/claims.yaml has no {lost[0]!r}")
    tables: dict[str, list[Table]] = {}
    found: dict[str, tuple[list[Gain], int]] = {}
    for name in spec.claims:
        ran: list[Gain | None] = []
        for each in claims[name].evidence:
            if each.table not in tables:
                table = load_table_spec(each.table)
                tables[each.table] = [
                    build_table(table, source.records, scale) for scale in table.scales if scale in ran_at
                ]
            chosen = [table for table in tables[each.table] if not each.scales or table.scale in each.scales]
            compared = [(table, one) for table in chosen if (one := compare(table, each)) and one.paired]
            ran += [_gain(table, one) for table, one in compared]
        shown = [gain for gain in ran if gain]
        found[name] = shown, len(ran) - len(shown)
    return found


def draw_gains(spec: FigureSpec, source: Source) -> Drawing | None:
    """One band for each claim. None where no comparison has an interval."""
    found = gains(spec, source)
    lines = [(name, gain) for name, (shown, _) in found.items() for gain in shown]
    if not lines:
        return None
    figure, (axes,) = panels(PAGE, 0.9 + 0.22 * len(lines), 1)
    axes.axvline(0, color="#555555", linewidth=1)
    for place, (name, gain) in enumerate(lines):
        colour = COLOURS[list(found).index(name)]
        first = place == 0 or lines[place - 1][0] != name
        axes.plot([gain.low, gain.high], [place, place], "-", color=colour, linewidth=1.5)
        axes.plot([gain.mean], [place], "o", color=colour, markersize=5, label=name if first else None)
    name_rows(axes, [f"{gain.label}, n = {gain.n}" for _, gain in lines])
    axes.set_xlabel("gain, % (right: better)")
    axes.grid(axis="x")
    texts = [
        f"{capitalized(name)}: "
        + (", ".join(f"{gain.mean:+.0f} [{gain.low:+.0f}, {gain.high:+.0f}] %" for gain in shown) or "none")
        for name, (shown, _) in found.items()
    ]
    left = sum(count for _, count in found.values())
    return finish(spec, figure, legend=4, left=str(left), findings=f"{'; '.join(texts)}.")
