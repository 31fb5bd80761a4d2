"""Tiny records of everything that a figure reads, with the id and the config of the run that a row composes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config.folders import RESULTS
from ntl.results import RunRecord
from ntl.results.figures.draw import Drawn, Runs, Source
from ntl.results.figures.functions import FIGURES


class OnEvidence(Source):
    """Rows of evidence's multiplication in place of a figure's, of those that ``tiny_record`` makes runs of."""

    def runs(self, table: str, scale: str, labels: Sequence[str] = (), block: int = 0, group: str = "") -> Runs:
        # Bases are no runs of a row, and what begins with one is that of the same row without.
        own = {record.id: record for record in self.records if not record.id.startswith("base-")}
        plain = [replace(record, config=record.config | {"base": ""}) for record in own.values()]
        known = ["CE", "CE + digit CE (control)", "NTL-WAS, λ = 0.3"]
        found = Source(plain, self.results).runs("evidence", "tiny", known, 1)
        return {loss: {seed: own[run.id] for seed, run in runs.items()} for loss, runs in found.items()}


@pytest.fixture
def draw() -> Callable[..., Drawn]:
    """A figure from these records and the files of this folder."""

    def drawn(figure: str, records: Sequence[RunRecord] = (), results: Path = RESULTS) -> Drawn:
        return FIGURES[figure](OnEvidence(records, results))

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
        record.config["base"] = base or ""
        return record

    return make
