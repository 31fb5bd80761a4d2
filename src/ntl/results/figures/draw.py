"""What figures share: their look, the runs of a table's rows, grids, their files."""

import math
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image

from ntl.config.folders import CONFIG_DIR, read_yaml
from ntl.results.match import plan_block, row_records
from ntl.results.record import RunRecord
from ntl.results.render import seeds_text
from ntl.results.spec import SPLITS, VerdictsSpec, load_verdicts, table_spec
from ntl.results.table import Table, build_table
from ntl.results.verdicts import Verdict, judge
from ntl.system.errors import one_line_errors
from ntl.system.files import atomic_writer

COLUMN, PAGE = 3.25, 6.75  # inches: one column and the whole width of an ICML page
Look = namedtuple("Look", "name colour marker line")
LOOKS = {loss: Look(**look) for loss, look in read_yaml(CONFIG_DIR / "looks.yaml").items()}
# Figures drawn and written in a ``with style()`` have our settings, whatever the user's own are.
style = partial(matplotlib.rc_context, fname=CONFIG_DIR / "figure" / "figures.mplstyle")
# For imshow: first row below, and cells as they are; resampled ones would be megabytes of a PDF.
RASTER: dict[str, Any] = {"origin": "lower", "interpolation": "none", "cmap": "viridis_r"}
# Without the time and the version that a file was written by.
NO_METADATA = {
    "pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    "png": {"Software": None},
}
THREE = ("CE", "CE + digit CE (control)", "NTL-WAS, λ = 0.3")  # rows of most tables
Runs = Mapping[str, Mapping[int, RunRecord]]  # loss -> seed -> record
Drawn = tuple[Figure, dict[str, Any]]  # a figure, and what its title and caption in config/figures.md have in braces


class NoRuns(Exception):
    """No record has what a figure is drawn from."""


@dataclass(frozen=True)
class Source:
    """What figures are drawn from: run records, and files of the folder ``results``."""

    records: Sequence[RunRecord]
    results: Path

    @cached_property
    def spec(self) -> VerdictsSpec:
        return load_verdicts()

    @cached_property
    def tables(self) -> list[Table]:
        """Of all claims and squares, at the scales that ran."""
        ran_at = {record.config.get("scale", {}).get("name") for record in self.records}
        names = {part.table for part in (*chain(*(claim.cells for claim in self.spec.claims)), *self.spec.squares)}
        specs = [*map(table_spec, sorted(names - {""}))]
        return [build_table(spec, self.records, scale) for spec in specs for scale in spec.scales if scale in ran_at]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """On all claims, by the tables at the scales that ran."""
        return judge(self.spec, self.tables, self.records, self.results / "benchmarks")

    def runs(self, table: str, scale: str, labels: Sequence[str] = THREE, block: int = 0, group: str = "") -> Runs:
        """Of the rows with these labels, in this order. NoRuns: none has a record. KeyError: there is no such row."""
        plans = plan_block(table_spec(table).blocks[block], scale)
        rows = {row.spec.label: row for row in plans if row.pins and row.spec.group == group}
        runs = {rows[label].pins.get("loss", ""): row_records(rows[label], self.records) for label in labels}
        if not any(runs.values()):
            raise NoRuns
        return {loss: have for loss, have in runs.items() if have}

    def table(self, name: str) -> Any:
        """A CSV file as a DataFrame; lines that begin with # are comments."""
        with one_line_errors("read", self.results / name):
            return pd.read_csv(self.results / name, comment="#")


def compared(of_losses: Mapping[str, Any]) -> tuple[Any, Any]:
    """What CE and NTL-WAS have, which a title compares. NoRuns: one of them has none."""
    if not {"ce", "ntl_was"} <= of_losses.keys():
        raise NoRuns
    return of_losses["ce"], of_losses["ntl_was"]


def seeds_of(runs: Runs) -> str:
    return seeds_text([*map(len, runs.values())])


def name_of(loss: str) -> str:
    """The name of a loss in a line of text."""
    return LOOKS[loss].name.replace("\n", " ")


def panels(width: float, height: float, columns: int, rows: int = 1, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of ``width`` × ``height`` inches, and its panels row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def set_title(figure: Figure, title: str) -> None:
    """Above all panels, which keep their size; "" for none."""
    if lines := wrap(title, int(13.5 * figure.get_figwidth())):
        figure.set_figheight(figure.get_figheight() + 0.17 * len(lines))
        figure.suptitle("\n".join(lines), x=0.01, ha="left")


def name_rows(axes: Axes, names: list[str], top: float = -0.5) -> None:
    """A line of the panel for each name, the first at the top."""
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, top))


def legend(figure: Figure, columns: int) -> None:
    """Of the first panel, below all of them."""
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def group_values(records: Mapping[int, RunRecord], split: str, metric: str) -> Any:
    """A DataFrame: a row for each seed, a column for each group that has the metric, sorted; NaN where undefined."""
    by_seed = {
        seed: {group: values.get(metric) for group, values in record.groups.get(split, {}).items()}
        for seed, record in records.items()
    }
    return pd.DataFrame(by_seed, dtype=float).T.dropna(axis=1, how="all").sort_index(axis=1)


def draw_grid(
    axes: Axes, have: Mapping[int, RunRecord], metric: str, mark: str, over: str, norm: Normalize, **options: Any
) -> int:
    """Of groups whose names have two numbers: one value over all seeds; how many of its rows training had.

    Rows and columns are the first and the second numbers, ascending; NaN where there is no such group.
    """
    inside, beyond = (group_values(have, split, metric).agg(over) for split in SPLITS)
    values, form = pd.concat([inside, beyond]), options.pop("form", "{:.0f}")
    values.index = pd.MultiIndex.from_tuples([tuple(map(int, name.split(mark))) for name in values.index])
    axes.imshow(grid := values.unstack(), norm=norm, **RASTER, **options)
    for (row, column), value in np.ndenumerate(grid):
        if not math.isnan(value):
            # viridis reversed: dark where the value is large.
            colour, text = "#FFFFFF" if norm(value) > 0.5 else "#000000", form.format(value)
            axes.text(column, row, text if value < 1000 else ">999", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(grid.columns)), map(str, grid.columns))
    axes.set_yticks(range(len(grid.index)), map(str, grid.index))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return len({name.split(mark)[0] for name in inside.index})


def write(figure: Figure, path: Path) -> Path:
    """In the format of the path, in the ``style`` it was drawn in; a PNG in 256 colours, a third of the size."""
    kind, drawn = path.suffix[1:], BytesIO()
    figure.savefig(drawn, format=kind, metadata=NO_METADATA[kind])
    with atomic_writer(path) as stream:
        if kind == "png":
            with Image.open(drawn) as image:
                colours = image.convert("RGB").quantize(dither=Image.Dither.NONE)
                colours.save(stream, "png", optimize=True, dpi=image.info["dpi"])
        else:
            stream.write(drawn.getvalue())
    return path
