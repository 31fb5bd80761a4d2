"""What the page's findings and tables show: each table, scored by each of the rules that records have metrics for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ntl.results.build import build_table
from ntl.results.record import RunRecord
from ntl.results.render.text import number, paper_difference, paper_text, value_parts
from ntl.results.spec import BlockSpec, PrimarySpec, TableSpec, load_table_spec, table_names
from ntl.results.table import Block, Cell, Primary, Table, TableRow, Verdict

# Name of the rule -> the suffix of its metrics, and what the page calls it.
RULES = {"default": "", "paper": "@paper", "expectation": "@expectation"}
RULE_LABELS = {"default": "our rules", "paper": "the paper's rules", "expectation": "expectation decoding"}
VIEWS = {"ours": "ours", "paper": "the paper's", "difference": "ours − the paper's", "all": "all three"}
ABSENT = "-"
FEW = 2  # tables that may all be open
# Kind of finding -> what it means, in the order of the page.
GROUPS = {
    "Shown": "the interval excludes 0, and the exact p is at most 0.05",
    "Shown by the interval alone": "it excludes 0, but the exact p is above 0.05",
    "Not shown": "the interval holds 0, or there are too few runs for one",
    "Not learnt": "no row of the comparison beats a constant answer, so that it says nothing of the losses",
}
_SHOWN, _BY_INTERVAL, _NOT_SHOWN, _NOT_LEARNT = GROUPS
_PLACES = {Verdict.better: _BY_INTERVAL, Verdict.worse: _BY_INTERVAL, Verdict.not_learnt: _NOT_LEARNT}


@dataclass(frozen=True)
class CellText:
    """The texts of a cell, ``ABSENT`` for what it does not have.

    ``interval`` is empty where there is none. ``difference`` is our mean minus the paper's. ``beside`` tells that the
    model is the paper's own, so that its number is shown with ours.
    """

    ours: str = ABSENT
    interval: str = ""
    paper: str = ABSENT
    difference: str = ABSENT
    best: bool = False
    beside: bool = False


def cell_text(cell: Cell, row: TableRow) -> CellText:
    """As in the Markdown page: ``-`` without a record, ``undefined`` for a metric that has no value.

    The number of seeds follows the interval only where it is not that of the row.
    """
    ours, interval = value_parts(cell, row)
    away = None if cell.summary is None or cell.summary.undefined else paper_difference(cell)
    difference = ABSENT if away is None else number(away, cell.column.format, "+")
    paper = paper_text(cell)
    return CellText(ours, interval, paper or ABSENT, difference, cell.best, bool(paper) and not row.stand_in)


def under(rule: str, spec: TableSpec) -> TableSpec:
    """The same table with every column scored by ``rule``, and with the paper's numbers for these columns."""

    def scored(metric: str) -> str:
        # A column that names its own decoding is scored by that.
        return metric if "@" in metric else metric + RULES[rule]

    def block(old: BlockSpec) -> BlockSpec:
        columns = [replace(column, metric=scored(column.metric)) for column in old.columns]
        rows = [replace(row, paper={scored(metric): each for metric, each in row.paper.items()}) for row in old.rows]
        return replace(old, columns=columns, rows=rows)

    def primary(old: PrimarySpec) -> PrimarySpec:
        return replace(old, metric=scored(old.metric))

    primary_at = {scale: primary(each) for scale, each in spec.primary_at.items()}
    return replace(spec, blocks=list(map(block, spec.blocks)), primary=primary(spec.primary), primary_at=primary_at)


@dataclass(frozen=True)
class RuledTable:
    """One table at one scale, computed under each of the rules, the default first."""

    by_rule: dict[str, Table]

    @property
    def default(self) -> Table:
        return self.by_rule["default"]

    @property
    def blocks(self) -> list[dict[str, Block]]:
        """Each block by rule."""
        every = zip(*(table.blocks for table in self.by_rule.values()), strict=True)
        return [dict(zip(self.by_rule, same, strict=True)) for same in every]


@dataclass(frozen=True)
class RuledRow:
    """A row under the default rule, each of its cells by rule, and the rules under which it is not learnt."""

    row: TableRow
    begins_group: bool
    cells: list[dict[str, CellText]]
    not_learnt: list[str]


def ruled_rows(blocks: Mapping[str, Block]) -> Iterator[RuledRow]:
    """The rows of one block by rule; a row that another rule has no number for is empty there."""
    found = {rule: {(row.spec.group, row.spec.label): row for row in each.rows} for rule, each in blocks.items()}
    group = ""
    for key, row in found["default"].items():
        same = {rule: rows.get(key) for rule, rows in found.items()}
        cells = [
            {rule: cell_text(each.cells[index], each) if each else CellText() for rule, each in same.items()}
            for index in range(len(row.cells))
        ]
        not_learnt = [rule for rule, each in same.items() if each and each.learnt is False]
        yield RuledRow(row, row.spec.group != group, cells, not_learnt)
        group = row.spec.group


def compute(records: Sequence[RunRecord], names: Sequence[str] = ()) -> tuple[list[RuledTable], list[Table]]:
    """The tables that have records, under every rule, and those that have none (``names`` empty: of all tables)."""
    filled, empty = [], []
    for spec in map(load_table_spec, names or table_names()):
        for scale in spec.scales:
            table = build_table(spec, records, scale)
            if table.num_records:
                others = {rule: build_table(under(rule, spec), records, scale) for rule in RULES if rule != "default"}
                filled.append(RuledTable({"default": table, **others}))
            else:
                empty.append(table)
    return filled, empty


def anchor(table: Table) -> str:
    """The id of the table's place in the page."""
    return f"{table.name}-{table.scale}"


def group_of(primary: Primary) -> str:
    """Which of ``GROUPS`` the comparison belongs to."""
    return _SHOWN if primary.confirmed else _PLACES.get(primary.verdict, _NOT_SHOWN)


def grouped(tables: Iterable[Table]) -> dict[str, list[Table]]:
    """All of ``GROUPS``, each with its tables in their order."""
    found: dict[str, list[Table]] = {title: [] for title in GROUPS}
    for table in tables:
        found[group_of(table.primary)].append(table)
    return found


def open_tables(tables: Sequence[RuledTable]) -> Sequence[RuledTable]:
    """The tables that are open at first: of many only the one with the strongest finding."""
    if len(tables) <= FEW:
        return tables
    strongest = next(table for found in grouped(ruled.default for ruled in tables).values() for table in found)
    return [ruled for ruled in tables if ruled.default is strongest]
