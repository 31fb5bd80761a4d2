"""``scripts/benchmark_mtp.py``: its rows, and what they say of memory."""

import csv
import json
import runpy
from pathlib import Path

import pytest

from ntl.system.errors import UserError

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "benchmark_mtp.py"))["main"]
SMALL = ["--width", "32", "--layers", "4", "--batch", "8", "--length", "64", "--vocab", "2048", "--rounds", "2"]


@pytest.mark.slow
def test_one_at_a_time_a_head_adds_less_than_five_percent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the peak memory, where the weights are those of next-token prediction; together, each adds its logits."""
    assert main([*SMALL, "--heads", "1", "2", "4", "--json", "--out", str(tmp_path / "mtp.csv")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * (1 + 2 * 3)
    for row in rows:
        if row["form"] == "one at a time":
            assert row["peak_ratio"] <= 1 + 0.05 * (row["heads"] - 1) + 0.01, row
    peaks = {(row["form"], row["heads"]): row["peak_mib"] for row in rows if row["implementation"] == "reference"}
    assert peaks["together", 4] > 1.3 * peaks["one at a time", 4]
    lines = (tmp_path / "mtp.csv").read_text().splitlines()
    assert len(list(csv.DictReader(lines[1:]))) == len(rows)


def test_more_heads_than_blocks() -> None:
    with pytest.raises(UserError, match="--heads 5: choose from 1 to --layers, 4"):
        main([*SMALL, "--heads", "5"])
