"""What figures are drawn from: the runs of a table's rows, and files under results/."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ntl.results.compare import constant_values
from ntl.results.figures.spec import FigureSpec, PanelSpec
from ntl.results.match import RowPlan, plan_block, row_records
from ntl.results.notes import MODELS
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, TableSpec, load_table_spec
from ntl.system.errors import UserError

ByLoss = dict[str, dict[int, RunRecord]]


@dataclass(frozen=True)
class Source:
    """Everything there is to draw from; ``results`` is the folder that the files of a figure are named in."""

    records: Sequence[RunRecord]
    results: Path

    def file(self, spec: FigureSpec, name: str) -> Path:
        """One of the figure's ``files``."""
        if name not in spec.files:
            raise UserError(f"config/figure/{spec.name}.yaml: files.{name} is missing")
        return self.results / spec.files[name]


@cache
def _table(name: str) -> TableSpec:
    # Figures share few tables, and one takes a tenth of a second.
    return load_table_spec(name)


def panel_block(spec: FigureSpec, panel: PanelSpec) -> BlockSpec:
    """The part of a table that a panel is of. UserError: no such table, block or scale."""
    table = _table(panel.table)
    if not 0 <= panel.block < len(table.blocks) or panel.scale not in table.blocks[panel.block].scales:
        where = f"config/figure/{spec.name}.yaml: table {panel.table!r}"
        raise UserError(f"{where} has no block {panel.block} at scale {panel.scale!r}")
    return table.blocks[panel.block]


def panel_column(spec: FigureSpec, panel: PanelSpec) -> ColumnSpec:
    """The table's column of the panel's metric. UserError: it has none."""
    columns = {column.metric: column for column in panel_block(spec, panel).columns}
    if panel.metric not in columns:
        where = f"config/figure/{spec.name}.yaml: table {panel.table!r}"
        raise UserError(f"{where} has no column {panel.metric!r} in block {panel.block}")
    return columns[panel.metric]


def panel_plans(spec: FigureSpec, panel: PanelSpec) -> list[RowPlan]:
    """The rows that a panel names, in its order. UserError: no such table, block, scale or row."""
    where = f"config/figure/{spec.name}.yaml"
    plans = plan_block(panel_block(spec, panel), panel.scale, f"config/table/{panel.table}.yaml")
    by_label = {plan.row.label: plan for plan in plans if plan.overrides and plan.row.group == panel.group}
    if lost := [label for label in panel.rows if label not in by_label]:
        raise UserError(f"{where}: table {panel.table!r} has no row {lost[0]!r} there that runs")
    return [by_label[label] for label in panel.rows]


def runs_by_loss(spec: FigureSpec, panel: PanelSpec, source: Source) -> ByLoss:
    """loss -> seed -> record, for the panel's rows that have any, in its order.

    UserError where two rows have the same loss, or two records the same seed.
    """
    plans = panel_plans(spec, panel)
    losses = [str(plan.pins.get("loss")) for plan in plans]
    if len(set(losses)) < len(losses):
        raise UserError(f"config/figure/{spec.name}.yaml: two rows of table {panel.table!r} have one loss")
    found = {loss: row_records(plan, source.records) for loss, plan in zip(losses, plans, strict=True)}
    return {loss: dict(sorted(have.items())) for loss, have in found.items() if have}


def constants(spec: FigureSpec, panel: PanelSpec, runs: ByLoss) -> dict[str, list[float]]:
    """Label -> scores in the panel's metric, for the constant answers of the table; the runs' records have them."""
    records = [record for have in runs.values() for record in have.values()]
    found = {}
    for row in panel_block(spec, panel).rows:
        scores = constant_values(f"{panel.metric}:{row.constant}", records).values() if row.constant else ()
        if known := [score for score in scores if score is not None]:
            found[row.label] = known
    return found


def models(spec: FigureSpec, panel: PanelSpec) -> tuple[str, str]:
    """The name of the panel's model, and of the one it stands in for at this scale (the same where it does not)."""
    block = panel_block(spec, panel)
    pinned = [str(plan.pins["model"]) for plan in panel_plans(spec, panel) if "model" in plan.pins]
    places = {new: old for old, new in block.scales[panel.scale].replace.items()}
    replaced = [places.get(f"model={name}", f"model={name}").removeprefix("model=") for name in pinned]
    ran, stood = (", ".join(dict.fromkeys(MODELS.get(name, name) for name in names)) for names in (pinned, replaced))
    return ran, stood
