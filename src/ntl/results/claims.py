"""The claims of ``config/claims.yaml``, the comparisons that decide them, and the verdict on each."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from omegaconf import MISSING

from ntl.config.folders import CONFIG_DIR, RESULTS, choices
from ntl.evaluation.metrics import Better
from ntl.results.build import by_seed
from ntl.results.load import read_rows
from ntl.results.notes import model_name
from ntl.results.render.text import interval_text
from ntl.results.spec import BlockSpec, ColumnSpec, PairSpec, TableSpec, check_pair, load_table_spec, read_typed
from ntl.results.statistics import Paired, paired, sign_flip_p, summarize
from ntl.results.table import Row, Table, prints_as_zero
from ntl.system.errors import UserError

CLAIMS = CONFIG_DIR / "claims.yaml"
BENCHMARKS = RESULTS / "benchmarks"


class ClaimSource(Enum):
    paper = "The paper's claims"
    ours = "Where the gain comes from"
    beyond = "Beyond the paper"


class Hypothesis(Enum):
    """What is claimed of ``row`` minus ``against``: better by more than the margin, or worse by less."""

    better = "better"
    no_worse = "no worse"


@dataclass
class EvidenceSpec(PairSpec):
    """A comparison of two rows of a ``table``, and what the claim ``says`` of it.

    Their ``metric`` may be read otherwise than its column: ``test/rmse@expectation``; ``against_metric`` is that of
    ``against``, empty for the same. ``margin`` is a share of the mean of ``against``. ``scales`` empty: all of the
    table's.
    """

    table: str = MISSING
    against_metric: str = ""
    says: Hypothesis = MISSING
    margin: float = 0.0
    scales: list[str] = field(default_factory=list)


@dataclass
class TimingSpec:
    """A ratio in a CSV file of ``results/benchmarks``, at most 1 + ``margin``: the one line that has ``where``.

    ``<column>_low`` and ``<column>_high`` are the interval of ``column``, and ``rounds`` is its n.
    """

    benchmark: str = MISSING
    where: dict[str, str] = MISSING
    column: str = "ratio"
    what: str = ""
    margin: float = 0.0


@dataclass
class ClaimSpec:
    """``name`` in a word or two, ``text`` as one sentence, ``source``: where it is claimed."""

    name: str = MISSING
    text: str = MISSING
    source: str = MISSING
    whose: ClaimSource = MISSING
    evidence: list[EvidenceSpec] = field(default_factory=list)
    timings: list[TimingSpec] = field(default_factory=list)


@dataclass
class ClaimsSpec:
    claims: list[ClaimSpec] = MISSING


def load_claims(path: Path = CLAIMS, known: Iterable[TableSpec] = ()) -> list[ClaimSpec]:
    """Read and check the claims; ``known`` are tables that need not be read again.

    UserError, in one line, names the file, the key and what is wrong there.
    """
    spec: ClaimsSpec = read_typed(ClaimsSpec, path)
    tables = {table.name: table for table in known}
    for claim in spec.claims:
        for index, each in enumerate(claim.evidence):
            where = f"{path}: {claim.name}: evidence[{index}]"
            if each.table not in tables:
                tables[each.table] = load_table_spec(each.table)
            block = check_pair(each, tables[each.table], where)
            for metric in (each.metric, each.against_metric or each.metric):
                column_of(block, metric, where)
            if lost := [scale for scale in each.scales if scale not in tables[each.table].scales]:
                raise UserError(f"{where}.scales: table {each.table!r} has no scale {lost[0]!r}")
            if each.says is Hypothesis.no_worse and not each.margin:
                raise UserError(f"{where}.margin: no_worse takes a share of the mean, above 0")
    return spec.claims


def column_of(block: BlockSpec, metric: str, where: str) -> ColumnSpec:
    """The column of a metric; for a reading without a column of its own, that of the metric without the reading."""
    columns = {column.metric: column for column in block.columns if column.better is not Better.neither}
    name, _, reading = metric.partition("@")
    if metric in columns:
        return columns[metric]
    if name not in columns or reading not in choices("beside"):
        raise UserError(f"{where}: {metric!r} is no column with a good end: {', '.join(columns)}")
    old = columns[name]
    return ColumnSpec(metric, f"{old.header}, {reading}", old.format, old.paper_format, old.short)


def capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


VERDICTS = CONFIRMED, REFUTED, UNDECIDED, UNTESTED = "confirmed", "refuted", "undecided", "untested"


@dataclass(frozen=True)
class Compared:
    """``row`` minus ``against`` at one scale, over the seeds of both; ``paired`` is None without such a seed.

    ``p`` is the exact sign-flip p, None below two seeds.
    """

    row: Row
    against: Row
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
        """``-0.20 [-0.31, -0.09], n = 6, p = 0.0312``; empty without a run of both."""
        if self.paired is None:
            return ""
        if undefined := self.paired.differences.undefined:
            return f"undefined for {undefined} seed{'s' * (undefined > 1)}"
        text = interval_text(self.paired.differences, self.column)
        return f"{text}, n = {self.paired.differences.n}" + ("" if self.p is None else f", p = {self.p:.3g}")


def compare_rows(table: Table, place: EvidenceSpec) -> Compared | None:
    """The comparison at a place that ``load_claims`` accepted; None where the table's scale does not have it."""
    spec = table.spec.blocks[place.block]
    part = spec.scales.get(table.scale)
    if part is None or (part.groups and place.group and place.group not in part.groups):
        return None
    present = [block for block in table.spec.blocks if table.scale in block.scales]
    group, rows = part.labels.get(place.group, place.group), table.blocks[present.index(spec)].rows
    by_label = {row.spec.label: row for row in rows if row.spec.group == group}
    row, against, against_metric = by_label[place.row], by_label[place.against], place.against_metric or place.metric
    base = by_seed(against_metric, against.records)
    result = paired(base, by_seed(place.metric, row.records))
    values = result.differences.values if result else ()
    p = sign_flip_p(values) if len(values) > 1 else None
    mean = summarize([value for seed, value in base.items() if seed in row.records]).mean
    return Compared(row, against, column_of(spec, place.metric, place.table), against_metric, result, p, mean)


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


@dataclass(frozen=True)
class Claim:
    spec: ClaimSpec
    comparisons: tuple[Comparison, ...]

    @property
    def ran(self) -> list[Comparison]:
        """The comparisons that were run."""
        return [each for each in self.comparisons if each.text]

    @property
    def verdict(self) -> str:
        sides = [each.side for each in self.ran]
        return UNTESTED if not sides else REFUTED if False in sides else CONFIRMED if all(sides) else UNDECIDED

    @property
    def why(self) -> str:
        """The first comparison that decides and the number of those on its side, or why none decides.

        Of more than three reasons the two most common are named, and the rest counted: the page lists each comparison.
        """
        if self.verdict == UNTESTED:
            return "no run"
        if self.verdict == UNDECIDED:
            reasons = Counter(each.reason or "for the claim" for each in self.ran).most_common()
            if len(reasons) > 3:
                reasons[2:] = [("other", sum(n for _, n in reasons[2:]))]
            return ", ".join(f"{reason}: {n}" for reason, n in reasons)
        deciding = self._deciding
        return f"{deciding[0].text} ({len(deciding)} of {len(self.ran)})"

    @property
    def _deciding(self) -> list[Comparison]:
        return [each for each in self.ran if each.side is (self.verdict == CONFIRMED)]

    @property
    def sentence(self) -> str:
        """The claim and what decides it, or how many of the comparisons that were run support it."""
        if self.verdict == UNTESTED:
            return f"{self.spec.text} No run yet."
        if self.verdict == UNDECIDED:
            support = f"{sum(each.side is True for each in self.ran)} of {len(self.ran)} comparisons"
            return f"{self.spec.text} Supported by {support}, contradicted by none."
        return f"{self.spec.text} {capitalized(self._deciding[0].name)}: {self.why}."


def _side(low: float, high: float, bound: float) -> bool | None:
    """True where a gain is wholly above the bound, False where it is wholly below, None where it includes the bound."""
    return True if low > bound else False if high < bound else None


def judge(compared: Compared, says: Hypothesis, margin: float) -> tuple[bool | None, str]:
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
    side = _side(low, high, bound if says is Hypothesis.better else -bound)
    return side, "" if side is not None else f"interval holds {'the margin' if margin else '0'}"


def models(rows: Iterable[Row]) -> str:
    """The names of the models of these rows, each once; constants have none."""
    return ", ".join(dict.fromkeys(model_name(str(row.plan.pins["model"])) for row in rows if "model" in row.plan.pins))


def _record_comparisons(each: EvidenceSpec, tables: Sequence[Table]) -> list[Comparison]:
    found = []
    for table in tables:
        wanted = table.name == each.table and (not each.scales or table.scale in each.scales)
        if not wanted or (compared := compare_rows(table, each)) is None:
            continue
        what = table.parts[0]
        where = f"`{table.scale}`, [{what}](tables/{table.stem}.md), {models((compared.row, compared.against))}"
        side, reason = judge(compared, each.says, each.margin)
        margin = f", {each.says.value} {'within' if each.says is Hypothesis.no_worse else 'by'} {100 * each.margin:g}%"
        name = f"{compared.name}{margin if each.margin else ''}"
        found.append(Comparison(table.scale, what, where, name, compared.text, side, reason))
    return found


def _timing_comparison(each: TimingSpec, where: str, folder: Path) -> Comparison:
    """UserError: no such file, not one line in it as is named, or a column that it lacks."""
    lines = read_rows(folder / each.benchmark)
    try:
        (chosen,) = (row for row in lines if all(row[name] == value for name, value in each.where.items()))
        value, low, high = (float(chosen[f"{each.column}{end}"]) for end in ("", "_low", "_high"))
        text = f"{value:.2f} [{low:.2f}, {high:.2f}] times CE, {chosen['rounds']} rounds"
    except (KeyError, ValueError) as error:
        raise UserError(f"{where}: {each.benchmark}: not one line with these columns ({error})") from error
    side = _side(-high, -low, -1 - each.margin)
    name = f"{each.what}, at most {1 + each.margin:g} times CE"
    reason = "" if side is not None else "interval holds the margin"
    return Comparison("", each.benchmark, f"[{each.benchmark}](benchmarks/{each.benchmark})", name, text, side, reason)


def judge_claims(specs: Sequence[ClaimSpec], tables: Sequence[Table], benchmarks: Path = BENCHMARKS) -> list[Claim]:
    """Every claim with its comparisons, whose links lead from ``results/``."""
    found = []
    for spec in specs:
        lines = [comparison for each in spec.evidence for comparison in _record_comparisons(each, tables)]
        place = f"config/claims.yaml: {spec.name}: timings"
        lines += [_timing_comparison(each, f"{place}[{n}]", benchmarks) for n, each in enumerate(spec.timings)]
        found.append(Claim(spec, tuple(lines)))
    return found
