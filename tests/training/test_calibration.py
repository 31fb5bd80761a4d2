"""How far the digit distribution is to be believed: hand-computed, and of a trained run."""

import json
import math
import runpy
from pathlib import Path

import pytest
import torch

from ntl.losses.rows import number_rows
from ntl.numbers import NumberVocabulary
from ntl.training.calibration import COLUMNS, calibration, digit_probabilities

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "calibrate.py"))["main"]
DIGITS = NumberVocabulary.from_values([math.nan, *range(10)])


def test_by_hand() -> None:
    """Half on 4 and half on 8 where 4 is right; four fifths on 1, a fifth on 2 where 2 is right; text is not read."""
    logits = torch.full((3, 11), -torch.inf)
    logits[0, [5, 9]] = torch.tensor([1.0 + 1e-6, 1.0])
    logits[1, [2, 3]] = torch.tensor([0.8, 0.2]).log()
    logits[:, 0] = 7.0
    found = calibration(number_rows(logits, torch.tensor([5, 3, 0]), DIGITS, -100))
    assert found == pytest.approx(
        {
            "labels": 2,
            "accuracy": 0.5,
            "confidence": (0.5 + 0.8) / 2,
            "ece": (abs(1 - 0.5) + abs(0 - 0.8)) / 2,
            "nll": -(math.log(0.5) + math.log(0.2)) / 2,
            "brier": ((0.25 + 0.25) + (0.64 + 0.64)) / 2,
            "crps": (4 * 0.25 + 0.64) / 2,
        },
        rel=1e-5,
    )


def test_mean_probabilities_by_target_digit() -> None:
    """Twice a 4, once a 2: the rows of the other digits are unknown; whole numbers have no such table."""
    logits = torch.full((4, 11), -torch.inf)
    logits[0, [5, 9]] = torch.tensor([0.5, 0.5]).log()  # the token of digit d is d + 1
    logits[1, [5, 1]] = torch.tensor([0.9, 0.1]).log()
    logits[2, [2, 3]] = torch.tensor([0.8, 0.2]).log()
    logits[:, 0] = 7.0
    found = digit_probabilities(number_rows(logits, torch.tensor([5, 5, 3, 0]), DIGITS, -100))
    assert found is not None
    assert found[4] == pytest.approx([0.05, 0, 0, 0, 0.7, 0, 0, 0, 0.25, 0], abs=1e-5)
    assert found[2] == pytest.approx([0, 0.8, 0.2, *[0] * 7], abs=1e-5)
    assert [row for digit, row in enumerate(found) if digit not in (2, 4)] == [None] * 8
    whole = NumberVocabulary.from_values([math.nan, *range(0, 100, 10)])
    assert digit_probabilities(number_rows(logits, torch.tensor([5, 5, 3, 0]), whole, -100)) is None


def test_of_a_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over all number labels of the test set, whatever the batches."""
    assert main([finished.name, "--outputs", str(finished.parent), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)[finished.name]["test"]
    assert tuple(scores) == (*COLUMNS, "digits")
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in scores["digits"] if row)
    assert 30 <= scores["labels"] <= 60  # thirty answers of one or two digits
    assert 0 <= scores["ece"] <= 1 < scores["nll"] < 4
    assert main([str(finished)]) == 0
    line = capsys.readouterr().out
    assert f"test  labels {scores['labels']}  accuracy {scores['accuracy']:.5g}  " in line
