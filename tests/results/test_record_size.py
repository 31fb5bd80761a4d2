"""Records of multiplication as they come from its predictions: all cells, both rules, the constants."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ntl.config import compose
from ntl.config.identity import plain
from ntl.evaluation import score_predictions, write_predictions
from ntl.evaluation.baselines import constant_baselines
from ntl.results import RunRecord, pack_errors, read_record, write_record
from ntl.results.record import SIZE_LIMIT, size_of_summary

Row = dict[str, str]


def rows(digits: int, most: int) -> Iterator[Row]:
    """Up to ``most`` answers a cell, half of the longer products wrong: neither bits nor errors can be foreseen."""
    rng = random.Random(0)
    for a in range(1, digits + 2):
        for b in range(1, digits + 2):
            split = "interpolate" if max(a, b) <= digits else "extrapolate"
            for index in range(min(most, 81 * 10 ** (a + b - 2) // 5)):
                answer = rng.randrange(10 ** (a - 1), 10**a) * rng.randrange(10 ** (b - 1), 10**b)
                wrong = rng.randrange(10 ** (a + b - 2), 10 ** (a + b)) if rng.random() < 0.5 else answer
                identity, group = f"{split}/{a}x{b}/{index:03d}", f"{a}x{b}"
                yield {"split": split, "id": identity, "answer": str(answer), "prediction": str(wrong), "group": group}


def record_of(folder: Path, scale: str, digits: int, most: int) -> tuple[RunRecord, int]:
    made = list(rows(digits, most))
    baselines = constant_baselines(row["answer"] for row in made)
    header = {"schema": 1, "dataset": "multiplication", "metrics": "number", "decoding": {"name": "greedy"}}
    write_predictions(folder / "predictions.jsonl", header | {"baselines": baselines}, made)
    scores = score_predictions(folder / "predictions.jsonl")
    files = ("train", "validation", "interpolate", "extrapolate")
    record = RunRecord(
        id="multiplication-gpt2_medium-gce_ntl_was-s1-0123456789ab",
        overrides=["dataset=multiplication", f"scale={scale}", "model=gpt2_medium", "loss=gce_ntl_was", "seed=1"],
        config=plain(compose(["dataset=multiplication", f"scale={scale}", "model=gpt2_medium", "loss=gce_ntl_was"])),
        seed=1,
        metrics={"validation/ce": 0.12345678901, "validation/ntl": 0.98765432109, **scores.metrics},
        git={"commit": "0" * 40, "dirty": False},
        packages=dict.fromkeys(("python", "ntl", "torch", "transformers", "tokenizers", "accelerate"), "10.11.12"),
        device="cpu x86_64, 16 of 16 threads",
        data={"files": {f"{name}.jsonl": "0" * 64 for name in files}, "rows": dict.fromkeys(files, 1_000_000)},
        steps=1_050_000,
        examples_seen=33_600_000,
        tokens_seen=1_234_567_890,
        wall_time_s=86_400.125,
        peak_memory_bytes=8_123_456_789,
        groups=scores.groups,
        correct=scores.correct,
        errors={split: pack_errors(errors) for split, errors in scores.errors.items()},
        digit_histograms=scores.digits,
        ids_sha256=scores.ids_sha256,
        predictions_sha256=scores.predictions_sha256,
    )
    return record, len(made)


@pytest.mark.parametrize(
    ("scale", "digits", "most", "answers", "kilobytes"), [("tiny", 3, 100, 1516, 10), ("paper", 5, 500, 16_840, 13.25)]
)
def test_size_without_curves(
    tmp_path: Path, scale: str, digits: int, most: int, answers: int, kilobytes: float
) -> None:
    record, count = record_of(tmp_path, scale, digits, most)
    path = write_record(tmp_path / "record.json", record)
    assert count == answers
    assert path.stat().st_size < kilobytes * 1024
    assert size_of_summary(record) < SIZE_LIMIT
    back = read_record(path)
    assert len([group for part in back.groups.values() for group in part]) == (digits + 1) ** 2
    assert (back.correct, back.errors, set(back.metrics)) == (record.correct, record.errors, set(record.metrics))
