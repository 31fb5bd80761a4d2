"""Each claim of ``config/claims.yaml`` judged by the records: its comparisons, and the verdict that follows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ntl.results.claims import ClaimSpec, EvidenceSpec, PlaceSpec, Says, TimingSpec, Whose, column_of
from ntl.results.compare import by_seed
from ntl.results.load import read_rows
from ntl.results.notes import model_name
from ntl.results.render.markdown import escape, line
from ntl.results.render.text import interval_text
from ntl.results.spec import ColumnSpec
from ntl.results.statistics import Paired, paired, sign_flip_p, summarize
from ntl.results.table import Block, Table, TableRow, prints_as_zero
from ntl.system.errors import UserError

BENCHMARKS = Path(__file__).resolve().parents[3] / "results" / "benchmarks"
RULE = (
    "Made by `make tables` from the run records, the benchmarks and `config/claims.yaml`; never edited by hand. "
    "**Confirmed**: every comparison that was run has its 95% interval wholly on the claim's side, and neither row is "
    '"not learnt", which is no better than a constant answer. **Refuted**: the interval of at least one such '
    "comparison lies wholly on the other side. **Untested**: all else, with the reason and how many comparisons have "
    "it. A difference is paired by seed, p is that of the exact sign-flip test, and neither is corrected for their "
    "number. A run at `scale=tiny` is of a small model in place of the paper's: the line names it, and says nothing of "
    "larger ones. The interval of a time is its quartiles."
)


class ClaimVerdict(Enum):
    confirmed = "confirmed"
    refuted = "refuted"
    untested = "untested"


@dataclass(frozen=True)
class Compared:
    """``row`` minus ``against`` at one scale, over the seeds of both; ``paired`` is None without such a seed.

    ``p`` is the exact sign-flip p, None below two seeds.
    """

    row: TableRow
    against: TableRow
    column: ColumnSpec
    against_metric: str
    paired: Paired | None
    p: float | None
    base_mean: float | None

    @property
    def name(self) -> str:
        """Which row is subtracted from which, and the metric."""
        row, against = (
            f"{each.spec.label} by {reading}" if (reading := metric.partition("@")[2]) else each.spec.label
            for each, metric in ((self.row, self.column.metric), (self.against, self.against_metric))
        )
        same = self.row is self.against
        return f"{row} minus {f'{against}, greedy' if same else against}, {self.header}"

    @property
    def header(self) -> str:
        return self.column.header.removesuffix(f", {self.column.metric.partition('@')[2]}")

    @property
    def text(self) -> str:
        """``-0.20 [-0.31, -0.09], n = 6, p = 0.0312``; empty without a number."""
        text = interval_text(self.paired.differences, self.column) if self.paired else ""
        if not text or self.paired is None:
            return ""
        return f"{text}, n = {self.paired.differences.n}" + ("" if self.p is None else f", p = {self.p:.3g}")


def find_block(table: Table, number: int, group: str = "") -> tuple[Block, str] | None:
    """Block ``number`` of the table's spec, and the name of ``group`` in it; None where the scale does not have it."""
    spec = table.spec.blocks[number]
    part = spec.scales.get(table.scale)
    if part is None or (part.groups and group and group not in part.groups):
        return None
    present = [block for block in table.spec.blocks if table.scale in block.scales]
    return table.blocks[present.index(spec)], part.labels.get(group, group)


def find_row(block: Block, group: str, label: str) -> TableRow:
    return next(row for row in block.rows if (row.spec.group, row.spec.label) == (group, label))


def compare(table: Table, place: PlaceSpec) -> Compared | None:
    """The comparison at a place that ``check_place`` accepted; None where the table's scale does not have it."""
    found = find_block(table, place.block, place.group)
    if found is None:
        return None
    row, against = (find_row(found[0], found[1], label) for label in (place.row, place.against))
    base = by_seed(place.against_metric or place.metric, against.records)
    result = paired(base, by_seed(place.metric, row.records))
    values = result.differences.values if result else ()
    common = [value for seed, value in base.items() if seed in row.records]
    return Compared(
        row,
        against,
        column_of(table.spec.blocks[place.block], place.metric, place.table),
        place.against_metric or place.metric,
        result,
        sign_flip_p(values) if len(values) > 1 else None,
        summarize(common).mean,
    )


@dataclass(frozen=True)
class Comparison:
    """One line of evidence. ``side``: True for the claim, False against it, None with the ``reason`` for neither.

    ``where`` is the scale, the source and the models, in Markdown. ``text`` is the interval with n and p, empty without
    a run. ``scale`` is empty for a benchmark.
    """

    scale: str
    source: str
    where: str
    name: str
    text: str
    side: bool | None
    reason: str = ""

    @property
    def ran(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True)
class Claim:
    spec: ClaimSpec
    comparisons: tuple[Comparison, ...]

    @property
    def verdict(self) -> ClaimVerdict:
        sides = [each.side for each in self.comparisons if each.ran]
        if False in sides:
            return ClaimVerdict.refuted
        return ClaimVerdict.confirmed if sides and all(sides) else ClaimVerdict.untested

    @property
    def why(self) -> str:
        """The first comparison that decides and the number of those on its side, or why none decides."""
        ran = [each for each in self.comparisons if each.ran]
        if self.verdict is ClaimVerdict.untested:
            reasons = Counter(each.reason or "for the claim" for each in ran)
            return ", ".join(f"{reason}: {n}" for reason, n in reasons.most_common()) or "no run"
        alike = self._deciding
        return f"{alike[0].text} ({len(alike)} of {len(ran)})"

    @property
    def _deciding(self) -> list[Comparison]:
        if self.verdict is ClaimVerdict.untested:
            return []
        return [each for each in self.comparisons if each.ran and each.side is (self.verdict is ClaimVerdict.confirmed)]

    @property
    def sentence(self) -> str:
        """The claim and what decides it, or how many of the comparisons that were run support it."""
        if self.verdict is ClaimVerdict.untested:
            sides = [each.side for each in self.comparisons if each.ran]
            count = f"Supported by {sides.count(True)} of {len(sides)} comparisons, contradicted by none"
            return f"{self.spec.text} {count if sides else 'No run yet'}."
        return f"{self.spec.text} {_cap(f'{self._deciding[0].name}: {self.why}')}."


def _side(low: float, high: float, bound: float) -> bool | None:
    """True where a gain is wholly above the bound, False where it is wholly below, None where it includes the bound."""
    return True if low > bound else False if high < bound else None


def judge(compared: Compared, says: Says, margin: float) -> tuple[bool | None, str]:
    """True for the claim, False against it; None and a short reason where the comparison does not decide."""
    summary = compared.paired.differences if compared.paired else None
    if summary is None:
        return None, "no run"
    if summary.mean is None:
        return None, "undefined"
    if False in (compared.row.learnt, compared.against.learnt):
        return None, "not learnt"
    if summary.low is None or summary.high is None:
        return None, "too few seeds"
    if not margin and prints_as_zero(summary.mean, compared.column):
        return None, "it prints as 0"
    low, high = sorted(compared.column.better.value * end for end in (summary.low, summary.high))
    bound = margin * abs(compared.base_mean or 0.0)
    side = _side(low, high, bound if says is Says.better else -bound)
    return side, "" if side is not None else f"interval holds {'the margin' if margin else '0'}"


def models(rows: Iterable[TableRow]) -> str:
    """The names of the models of these rows, each once; constants have none."""
    return ", ".join(dict.fromkeys(model_name(str(row.plan.pins["model"])) for row in rows if "model" in row.plan.pins))


def _record_comparisons(each: EvidenceSpec, tables: Sequence[Table], folder: str) -> list[Comparison]:
    found = []
    for table in tables:
        if table.name != each.table or (each.scales and table.scale not in each.scales):
            continue
        compared = compare(table, each)
        if compared is None:
            continue
        what = table.subject.partition(": ")[0]
        where = f"`{table.scale}`, [{what}]({folder}/{table.stem}.md), {models((compared.row, compared.against))}"
        side, reason = judge(compared, each.says, each.margin)
        margin = f", {each.says.value} {'within' if each.says is Says.no_worse else 'by'} {100 * each.margin:g}%"
        name = f"{compared.name}{margin if each.margin else ''}"
        found.append(Comparison(table.scale, what, where, name, compared.text, side, reason))
    return found


def read_timing(each: TimingSpec, where: str, folder: Path = BENCHMARKS) -> tuple[float, float, float, int]:
    """Value, low, high and rounds of the one line of the CSV file that it names.

    UserError, which begins with ``where``: no such file or column, no such line or several, a cell that is no number.
    """
    path = folder / each.benchmark
    if not path.is_file():
        raise UserError(f"{where}.benchmark: there is no {path}")
    lines = read_rows(path)
    numbers = (each.column, f"{each.column}_low", f"{each.column}_high", "rounds")
    if lost := [name for name in (*each.where, *numbers) if name not in (lines[0] if lines else {})]:
        raise UserError(f"{where}: {each.benchmark} has no column {lost[0]!r}")
    chosen = [row for row in lines if all(row[name] == value for name, value in each.where.items())]
    if len(chosen) != 1:
        named = ", ".join(f"{name}={value}" for name, value in each.where.items())
        raise UserError(f"{where}.where: {len(chosen)} lines of {each.benchmark} have {named}; one is expected")
    try:
        value, low, high, rounds = (float(chosen[0][name]) for name in numbers)
    except ValueError as error:
        raise UserError(f"{where}: {each.benchmark}: {error}") from error
    return value, low, high, int(rounds)


def _timing_comparison(each: TimingSpec, where: str, folder: Path) -> Comparison:
    value, low, high, rounds = read_timing(each, where, folder)
    side = _side(-high, -low, -1 - each.margin)
    text = f"{value:.2f} [{low:.2f}, {high:.2f}] times CE, {rounds} rounds"
    name = f"{each.what}, at most {1 + each.margin:g} times CE"
    reason = "" if side is not None else "interval holds the margin"
    link = f"[{each.benchmark}](benchmarks/{each.benchmark})"
    return Comparison("", each.benchmark, link, name, text, side, reason)


def judge_claims(
    specs: Sequence[ClaimSpec], tables: Sequence[Table], links: str = "tables", benchmarks: Path = BENCHMARKS
) -> list[Claim]:
    """Every claim with its comparisons; ``links`` is the folder of the tables as seen from the page."""
    found = []
    for spec in specs:
        lines = [comparison for each in spec.evidence for comparison in _record_comparisons(each, tables, links)]
        place = f"config/claims.yaml: {spec.name}: timings"
        lines += [_timing_comparison(each, f"{place}[{n}]", benchmarks) for n, each in enumerate(spec.timings)]
        found.append(Claim(spec, tuple(lines)))
    return found


def short_list(claims: Sequence[Claim], page: str) -> str:
    """A Markdown list for README: the verdict and a line each, with a link to ``page``."""
    lines = [f"[The evidence for each]({page}), with intervals, n and p.", ""]
    for whose, members in _by_owner(claims).items():
        lines += [f"{whose.value}:", ""]
        lines += [f"- **{each.verdict.value}**: {escape(each.sentence)}" for each in members]
        lines.append("")
    return "\n".join(lines).strip()


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


def _by_owner(claims: Sequence[Claim]) -> Mapping[Whose, list[Claim]]:
    return {whose: [each for each in claims if each.spec.whose is whose] for whose in Whose}


def page(claims: Sequence[Claim]) -> str:
    """``results/claims.md``: the rule, one row a claim, then each claim's comparisons; not run ones in one line."""
    lines = ["# Claims", "", RULE, ""]
    for whose, members in _by_owner(claims).items():
        lines += [f"## {whose.value}", "", line(["claim", "verdict", "why"]), line(["---"] * 3)]
        lines += [line([escape(c.spec.name), f"**{c.verdict.value}**", escape(c.why)]) for c in members]
        lines.append("")
    lines += ["## Evidence", ""]
    for claim in claims:
        lines += [f"### {_cap(claim.spec.name)}: {claim.verdict.value}", ""]
        lines += [f"{escape(claim.spec.text)} ({escape(claim.spec.source)})", ""]
        for each in claim.comparisons:
            if each.ran:
                side = each.reason if each.side is None else ("for the claim" if each.side else "against it")
                lines.append(f"- {each.where}: {escape(each.name)}: {escape(each.text)}: **{side}**")
        lacking: dict[str, dict[str, None]] = {}
        for each in claim.comparisons:
            if not each.ran:
                lacking.setdefault(each.scale, {})[each.source] = None
        if lacking:
            told = [f"`{scale}`, {', '.join(names)}" for scale, names in lacking.items()]
            lines.append(f"- no run: {'; '.join(told)}")
        lines.append("")
    return "\n".join(lines)
