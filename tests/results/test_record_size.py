"""Records of the largest test sets as they come from their predictions: all groups, both rules, the constants."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ntl.config import compose
from ntl.config.identity import recorded
from ntl.data.sets.mathematics import HARDER, MODULES
from ntl.evaluation import constant_baselines, score_predictions, write_predictions
from ntl.results import RunRecord, pack_bits, pack_errors, read_record, write_record
from ntl.results.record import SIZE_LIMIT, size_of_summary

Row = dict[str, str]


def multiplication(digits: int, most: int) -> Iterator[Row]:
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


def mathematics(most: int) -> Iterator[Row]:
    """``most`` answers of each module, integers and decimals of all lengths, half of them wrong."""
    rng = random.Random(0)
    for split, modules in (("interpolate", MODULES), ("extrapolate", HARDER)):
        for module in modules:
            for index in range(most):
                answer, other = (rng.randrange(10 ** rng.randint(1, 12)) / 10 ** rng.choice((0, 3)) for _ in range(2))
                wrong = other if rng.random() < 0.5 else answer
                identity = f"{split}/{module}/{index:06d}"
                row = {"split": split, "id": identity, "answer": f"{answer:f}", "prediction": f"{wrong:f}"}
                yield {**row, "group": module}


def record_of(folder: Path, dataset: str, scale: str, made: list[Row]) -> RunRecord:
    baselines = constant_baselines(row["answer"] for row in made)
    header = {"schema": 1, "dataset": dataset, "metrics": "number", "decoding": {"name": "greedy"}}
    write_predictions(folder / "predictions.jsonl", header | {"baselines": baselines}, made)
    scores = score_predictions(folder / "predictions.jsonl")
    files = ("train", "validation", "interpolate", "extrapolate")
    overrides = [f"dataset={dataset}", f"scale={scale}", "model=gpt2_medium", "loss=gce_ntl_was"]
    return RunRecord(
        id=f"{dataset}-gpt2_medium-gce_ntl_was-s1-0123456789ab",
        overrides=[*overrides, "seed=1"],
        config=recorded(compose(overrides)),
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


@pytest.mark.parametrize(
    ("dataset", "scale", "made", "groups", "kilobytes"),
    [
        ("multiplication", "tiny", partial(multiplication, digits=3, most=100), 16, 10.5),
        ("multiplication", "paper", partial(multiplication, digits=5, most=500), 36, 13.5),
        ("mathematics", "paper", partial(mathematics, most=100), 20, 11.25),
    ],
    ids=["multiplication 1,516", "multiplication 16,840", "mathematics 2,000"],
)
def test_size_without_curves(
    tmp_path: Path, dataset: str, scale: str, made: Callable[[], Iterator[Row]], groups: int, kilobytes: float
) -> None:
    record = record_of(tmp_path, dataset, scale, list(made()))
    path = write_record(tmp_path / "record.json", record)
    assert path.stat().st_size < kilobytes * 1024
    assert size_of_summary(record) < SIZE_LIMIT
    back = read_record(path)
    assert len([group for part in back.groups.values() for group in part]) == groups
    assert (back.correct, back.errors, set(back.metrics)) == (record.correct, record.errors, set(record.metrics))


@pytest.mark.parametrize(("share", "most"), [(0.5, 1), (0.3, 1.02), (0.1, 1.04), (0.9, 1.04), (0.03, 1.2)])
def test_correctness_of_all_mathematics_answers_is_near_its_entropy(share: float, most: float) -> None:
    packed = pack_bits(np.random.default_rng(0).random(200_000) < share)
    bits = -200_000 * (share * math.log2(share) + (1 - share) * math.log2(1 - share))
    assert len(packed) <= 2 + most * bits / 32 * 5
    assert len(packed) <= 31_252
