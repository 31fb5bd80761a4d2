"""Which values a figure shows, and that it is the same file for the same records."""

from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.results import RunRecord
from ntl.results.figures import PANELS, draw_losses, values_by_seed


def _record(loss: str, seed: int, value: float | None, dataset: str = "noisy_numbers", **changes: object) -> RunRecord:
    metric = {panel.dataset: panel.metric for panel in PANELS}[dataset]
    names = {"dataset": dataset, "scale": "tiny", "model": "gpt2_tiny", "tokenizer": "digit"} | changes
    config = {group: {"name": name} for group, name in names.items() if group != "weight"}
    config["loss"] = {"name": loss, "weight": names.get("weight", 0.3)}
    return RunRecord(id=f"{loss}{seed}", overrides=[], config=config, seed=seed, metrics={metric: value})


def _both(loss: str, seed: int, value: float) -> list[RunRecord]:
    return [_record(loss, seed, value), _record(loss, seed, 10 * value, dataset="multiplication")]


def test_values_are_those_of_comparable_runs() -> None:
    records = [
        _record("ce", 1, 3.0),
        _record("ce", 2, 2.0),
        _record("ntl_was", 1, 2.5),
        _record("ntl_was", 2, None),
        _record("ntl_was", 3, 9.0, weight=2.0),
        _record("ntl_was", 4, 9.0, scale="small"),
        _record("ntl_was", 5, 9.0, model="t5_tiny"),
        _record("ntl_was", 6, 9.0, dataset="multiplication"),
    ]
    assert values_by_seed(records, PANELS[0]) == {"ce": {1: 3.0, 2: 2.0}, "ntl_was": {1: 2.5}}


def test_the_same_records_give_the_same_file(tmp_path: Path) -> None:
    records = [record for loss in ("ce", "ntl_was") for seed in (1, 2) for record in _both(loss, seed, 2.0 + seed)]
    first = draw_losses(records, tmp_path / "a.svg").read_bytes()
    assert draw_losses(records[::-1], tmp_path / "new" / "b.svg").read_bytes() == first
    assert b"NTL-WAS" in first
    assert b"NTL-CRPS" not in first
    changed = draw_losses([*records, *_both("ntl_was", 3, 1.0)], tmp_path / "c.svg").read_bytes()
    assert changed != first


def test_a_panel_without_runs_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no record of multiplication.*reproduce\.py"):
        draw_losses([_record("ce", 1, 3.0)], tmp_path / "a.svg")
    assert list(tmp_path.iterdir()) == []
