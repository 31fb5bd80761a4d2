"""The tables of the page: each cell holds every rule and every view, and the page's style shows one of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ntl.config.table import ColumnSpec, TableSpec, load_table_spec, table_names
from ntl.results.record import RunRecord
from ntl.results.report.cells import ABSENT, NOTHING, RULES, cell_text, under
from ntl.results.report.markup import Html, element, join
from ntl.results.table import Block, Table, TableRow, build_table
from ntl.results.text import (
    DIFFERENCE_LEGEND,
    LEGEND,
    difference_text,
    header,
    not_in_records,
    paper_text,
)

VIEWS = {"ours": "ours", "paper": "the paper's", "difference": "ours − the paper's", "all": "all three"}
RULE_LABELS = {"default": "our rules", "paper": "the paper's rules", "expectation": "expectation decoding"}


@dataclass(frozen=True)
class Ruled:
    """One table at one scale: computed under each of the rules, the default first."""

    by_rule: dict[str, Table]

    @property
    def default(self) -> Table:
        return self.by_rule["default"]


def compute(records: Sequence[RunRecord], names: Sequence[str] = ()) -> tuple[list[Ruled], list[Table]]:
    """The tables that have records, under every rule, and those that have none (``names`` empty: of all tables)."""
    filled, empty = [], []
    for spec in map(load_table_spec, names or table_names()):
        for scale in spec.scales:
            table = build_table(spec, records, scale)
            if table.num_records:
                filled.append(_ruled(spec, table, records))
            else:
                empty.append(table)
    return filled, empty


def _ruled(spec: TableSpec, default: Table, records: Sequence[RunRecord]) -> Ruled:
    rest = {rule: build_table(under(rule, spec), records, default.scale) for rule in RULES if rule != "default"}
    return Ruled({"default": default, **rest})


def section(filled: Sequence[Ruled], empty: Sequence[Table]) -> Html:
    """The switches, every table that has records, and how to fill the others."""
    switches = element(
        "div",
        _switch("view", "Show", VIEWS),
        _switch("rule", "Scored by", RULE_LABELS),
        class_="switches",
    )
    anchors = [
        element("li", element("a", f"{ruled.default.title} ({ruled.default.scale})", href=f"#{_anchor(ruled.default)}"))
        for ruled in filled
    ]
    return element(
        "section",
        element("h2", "Tables", id="tables-title"),
        element("p", f"{LEGEND} A dash stands where no record has the value, or the paper prints none."),
        element(
            "p",
            "Rules: ours reads the answer as our parse rule says, the paper's as the original code does (last number, "
            "predictions clipped, a relative tolerance), both from the same outputs; expectation decoding takes the "
            "mean of the model's own distribution of numbers. A constant answer is the same however a model is "
            "decoded; under the paper's parse rule it was not scored. Columns that name their decoding keep it.",
        ),
        element("ul", *anchors, class_="anchors"),
        switches,
        *(_table(ruled) for ruled in filled),
        _without_records(empty),
        id="tables",
        aria_labelledby="tables-title",
        data_view="ours",
        data_rule="default",
    )


def _switch(name: str, legend: str, choices: dict[str, str]) -> Html:
    options = [
        element(
            "label",
            element("input", type="radio", name=name, value=value, checked=number == 0),
            element("span", text),
        )
        for number, (value, text) in enumerate(choices.items())
    ]
    return element("fieldset", element("legend", legend), element("div", *options, class_="segments"))


def _anchor(table: Table) -> str:
    return f"{table.name}-{table.scale}"


def _table(ruled: Ruled) -> Html:
    table = ruled.default
    note = element("p", " ".join(table.note.split())) if table.note else Html()
    blocks = zip(*(each.blocks for each in ruled.by_rule.values()), strict=True)
    return element(
        "article",
        element("h3", table.title, element("small", f" {table.name}, scale={table.scale}")),
        note,
        *(_block(dict(zip(ruled.by_rule, same, strict=True))) for same in blocks),
        id=_anchor(table),
    )


def _block(blocks: dict[str, Block]) -> Html:
    block = blocks["default"]
    found = {rule: {_key(row): row for row in each.rows} for rule, each in blocks.items()}
    lines = []
    group = ""
    for row in block.rows:
        if row.spec.group != group:
            group = row.spec.group
            lines.append(
                element("tr", element("th", group, colspan=len(block.columns) + 1, scope="rowgroup"), class_="group")
            )
        same = {rule: rows.get(_key(row)) for rule, rows in found.items()}
        cells = [_cell(same, index) for index in range(len(block.columns))]
        lines.append(element("tr", element("th", row.spec.label, scope="row"), *cells))
    told = (*block.warnings, *block.notes)
    notes = element("ul", *(element("li", note) for note in told), class_="notes") if told else Html()
    return join(
        element("h4", block.title),
        _box(block.title, _head(block.columns), element("tbody", *lines)),
        notes,
        *(_differences(each, rule) for rule, each in blocks.items()),
        _list("not in the records", not_in_records(block)),
        _commands(block),
    )


def _head(columns: Sequence[ColumnSpec]) -> Html:
    # The arrow stays with the last word.
    names = [header(column).replace(" ↑", "\u00a0↑").replace(" ↓", "\u00a0↓") for column in columns]
    return element("thead", element("tr", element("td"), *(element("th", name, scope="col") for name in names)))


def _box(name: str, *parts: str) -> Html:
    """A table in a box that scrolls, so that the page does not; the keyboard reaches it."""
    return element("div", element("table", *parts), class_="scroll", tabindex=0, role="region", aria_label=name)


def _key(row: TableRow) -> tuple[str, str]:
    return row.spec.group, row.spec.label


def _cell(rows: dict[str, TableRow | None], index: int) -> Html:
    papers = (paper_text(row.cells[index]) for row in rows.values() if row)
    paper = _view("paper", next(papers, "") or ABSENT)
    ruled = []
    for rule, row in rows.items():
        text = cell_text(row.cells[index], row) if row else NOTHING
        value = element("strong" if text.best else "span", text.ours)
        small = " ".join(part for part in (text.interval, text.n) if part)
        ours = element("span", value, element("small", small) if small else Html(), class_="view view-ours")
        ruled.append(element("span", ours, paper, _view("difference", text.difference), class_=f"rule rule-{rule}"))
    return element("td", *ruled)


def _view(name: str, text: str) -> Html:
    return element("span", text, class_=f"view view-{name}" + (" absent" if text == ABSENT else ""))


def _differences(block: Block, rule: str) -> Html:
    if not block.differences:
        return Html()
    lines = []
    for difference in block.differences:
        cells = [
            element("td", element("strong" if cell.bold else "span", difference_text(cell)))
            for cell in difference.cells
        ]
        lines.append(element("tr", element("th", difference.name, scope="row"), *cells))
    return element(
        "details",
        element("summary", f"Rows against each other, {RULE_LABELS[rule]}"),
        element("p", DIFFERENCE_LEGEND),
        _box(f"{block.title}: differences", _head(block.columns), element("tbody", *lines)),
        class_=f"rule rule-{rule}",
    )


def _commands(block: Block) -> Html:
    return _list("to run", [row.command for row in block.rows if row.command], code=True)


def _list(name: str, lines: Sequence[str], code: bool = False) -> Html:
    if not lines:
        return Html()
    body = element("pre", "\n".join(lines)) if code else element("ul", *(element("li", line) for line in lines))
    return element("details", element("summary", f"{len(lines)} rows: {name}"), body)


def _without_records(empty: Sequence[Table]) -> Html:
    if not empty:
        return Html()
    lines = [f"python scripts/reproduce.py table={table.name} scale={table.scale}" for table in empty]
    items = [element("li", f"{table.title} ", element("code", f"{table.name}, {table.scale}")) for table in empty]
    return element(
        "article",
        element("h3", "Tables without records"),
        element("ul", *items, class_="empty"),
        element("details", element("summary", "Commands that fill them"), element("pre", "\n".join(lines))),
        id="without-records",
    )
