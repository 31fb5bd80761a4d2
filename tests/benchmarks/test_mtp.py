"""``scripts/benchmark_mtp.py``: its rows, and what they say of memory."""

import csv
import json
import runpy
from pathlib import Path

import pytest

from ntl.benchmarks.objectives import floor, shape_of
from ntl.system.errors import UserError

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "benchmark_mtp.py"))["main"]
SMALL = ["--shapes", "2048x32x4x1x1x128", "--batch", "8", "--length", "32", "--rounds", "2"]


def test_floor_by_hand() -> None:
    """SmolLM2-135M: 106 million weights in blocks, 28 in the unembedding."""
    smollm2, block = shape_of("smollm2"), 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536
    assert floor(smollm2, 0, 2, 1.0) == 1 + 576 * 49152 / (30 * block + 576 * 49152)
    assert floor(smollm2, 128, 2, 1.0) == 1 + 576 * 49152 / (30 * (block + 2 * 64 * 576) + 576 * 49152)
    assert [round(floor(smollm2, 0, heads, 1.0), 2) for heads in (1, 2, 4)] == [1.0, 1.21, 1.63]
    assert [round(floor(smollm2, 0, heads, 0.1), 2) for heads in (1, 2, 4)] == [1.0, 1.03, 1.08]
    # The paper measured 1.07 and 1.22 (Table S5, 0.3B).
    assert [round(floor(shape_of("paper"), 4096, heads, 1.0), 2) for heads in (2, 4)] == [1.07, 1.22]


@pytest.mark.slow
def test_one_at_a_time_a_head_adds_less_than_five_percent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the peak memory, where the weights are those of next-token prediction; together, each adds its logits."""
    assert main([*SMALL, "--heads", "1", "4", "--json", "--out", str(tmp_path / "mtp.csv")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 2 * 2 * (1 + 2 * 2)
    for row in rows:
        if row["form"] == "one at a time":
            assert row["peak_ratio"] <= 1 + 0.05 * (row["heads"] - 1) + 0.01, row
        assert row["over_floor"] == pytest.approx(row["ratio"] / row["floor"], rel=2e-3)  # of rounded ones
    assert {row["floor"] for row in rows if row["heads"] == 1} == {1.0}
    reference = [row for row in rows if row["implementation"] == "reference" and row["labelled"] == 1]
    peaks = {(row["form"], row["heads"]): row["peak_mib"] for row in reference}
    assert peaks["together", 4] > 1.3 * peaks["one at a time", 4]
    lines = (tmp_path / "mtp.csv").read_text().splitlines()
    assert len(list(csv.DictReader(lines[1:]))) == len(rows)


def test_more_heads_than_blocks_and_no_labels() -> None:
    with pytest.raises(UserError, match="--heads 5: choose from 1 to the number of blocks, 4"):
        main([*SMALL, "--heads", "5"])
    with pytest.raises(UserError, match=r"--labelled 0\.0: give shares above 0"):
        main([*SMALL, "--heads", "2", "--labelled", "1", "0"])


@pytest.mark.parametrize("shape", ["smollm", "8192x128", "1x2x3x4"])
def test_a_shape_that_does_not_exist(shape: str) -> None:
    with pytest.raises(UserError, match=f"--shapes {shape}: choose from smollm2, paper, or six numbers"):
        main(["--shapes", shape])
