import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data.prepared import Prepared
from ntl.data.sets.multiplication import Multiplication, MultiplicationConfig

QUESTION = re.compile(r"What is ([1-9][0-9]*) times ([1-9][0-9]*)\?")
SMALL = MultiplicationConfig(
    max_digits=3, extrapolate_digits=4, train_rows=30_000, validation_rows=500, test_rows_per_cell=500
)


def made(folder: Path, config: MultiplicationConfig) -> Prepared:
    prepared = Prepared(Multiplication(config), folder)
    prepared.prepare()
    return prepared


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return made(tmp_path_factory.mktemp("multiplication"), SMALL)


def operands(prepared: Prepared, split: str) -> list[tuple[int, int]]:
    matches = [QUESTION.fullmatch(row["question"]) for row in prepared.rows(split)]
    return [(int(match[1]), int(match[2])) for match in matches if match]


def test_rows_per_cell(small: Prepared) -> None:
    group, splits = small.dataset.group, small.dataset.splits
    counts = {split: Counter(group(row["id"]) for row in small.rows(split)) for split in splits}
    big = ("1x3", "2x2", "2x3", "3x1", "3x2", "3x3")
    assert counts["interpolate"] == {"1x1": 16, "1x2": 162, "2x1": 162, **dict.fromkeys(big, 500)}
    assert counts["extrapolate"] == dict.fromkeys(("1x4", "2x4", "3x4", "4x1", "4x2", "4x3", "4x4"), 500)
    # 8 is a tenth of 81 pairs; 492 are left for eight cells.
    assert sum(counts["validation"].values()) == 500
    assert counts["validation"]["1x1"] == 8
    assert set(counts["validation"].values()) == {8, 61, 62}
    assert all(abs(count - 30_000 / 9) < 5 * (30_000 / 9) ** 0.5 for count in counts["train"].values())
    assert len(counts["train"]) == 9


def test_no_unordered_pair_is_in_two_splits_and_no_test_pair_occurs_twice(small: Prepared) -> None:
    for split in ("validation", "interpolate", "extrapolate"):
        assert len(set(operands(small, split))) == len(operands(small, split))
    train, validation, *tests = ({frozenset(pair) for pair in operands(small, split)} for split in small.dataset.splits)
    assert not train & validation
    assert not (train | validation) & set().union(*tests)


def test_the_text_is_pinned(small: Prepared, tmp_path: Path) -> None:
    # If this fails after an update of numpy, its random streams have changed: raise Multiplication.version.
    expected = {
        "train.jsonl": "951fdb566deaad8a74d49452c9611a77be0ae6a62501943f21ce81fc71318b91",
        "validation.jsonl": "c027bf070bb1ddea6ebcd986ee8a67b7678ab4651a21ce1295ef4666425f9b78",
        "interpolate.jsonl": "2aba827c55454522fdcbaeadf4db41ab7c1b38da48bd1340037424e262a52a9c",
        "extrapolate.jsonl": "564713091658ce814a6e48326abb5f7afc5615afc120445601a48087c74e4758",
    }
    assert small.fingerprint()["files"] == expected
    # The number of training rows leaves the test as it is.
    fewer = made(tmp_path, replace(SMALL, train_rows=100, validation_rows=50))
    for split in small.dataset.test_splits:
        assert list(fewer.rows(split)) == list(small.rows(split))


def test_ten_digits_do_not_overflow(tmp_path: Path) -> None:
    sizes = {"train_rows": 500, "validation_rows": 100, "test_rows_per_cell": 3}
    huge = made(tmp_path, MultiplicationConfig(max_digits=9, extrapolate_digits=10, **sizes))
    rows = [row for split in huge.dataset.splits for row in huge.rows(split)]
    for row in rows:
        match = QUESTION.fullmatch(row["question"])
        assert match is not None
        assert int(row["answer"]) == int(match[1]) * int(match[2])
    assert max(len(row["answer"]) for row in rows) >= 19
    assert len(huge.rows("extrapolate")) == 19 * 3


def test_every_pair_as_a_data_set(tmp_path: Path) -> None:
    config = MultiplicationConfig(exhaustive_digits=1, train_rows=60, validation_rows=10, test_rows_per_cell=11)
    prepared = made(tmp_path, config)
    dataset = prepared.dataset
    assert (dataset.splits, dataset.test_splits) == (("train", "validation", "test"), ("test",))
    drawn = {split: operands(prepared, split) for split in dataset.splits}
    assert {split: len(pairs) for split, pairs in drawn.items()} == {"train": 60, "validation": 10, "test": 11}
    assert sorted(pair for pairs in drawn.values() for pair in pairs) == [
        (a, b) for a in range(1, 10) for b in range(1, 10)
    ]
    unordered = [{frozenset(pair) for pair in pairs} for pairs in drawn.values()]
    assert sum(map(len, unordered)) == 9 * 10 // 2
    assert dataset.group(prepared.rows("test")[0]["id"]) == "1x1"
    assert drawn["train"] != sorted(drawn["train"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"extrapolate_digits": 5}, "dataset.extrapolate_digits=5: must be above dataset.max_digits=5"),
        ({"max_digits": 1, "validation_rows": 9}, "dataset.validation_rows=9: these cells hold at most 8"),
        (
            {"exhaustive_digits": 1, "train_rows": 60, "validation_rows": 10, "test_rows_per_cell": 12},
            "dataset.exhaustive_digits=1: there are 81 pairs, and train_rows, .* ask for 82; lower train_rows",
        ),
    ],
)
def test_impossible_settings(tmp_path: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        made(tmp_path, MultiplicationConfig(**settings))
