"""Tiny records of everything that a figure reads, with the id and the config of the run that a row composes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config.folders import RESULTS
from ntl.config.targets import locate
from ntl.results import RunRecord
from ntl.results.figures.spec import FigureSpec, Source, load_figure_spec
from ntl.results.figures.style import Drawing


@pytest.fixture
def on_evidence() -> Callable[..., FigureSpec]:
    """A figure of config/figure, its panels of evidence's multiplication, of which ``tiny_record`` makes runs."""

    def moved(figure: str, **changes: Any) -> FigureSpec:
        spec = load_figure_spec(figure)
        place = {"table": "evidence", "block": 1, "group": "", "scale": "tiny", **changes}
        return replace(spec, panels=[replace(panel, **place) for panel in spec.panels])

    return moved


@pytest.fixture
def draw() -> Callable[..., Drawing]:
    """A figure, of config/figure where it is named, from these records and the files of this folder."""

    def drawn(figure: str | FigureSpec, records: Sequence[RunRecord] = (), results: Path = RESULTS) -> Drawing:
        spec = load_figure_spec(figure) if isinstance(figure, str) else figure
        drawing = locate(spec.draw)(Source(spec, records, results))
        assert drawing is not None
        return drawing

    return drawn


@pytest.fixture
def points() -> Callable[..., list[list[list[float]]]]:
    """The x and y of each line of a panel."""

    def values(axes: Any) -> list[list[list[float]]]:
        return [[np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()] for line in axes.lines]

    return values


@pytest.fixture
def tiny_record(make_record: Callable[..., RunRecord]) -> Callable[..., RunRecord]:
    def make(loss: str, seed: int, base: str | None = None, **changes: Any) -> RunRecord:
        record = make_record(loss, seed, changes.pop("metrics", {}), dataset="multiplication", **changes)
        record.config["base"] = base
        return record

    return make
