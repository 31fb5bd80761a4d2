"""``scripts/benchmark_speculative.py``: a text that a model can predict is decoded several tokens at a time."""

import csv
import json
import runpy
from pathlib import Path

import pytest

from ntl.benchmarks.speculative import Text

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "benchmark_speculative.py"))["main"]
SMALL = ["--width", "32", "--layers", "2", "--vocab", "64", "--tokens", "24", "--rounds", "2", "--batch", "1", "3"]


def test_four_heads_give_two_and_a_half_tokens_a_forward_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--heads", "1", "4", "--json", "--out", str(tmp_path / "speed.csv")]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["batch"], row["heads"]) for row in rows] == [(1, 1), (1, 4), (3, 1), (3, 4)]
    for row in rows:
        assert row["same_answers"] == row["batch"]
        if row["heads"] == 4:
            assert row["tokens_per_forward"] >= 2.5
            assert row["accepted_head2"] >= row["accepted_head3"] >= row["accepted_head4"] > 0
        else:
            assert (row["tokens_per_forward"], row["accepted_head2"]) == (1, "")
    lines = (tmp_path / "speed.csv").read_text().splitlines()
    assert len(list(csv.DictReader(lines[1:]))) == len(rows)


def test_a_token_of_the_text_belongs_to_one_word() -> None:
    """So that the next token is its successor, or the first of another word."""
    rows, words = Text(64).batch(20, 40), set()
    for here, then in zip(rows[:, :-1].flatten().tolist(), rows[:, 1:].flatten().tolist(), strict=True):
        if then != here + 1:
            words.add(then)
    assert rows.shape == (20, 40)
    assert 0 < len(words) <= 64 / 3
