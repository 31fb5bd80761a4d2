"""Where a gain comes from: the comparisons of some claims as shares of what is compared with, task by task."""

from dataclasses import dataclass

from matplotlib.axes import Axes

from ntl.results.build import build_table
from ntl.results.claims import Compared, EvidenceSpec, capitalized, compare_rows, load_claims, models
from ntl.results.figures.spec import Source, table_spec
from ntl.results.figures.style import Drawing, finish, name_rows, panels
from ntl.results.table import Table

COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7")
EDGE = 75.0  # percent; what lies beyond is drawn as an arrow


@dataclass(frozen=True)
class Gain:
    """Of one comparison: the gain, and the ends of its 95 % interval, in percent of the mean of what it is against.

    Attributes:
        setting: The data set, the model, the scale and the metric.
        against: The row compared with where it is another one and the answers are decoded otherwise, else empty.
    """

    setting: str
    against: str
    mean: float
    low: float
    high: float
    n: int

    @property
    def text(self) -> str:
        against = f" against {self.against}" if self.against else ""
        return f"{self.setting}{against} {self.mean:+.0f} [{self.low:+.0f}, {self.high:+.0f}] %, n = {self.n}"


def _gain(table: Table, place: EvidenceSpec, compared: Compared) -> Gain | None:
    found = compared.paired.differences if compared.paired else None
    if found is None or found.mean is None or found.low is None or found.high is None or not compared.base_mean:
        return None
    if False in (compared.row.learnt, compared.against.learnt):
        return None
    unit = 100 * compared.column.better.value / abs(compared.base_mean)
    low, high = sorted((unit * found.low, unit * found.high))
    data = table.spec.blocks[place.block].dataset.replace("_", " ")
    model = models((compared.row, compared.against)).removeprefix("a ")
    header = compared.header.replace("interpolate ", "").replace(" (%)", "")
    other = compared.row is not compared.against and compared.against_metric != compared.column.metric
    against = compared.against.spec.label if other else ""
    return Gain(f"{data}, {model}, {table.scale}: {header}", against, unit * found.mean, low, high, found.n)


def gains(source: Source) -> dict[str, tuple[list[Gain], int]]:
    """Claim -> the gains of its comparisons that ran, and how many of those have none to show (see the caption)."""
    claims = {claim.name: claim for claim in load_claims()}
    ran_at = {record.config.get("scale", {}).get("name") for record in source.records}
    names = {each.table for name in source.spec.claims for each in claims[name].evidence}
    tables = {
        name: [build_table(spec, source.records, scale) for scale in spec.scales if scale in ran_at]
        for name, spec in ((name, table_spec(name)) for name in sorted(names))
    }
    found: dict[str, tuple[list[Gain], int]] = {}
    for name in source.spec.claims:
        ran = [
            _gain(table, each, compared)
            for each in claims[name].evidence
            for table in tables[each.table]
            if not each.scales or table.scale in each.scales
            if (compared := compare_rows(table, each)) and compared.paired
        ]
        found[name] = [gain for gain in ran if gain], ran.count(None)
    return found


def draw_gains(source: Source) -> Drawing | None:
    """A panel for each claim, a line for each setting. None where no comparison has an interval."""
    found = gains(source)
    settings = sorted({gain.setting for shown, _ in found.values() for gain in shown})
    if not settings:
        return None
    figure, axes = panels(9.5, 1.1 + 0.3 * len(settings), len(found), sharey=True, sharex=True)
    for each, colour, (name, (shown, _)) in zip(axes, COLOURS, found.items(), strict=False):
        each.axvline(0, color="#555555", linewidth=1)
        for setting in settings:
            here = [gain for gain in shown if gain.setting == setting]
            for at, gain in enumerate(here):
                _draw(each, gain, settings.index(setting) + 0.3 * (at - (len(here) - 1) / 2), colour)
        each.set_title(name, loc="left")
        each.set_xlim(-EDGE, EDGE)
        each.grid(axis="both")
    name_rows(axes[0], settings)
    figure.supxlabel("gain, % of the mean of what is compared with (right: better)", fontsize=8)
    texts = [
        f"{capitalized(name)}: {'; '.join(gain.text for gain in shown) or 'none'}" for name, (shown, _) in found.items()
    ]
    left = sum(count for _, count in found.values())
    return finish(source.spec, figure, left=str(left), findings=f"{'. '.join(texts)}.")


def _draw(axes: Axes, gain: Gain, place: float, colour: str) -> None:
    low, high = (min(max(end, -EDGE), EDGE) for end in (gain.low, gain.high))
    axes.plot([low, high], [place, place], "-", color=colour, linewidth=1.5)
    for end, inside, marker in ((gain.low, low, "<"), (gain.high, high, ">")):
        if end != inside:
            axes.plot([inside], [place], marker, color=colour, markersize=5, clip_on=False)
    if abs(gain.mean) <= EDGE:
        face = "#FFFFFF" if gain.against else colour
        axes.plot([gain.mean], [place], "o", color=colour, markerfacecolor=face, markersize=5)
