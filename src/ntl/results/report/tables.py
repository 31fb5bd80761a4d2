"""The tables of the page: each cell holds every rule and every view, and the page's style shows one of them.

Of a scale with many tables one stands open, and the others unfold; a link to one of them opens it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ntl.results.build import build_table
from ntl.results.record import RunRecord
from ntl.results.render.text import (
    DIFFERENCE_LEGEND,
    LEGEND,
    difference_text,
    header,
    not_in_records,
    not_learnt_legend,
    seeds_text,
)
from ntl.results.report.cells import ABSENT, NOTHING, RULES, cell_text, under
from ntl.results.report.findings import anchor, group_of, grouped
from ntl.results.report.markup import Html, element, join
from ntl.results.spec import ColumnSpec, TableSpec, load_table_spec, table_names
from ntl.results.table import Block, Table, TableRow

VIEWS = {"ours": "ours", "paper": "the paper's", "difference": "ours − the paper's", "all": "all three"}
FEW = 2  # tables of a scale that may all stand open
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
    """The switches, every table that has records, scale by scale, and how to fill the others."""
    switches = element(
        "div",
        _switch("view", "Show", VIEWS),
        _switch("rule", "Scored by", RULE_LABELS),
        class_="switches",
    )
    by_scale: dict[str, list[Ruled]] = {}
    for ruled in filled:
        by_scale.setdefault(ruled.default.scale, []).append(ruled)
    return element(
        "section",
        element("h2", "Tables", id="tables-title"),
        _legend(),
        switches,
        *(_scale(scale, tables) for scale, tables in by_scale.items()),
        _without_records(empty),
        id="tables",
        aria_labelledby="tables-title",
        data_view="ours",
        data_rule="default",
    )


def _legend() -> Html:
    return element(
        "details",
        element("summary", "Mean ± standard deviation over seeds [95% t interval]; how to read the tables"),
        element("p", f"{LEGEND} A dash stands where no record has the value, or the paper prints none."),
        element(
            "p",
            "The paper's number stands in a second line where the model is the paper's own. Where a small one stands "
            "in for it, the switch shows it.",
        ),
        element(
            "p",
            "Rules: ours reads the answer as our parse rule says, the paper's as the original code does (last number, "
            "predictions clipped, a relative tolerance), both from the same outputs; expectation decoding takes the "
            "mean of the model's own distribution of numbers. A constant answer is the same however a model is "
            "decoded; under the paper's parse rule it was not scored. Columns that name their decoding keep it.",
        ),
    )


def _scale(scale: str, tables: Sequence[Ruled]) -> Html:
    """All tables of a scale. Of many only the one with the strongest finding stands open."""
    ranked = [table for found in grouped(ruled.default for ruled in tables).values() for table in found]
    shown = tables if len(tables) <= FEW else [ruled for ruled in tables if ruled.default is ranked[0]]
    return join(
        element("h3", f"scale={scale}", class_="scale"),
        *(_table(ruled, ruled in shown) for ruled in tables),
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


def _table(ruled: Ruled, shown: bool) -> Html:
    table = ruled.default
    note = element("p", " ".join(table.note.split())) if table.note else Html()
    blocks = zip(*(each.blocks for each in ruled.by_rule.values()), strict=True)
    mark = element("small", f" ({group_of(table.primary).lower()})")
    body = element(
        "div",
        *(element("p", each.finding, class_=f"finding rule rule-{rule}") for rule, each in ruled.by_rule.items()),
        *(_block(dict(zip(ruled.by_rule, same, strict=True))) for same in blocks),
        note,
        id=anchor(table),
    )
    return element(
        "article", element("details", element("summary", element("h4", table.title, mark)), body, open=shown)
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
        lines.append(element("tr", _label(same, block), *cells))
    warnings = element("ul", *(element("li", each) for each in block.warnings)) if block.warnings else Html()
    return join(
        element("h5", f"{block.title}, {seeds_text(block.seeds_per_row)}"),
        _box(block.title, _head(block.columns), element("tbody", *lines)),
        element("p", not_learnt_legend(block).strip()) if not_learnt_legend(block) else Html(),
        warnings,
        _list("notes", block.notes),
        *(_differences(each, rule) for rule, each in blocks.items()),
        _list("rows: not in the records", not_in_records(block)),
        _list("rows: to run", [row.command for row in block.rows if row.command], code=True),
    )


def _label(rows: dict[str, TableRow | None], block: Block) -> Html:
    """Of a row: what it is, how many seeds it has where rows differ in that, and what it did not learn."""
    row = next(row for row in rows.values() if row)
    differ = not row.spec.constant and len(set(block.seeds_per_row)) > 1
    marks = [
        element("small", "not learnt", class_=f"rule rule-{rule}")
        for rule, each in rows.items()
        if each and each.learnt is False
    ]
    n = element("small", f"n = {len(row.records)}") if differ else Html()
    # "λ = 0.3" stays in one line.
    return element("th", row.spec.label.replace(" = ", "\u00a0=\u00a0"), n, *marks, scope="row")


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
    ruled = []
    for rule, row in rows.items():
        text = cell_text(row.cells[index], row) if row else NOTHING
        value = element("strong" if text.best else "span", text.ours)
        interval = element("small", text.interval) if text.interval else Html()
        beside = element("small", f"paper {text.paper}", class_="beside") if text.beside else Html()
        ours = element("span", value, interval, beside, class_="view view-ours")
        views = (ours, _view("paper", text.paper), _view("difference", text.difference))
        ruled.append(element("span", *views, class_=f"rule rule-{rule}"))
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


def _list(name: str, lines: Sequence[str], code: bool = False) -> Html:
    if not lines:
        return Html()
    body = element("pre", "\n".join(lines)) if code else element("ul", *(element("li", line) for line in lines))
    return element("details", element("summary", f"{len(lines)} {name}"), body)


def _without_records(empty: Sequence[Table]) -> Html:
    if not empty:
        return Html()
    items = [element("li", f"{table.title} ", element("code", f"{table.name}, {table.scale}")) for table in empty]
    lines = [f"python scripts/reproduce.py table={table.name} scale={table.scale}" for table in empty]
    return element(
        "article",
        element(
            "details",
            element("summary", element("h4", "Tables without records", element("small", f" {len(empty)}"))),
            element("ul", *items, class_="empty"),
            element("p", "Commands that fill them:"),
            element("pre", "\n".join(lines)),
        ),
        id="without-records",
    )
