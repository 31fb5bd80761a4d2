"""needle and key_values: a number that is told and asked for."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config.generated import KeyValuesConfig, NeedleConfig
from ntl.data.generated import side_of
from ntl.data.prepared import Prepared
from ntl.data.sets.key_values import KEYS, KeyValues, Place
from ntl.data.sets.needle import Needle

ROWS = {"train_rows": 3000, "validation_rows": 10, "test_rows": 30}


@pytest.mark.parametrize(
    ("depth", "slots", "slot"),
    [(0, 15, 0), (100, 15, 14), (50, 15, 7), (25, 15, 4), (75, 5, 3), (50, 2, 1), (25, 1, 0)],
)
def test_the_slot_of_a_depth(depth: int, slots: int, slot: int) -> None:
    assert Place(128, depth).among(slots, random.Random(0)) == (slot, f"128@{depth}")


def test_training_asks_for_every_slot() -> None:
    rng = random.Random(0)
    assert {Place(8, None).among(5, rng) for _ in range(200)} == {
        (0, "8@0"), (1, "8@25"), (2, "8@50"), (3, "8@75"), (4, "8@100")
    }  # fmt: skip


@given(
    side=st.sampled_from(["train", "test"]),
    seed=st.integers(0, 2**32),
    sentences=st.integers(6, 60),
    keys=st.integers(1, 5),
    depth=st.sampled_from([0, 30, 100, None]),
)
def test_the_needle_is_where_its_group_says(side: str, seed: int, sentences: int, keys: int, depth: int | None) -> None:
    dataset = Needle(NeedleConfig(keys=keys))
    row = dataset.draw(random.Random(seed), side, Place(8 * sentences, depth))
    assert len(row.question.split()) == 8 * sentences
    *told, asked = re.findall(r"[^.?]+[.?]", row.question)
    key = asked.split()[-1].rstrip("?")
    places = [index for index, sentence in enumerate(told) if f" {key} is {row.answer}." in sentence]
    expected = round(100 * places[0] / (sentences - 2)) if depth is None else depth
    assert len(places) == 1
    assert places[0] == pytest.approx(expected / 100 * (sentences - 2), abs=0.51)
    assert row.group == f"{8 * sentences}@{expected}"
    assert len(re.findall(r"\d+", row.question)) == keys
    assert side_of(f"{key} {row.answer}") == side
    assert dataset.fault(row.question, row.answer) is None


@given(side=st.sampled_from(["train", "test"]), seed=st.integers(0, 2**32), count=st.integers(1, 64))
def test_a_list_of_keys(side: str, seed: int, count: int) -> None:
    dataset = KeyValues(KeyValuesConfig(digits=2))
    row = dataset.draw(random.Random(seed), side, Place(count, 100))
    pairs = re.findall(r"([a-z]+): (\d\d)(?!\d)", row.question)
    assert len(pairs) == len(dict(pairs)) == len({number for _, number in pairs}) == count
    assert row.question.endswith(f"{pairs[-1][0]}: {row.answer}. What is {pairs[-1][0]}?")
    assert side_of(" ".join(pairs[-1])) == side


def test_keys_are_different_words() -> None:
    assert len(KEYS) == len({*KEYS}) == 64


@pytest.mark.parametrize(
    "dataset",
    [
        Needle(NeedleConfig(**ROWS, digits=2, lengths=[48], extrapolate_lengths=[56])),
        KeyValues(KeyValuesConfig(**ROWS, digits=2, keys=[4], extrapolate_keys=[5])),
    ],
    ids=lambda dataset: dataset.name,
)
def test_a_pair_that_a_test_asks_for_is_never_asked_for_in_training(
    dataset: Needle | KeyValues, tmp_path: Path
) -> None:
    prepared = Prepared(dataset, tmp_path)
    prepared.prepare(lambda line: None)
    asked = {
        split: {f"{row['question'].split()[-1]} {row['answer']}" for row in prepared.rows(split)}
        for split in dataset.splits
    }
    # Of 64 x 90 pairs training has seen half.
    assert len(asked["train"]) > 2000
    assert not asked["train"] & (asked["interpolate"] | asked["extrapolate"])


def test_the_default_lengths(tmp_path: Path) -> None:
    dataset = Needle(NeedleConfig(train_rows=1, validation_rows=1, test_rows=1))
    prepared = Prepared(dataset, tmp_path)
    prepared.prepare(lambda line: None)
    lengths = [
        [len(row["question"].split()) for row in prepared.rows(split)] for split in ("interpolate", "extrapolate")
    ]
    assert [sorted({*each}) for each in lengths] == [[128, 256, 512, 1024], [2048]]
