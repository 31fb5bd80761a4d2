"""What a figure shows (``config/figure``), and the runs of a table's rows or the files that it is drawn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from ntl.config.folders import CONFIG_DIR
from ntl.config.targets import check_target
from ntl.results.match import plan_block, row_records
from ntl.results.notes import model_name
from ntl.results.record import RunRecord
from ntl.results.spec import ColumnSpec, read_typed, table_spec
from ntl.results.table import Seeds, by_seed, constant_values
from ntl.system.errors import UserError, one_line_errors

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

    ``draw`` is the function that draws it, from the runs of its panels, from ``files`` under results/, or from both.
    ``caption`` has fields in braces, as ``{seeds}``, which that function fills in.
    """

    title: str = MISSING
    caption: str = MISSING
    draw: str = MISSING
    panels: list[PanelSpec] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    formats: list[str] = field(default_factory=lambda: ["pdf", "png"])
    name: str = ""


def load_figure_spec(name: str) -> FigureSpec:
    """Read and check a file of ``config/figure``. A mistake in it is a UserError that names the file and the key."""
    path = FIGURE_FOLDER / f"{name}.yaml"
    spec: FigureSpec = read_typed(FigureSpec, path)
    spec.name, spec.caption = name, " ".join(spec.caption.split())
    check_target(spec.draw, "ntl.results.figures", f"{path}: draw")
    return spec


def figure_specs() -> list[FigureSpec]:
    """All figures, by name."""
    return [load_figure_spec(path.stem) for path in sorted(FIGURE_FOLDER.glob("*.yaml"))]


def defined(scores: Mapping[int, float | None]) -> dict[int, float]:
    """The scores that can be drawn."""
    return {seed: score for seed, score in scores.items() if score is not None}


class Panel:
    """The rows that a panel names, and their runs.

    Attributes:
        plans: The rows, in the panel's order.
        runs: Loss -> seed -> record, of the rows that have any.
        model, place: The name of the model, and of the one it stands in for at this scale (the same where it does not).
    """

    def __init__(self, spec: PanelSpec, records: Sequence[RunRecord], where: str):
        self.spec, self.block = spec, table_spec(spec.table).blocks[spec.block]
        plans = plan_block(self.block, spec.scale, f"config/table/{spec.table}.yaml")
        by_label = {plan.row.label: plan for plan in plans if plan.overrides and plan.row.group == spec.group}
        if lost := [label for label in spec.rows if label not in by_label]:
            raise UserError(f"{where}: table {spec.table!r} has no row {lost[0]!r} there that runs")
        self.plans = [by_label[label] for label in spec.rows]
        found = {str(plan.pins.get("loss")): row_records(plan, records) for plan in self.plans}
        self.runs = {loss: have for loss, have in found.items() if have}
        self.model = ", ".join(dict.fromkeys(model_name(plan.pins["model"]) for plan in self.plans))
        self.place = ", ".join(dict.fromkeys(model_name(plan.place) for plan in self.plans))

    @property
    def column(self) -> ColumnSpec:
        """The table's column of the panel's metric."""
        return next(column for column in self.block.columns if column.metric == self.spec.metric)

    def scores(self, metric: str) -> dict[str, Seeds]:
        """Loss -> seed -> score, of the runs that have one; None where it is undefined."""
        return {loss: by_seed(metric, have) for loss, have in self.runs.items()}

    def constants(self, metric: str) -> list[list[float]]:
        """The scores of each constant answer of the table; the runs' records have them."""
        records = [record for have in self.runs.values() for record in have.values()]
        answers = [row.constant for row in self.block.rows if row.constant]
        found = [defined(constant_values(f"{metric}:{answer}", records)) for answer in answers]
        return [list(scores.values()) for scores in found if scores]


@dataclass(frozen=True)
class Source:
    """What a figure is drawn from; ``results`` is the folder that its files are named in."""

    spec: FigureSpec
    records: Sequence[RunRecord]
    results: Path

    @cached_property
    def panels(self) -> list[Panel]:
        where = f"config/figure/{self.spec.name}.yaml"
        return [Panel(panel, self.records, where) for panel in self.spec.panels]

    def file(self, name: str) -> Path:
        """One of the figure's ``files``."""
        return self.results / self.spec.files[name]

    def table(self, name: str) -> Any:
        """A CSV file as a DataFrame; lines that begin with # are comments."""
        import pandas as pd

        with one_line_errors("read", self.file(name)):
            return pd.read_csv(self.file(name), comment="#")
