"""What a figure shows (``config/figure``), and the runs of a table's rows or the files that it is drawn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from omegaconf import MISSING

from ntl.config.folders import CONFIG_DIR
from ntl.config.targets import check_target
from ntl.results.build import by_seed, constant_values
from ntl.results.match import RowPlan, plan_block, row_records
from ntl.results.notes import model_name
from ntl.results.record import RunRecord
from ntl.results.spec import BlockSpec, ColumnSpec, load_table_spec, read_typed
from ntl.system.errors import UserError

FIGURE_FOLDER = CONFIG_DIR / "figure"


@dataclass
class PanelSpec:
    """Rows of a table, by label, in one of its blocks and groups at one scale: their runs are drawn.

    ``metric`` names an entry of a record's metrics, groups or curves; ``split`` is the test set, ``axis`` the label of
    the axis, ``threshold`` the value that the metric has to fall below.
    """

    table: str = MISSING
    rows: list[str] = MISSING
    scale: str = MISSING
    block: int = 0
    group: str = ""
    title: str = ""
    split: str = ""
    metric: str = ""
    axis: str = ""
    threshold: float = 0.0


@dataclass
class FigureSpec:
    """One file of ``config/figure``; its name is the figure's.

    ``draw`` is the function that draws it, from the runs of its panels, from ``files`` under results/, from both, or
    from the comparisons of ``claims``, named as in config/claims.yaml.
    ``caption`` has fields in braces, as ``{seeds}``, which that function fills in.
    """

    title: str = MISSING
    caption: str = MISSING
    draw: str = MISSING
    panels: list[PanelSpec] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    claims: list[str] = field(default_factory=list)
    formats: list[str] = field(default_factory=lambda: ["pdf", "png"])
    name: str = ""


def figure_names(folder: Path = FIGURE_FOLDER) -> list[str]:
    """The figures there are, sorted."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_figure_spec(name: str, folder: Path = FIGURE_FOLDER) -> FigureSpec:
    """Read and check ``<folder>/<name>.yaml``. A mistake in it is a UserError that names the file and the key."""
    path = folder / f"{name}.yaml"
    spec: FigureSpec = read_typed(FigureSpec, path)
    spec.name, spec.caption = name, " ".join(spec.caption.split())
    check_target(spec.draw, "ntl.results.figures", f"{path}: draw")
    if not spec.panels and not spec.files and not spec.claims:
        raise UserError(f"{path}: a figure is drawn from panels, files or claims: give one of them")
    if wrong := sorted(set(spec.formats) - {"pdf", "png", "svg"}):
        raise UserError(f"{path}: formats: {wrong[0]!r} is none of pdf, png, svg")
    return spec


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


# Read once: figures share few tables, and one takes a tenth of a second.
table_spec = cache(load_table_spec)


def panel_block(spec: FigureSpec, panel: PanelSpec) -> BlockSpec:
    """The part of a table that a panel is of. UserError: no such table, block or scale."""
    table = table_spec(panel.table)
    if not 0 <= panel.block < len(table.blocks) or panel.scale not in table.blocks[panel.block].scales:
        raise UserError(f"{_where(spec, panel)} has no block {panel.block} at scale {panel.scale!r}")
    return table.blocks[panel.block]


def _where(spec: FigureSpec, panel: PanelSpec) -> str:
    return f"config/figure/{spec.name}.yaml: table {panel.table!r}"


def panel_column(spec: FigureSpec, panel: PanelSpec) -> ColumnSpec:
    """The table's column of the panel's metric. UserError: it has none."""
    columns = {column.metric: column for column in panel_block(spec, panel).columns}
    if panel.metric not in columns:
        raise UserError(f"{_where(spec, panel)} has no column {panel.metric!r} in block {panel.block}")
    return columns[panel.metric]


def panel_plans(spec: FigureSpec, panel: PanelSpec) -> list[RowPlan]:
    """The rows that a panel names, in its order. UserError: no such table, block, scale or row."""
    plans = plan_block(panel_block(spec, panel), panel.scale, f"config/table/{panel.table}.yaml")
    by_label = {plan.row.label: plan for plan in plans if plan.overrides and plan.row.group == panel.group}
    if lost := [label for label in panel.rows if label not in by_label]:
        raise UserError(f"{_where(spec, panel)} has no row {lost[0]!r} there that runs")
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


def scores_by_loss(runs: ByLoss, metric: str) -> dict[str, dict[int, float | None]]:
    """loss -> seed -> score, of the runs that have one; None where it is undefined."""
    return {loss: by_seed(metric, have) for loss, have in runs.items()}


def defined(scores: Mapping[int, float | None]) -> dict[int, float]:
    """The scores that can be drawn."""
    return {seed: score for seed, score in scores.items() if score is not None}


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
    ran, stood = (", ".join(dict.fromkeys(model_name(name) for name in names)) for names in (pinned, replaced))
    return ran, stood
