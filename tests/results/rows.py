"""Rows of a table by hand, for the tests of what is computed from them."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from ntl.config import compose, run_id
from ntl.config.identity import recorded
from ntl.results import RunRecord
from ntl.results.effects import Seeds
from ntl.results.match import Row
from ntl.results.spec import ColumnSpec, Role, RowSpec

MAE = ColumnSpec(metric="test/mae", header="MAE", format=".2f")
ACCURACY = ColumnSpec(metric="test/accuracy", header="accuracy", format=".2f")


@cache
def _composed(*words: str) -> tuple[str, dict[str, Any]]:
    config = compose([*words, "extra_decodings=expectation"])
    return run_id(config), recorded(config)


def composed_run(loss: str, seed: int, dataset: str, weight: float) -> tuple[str, list[str], dict[str, Any]]:
    """The id, the overrides and the config in a record of a run of gpt2_tiny, also decoded by expectation."""
    words = [f"dataset={dataset}", "scale=tiny", "model=gpt2_tiny", "tokenizer=digit"]
    words += [f"loss={loss}", *([] if loss == "ce" else [f"loss.weight={weight}"]), f"seed={seed}"]
    name, config = _composed(*words)
    return name, words, deepcopy(config)


def values(*row: float | None) -> Seeds:
    """The values of the seeds 1, 2, ..."""
    return dict(enumerate(row, start=1))


def record(seed: int = 1, **changes: Any) -> RunRecord:
    given: dict[str, Any] = {"id": f"r{seed}", "overrides": [], "config": {}, "seed": seed, "metrics": {}, **changes}
    return RunRecord(**given)


def make_row(
    label: str,
    scores: Mapping[str, Seeds] | None = None,
    role: Role = Role.ntl,
    group: str = "",
    pins: Mapping[str, Any] | None = None,
    records: dict[int, RunRecord] | None = None,
) -> Row:
    """A row with these scores by metric; without ``records`` one for each of its seeds."""
    spec = RowSpec(label=label, role=role, group=group, constant="mean" if role is Role.constant else "")
    words = () if role is Role.constant else (f"loss={label}",)
    found = {seed: record(seed) for each in (scores or {}).values() for seed in each} if records is None else records
    return Row(spec, words, pins or {}, (1, 2, 3), records=found, values=dict(scores or {}))
