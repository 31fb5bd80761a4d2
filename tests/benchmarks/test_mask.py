"""``scripts/benchmark_mask.py``: its rows, and that masking is a small part of a step."""

import csv
import json
import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "benchmark_mask.py"))["main"]


def test_masking_is_a_small_part_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--layers", "1", "--batch", "32", "--length", "32", "--rounds", "3"]
    assert main([*words, "--json", "--out", str(tmp_path / "mask.csv")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in rows] == ["paper", "code", "random"]
    for row in rows:
        assert 0 < row["seconds"] < row["step_seconds"]
        assert row["ratio"] < 0.1  # 0.2% of the step of a larger model; here it is for a loaded machine
    lines = (tmp_path / "mask.csv").read_text().splitlines()
    assert len(list(csv.DictReader(lines[1:]))) == len(rows)


def test_published_shares_are_below_one_percent() -> None:
    path = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "mask.csv"
    rows = list(csv.DictReader(path.read_text().splitlines()[1:]))
    assert len(rows) == 6
    assert max(float(row["ratio_high"]) for row in rows) < 0.01
