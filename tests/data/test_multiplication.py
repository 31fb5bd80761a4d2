from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ntl.config import UserError
from ntl.config.data import MultiplicationConfig
from ntl.data.prepared import Prepared
from ntl.data.sets.multiplication import (
    QUESTION,
    Multiplication,
    cells,
    distinct,
    draw_train,
    pairs_in,
    portion,
    split_every_pair,
    spread,
    take_both_orders,
    unordered,
)

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


def pairs_of(prepared: Prepared, split: str) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in operands(prepared, split)}


def test_every_row(small: Prepared) -> None:
    dataset = small.dataset
    for split in dataset.splits:
        for index, row in enumerate(small.rows(split)):
            match = QUESTION.fullmatch(row["question"])
            assert match is not None
            assert row["answer"] == str(int(match[1]) * int(match[2]))
            group = f"{len(match[1])}x{len(match[2])}"
            assert row["id"] == f"{split}/{group}/{index:05d}"
            assert dataset.group(row["id"]) == group
            assert dataset.fault(row["question"], row["answer"]) is None


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


def test_test_pairs_are_drawn_without_replacement(small: Prepared) -> None:
    for split in ("validation", "interpolate", "extrapolate"):
        drawn = operands(small, split)
        assert len(set(drawn)) == len(drawn)


def test_no_unordered_pair_is_in_two_of_train_validation_and_test(small: Prepared) -> None:
    train, validation, interpolate, extrapolate = (pairs_of(small, split) for split in small.dataset.splits)
    assert not train & validation
    assert not train & (interpolate | extrapolate)
    assert not validation & (interpolate | extrapolate)


def test_training_covers_what_is_left_and_every_operand_end(small: Prepared) -> None:
    drawn = operands(small, "train")
    ordered = {pair for pair in drawn if max(pair) < 10}
    held_out = pairs_of(small, "validation") | pairs_of(small, "interpolate")
    left = {(a, b) for a in range(1, 10) for b in range(1, 10) if frozenset((a, b)) not in held_out}
    assert ordered == left
    assert {min(a for a, _ in drawn), max(a for a, _ in drawn)} == {1, 999}
    assert {10, 99, 100, 999} <= {a for a, _ in drawn}


def test_the_default_sizes() -> None:
    inner, outer = cells(MultiplicationConfig())
    assert (len(inner), len(outer)) == (25, 11)
    assert all(max(cell) == 6 for cell in outer)
    config = MultiplicationConfig()
    counts = [min(config.test_rows_per_cell, portion(cell, config.test_share)) for cell in inner + outer]
    assert (sum(counts[:25]), sum(counts[25:])) == (16 + 2 * 162 + 22 * 500, 11 * 500)
    assert [pairs_in(cell) for cell in ((1, 1), (1, 2), (3, 2))] == [81, 810, 81_000]


def test_the_text_is_pinned(small: Prepared, tmp_path: Path) -> None:
    # If this fails after an update of numpy, its random streams have changed: raise Multiplication.version.
    expected = {
        "train.jsonl": "951fdb566deaad8a74d49452c9611a77be0ae6a62501943f21ce81fc71318b91",
        "validation.jsonl": "c027bf070bb1ddea6ebcd986ee8a67b7678ab4651a21ce1295ef4666425f9b78",
        "interpolate.jsonl": "2aba827c55454522fdcbaeadf4db41ab7c1b38da48bd1340037424e262a52a9c",
        "extrapolate.jsonl": "564713091658ce814a6e48326abb5f7afc5615afc120445601a48087c74e4758",
    }
    assert small.fingerprint()["files"] == expected
    assert made(tmp_path, SMALL).fingerprint()["files"] == expected


def test_training_size_leaves_the_test_as_it_is(small: Prepared, tmp_path: Path) -> None:
    fewer = made(tmp_path, replace(SMALL, train_rows=100, validation_rows=50))
    for split in small.dataset.test_splits:
        assert list(fewer.rows(split)) == list(small.rows(split))


def test_ten_digits_do_not_overflow(tmp_path: Path) -> None:
    sizes = {"train_rows": 500, "validation_rows": 100, "test_rows_per_cell": 3}
    huge = made(tmp_path, MultiplicationConfig(max_digits=9, extrapolate_digits=10, **sizes))
    rows = [row for split in huge.dataset.splits for row in huge.rows(split)]
    assert all(huge.dataset.fault(row["question"], row["answer"]) is None for row in rows)
    assert max(len(row["answer"]) for row in rows) >= 19
    assert len(huge.rows("extrapolate")) == 19 * 3


def test_the_largest_share_still_leaves_pairs_to_train_on(tmp_path: Path) -> None:
    config = MultiplicationConfig(
        max_digits=1, extrapolate_digits=2, train_rows=200, validation_rows=12, test_share=0.3
    )
    for seed in range(6):
        prepared = made(tmp_path, replace(config, seed=seed))
        assert len(prepared.rows("interpolate")) == 24
        assert not pairs_of(prepared, "train") & pairs_of(prepared, "interpolate")


def test_distinct_exhausts_a_cell_and_respects_what_is_held_out() -> None:
    rng = np.random.default_rng(0)
    everything = distinct(rng, (1, 1), 81, np.empty(0, dtype=np.int64))
    assert {tuple(pair) for pair in everything.tolist()} == {(a, b) for a in range(1, 10) for b in range(1, 10)}
    held_out = unordered(np.array([[a, b] for a in range(1, 10) for b in range(1, 10) if a + b != 10]))
    left = distinct(rng, (1, 1), 9, held_out)
    assert {tuple(pair) for pair in left.tolist()} == {(a, 10 - a) for a in range(1, 10)}
    assert distinct(rng, (2, 3), 0, held_out).shape == (0, 2)


def test_unordered_keys() -> None:
    keys = unordered(np.array([[12, 345], [345, 12], [34, 512], [999_999_999, 999_999_999]]))
    assert keys[0] == keys[1] == 12_000_000_345
    assert keys[3] == 999_999_999_999_999_999
    assert len(set(keys.tolist())) == 3


def test_training_draws_are_uniform_over_the_pairs_of_a_cell() -> None:
    held_out = unordered(np.array([[3, 4]]))
    pairs = draw_train(np.random.default_rng(0), 1, 79_000, held_out)
    counts = Counter(map(tuple, pairs.tolist()))
    assert (3, 4) not in counts
    assert (4, 3) not in counts
    assert len(counts) == 79
    chi_squared = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_squared < 78 + 4 * (2 * 78) ** 0.5


THREE_DIGITS = MultiplicationConfig(
    exhaustive_digits=3, train_rows=780_000, validation_rows=10_000, test_rows_per_cell=20_000
)


def test_every_pair_of_three_digits_is_in_one_split() -> None:
    parts = split_every_pair(THREE_DIGITS)
    assert [part.shape for part in parts] == [(780_000, 2), (10_000, 2), (20_000, 2)]
    assert all(part.min() == 100 and part.max() == 999 for part in parts)
    everything = np.concatenate(parts)
    assert len(np.unique(everything[:, 0] * 1000 + everything[:, 1])) == 810_000
    train, validation, test = (np.unique(unordered(part)) for part in parts)
    assert len(np.concatenate([train, validation, test])) == 900 * 901 // 2
    again = split_every_pair(THREE_DIGITS)
    assert all(np.array_equal(first, second) for first, second in zip(parts, again, strict=True))
    other = split_every_pair(replace(THREE_DIGITS, seed=1))
    assert not np.array_equal(np.sort(unordered(other[2])), np.sort(unordered(parts[2])))


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
    assert dataset.group(prepared.rows("test")[0]["id"]) == "1x1"
    assert drawn["train"] != sorted(drawn["train"])


PAIRS = np.array([[1, 2], [3, 3], [1, 3], [4, 4]])


@pytest.mark.parametrize(
    ("rows", "taken", "left"),
    [
        (0, [], [(1, 2), (3, 3), (1, 3), (4, 4)]),
        (1, [(3, 3)], [(1, 2), (1, 3), (4, 4)]),
        (2, [(1, 2), (2, 1)], [(3, 3), (1, 3), (4, 4)]),
        (4, [(1, 2), (2, 1), (3, 3), (4, 4)], [(1, 3)]),
        (6, [(1, 2), (1, 3), (2, 1), (3, 1), (3, 3), (4, 4)], []),
    ],
)
def test_both_orders_of_a_pair(rows: int, taken: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    chosen, rest = take_both_orders(PAIRS, rows)
    assert sorted(map(tuple, chosen.tolist())) == taken
    assert list(map(tuple, rest.tolist())) == left


def test_one_order_of_a_pair_where_no_square_is_left() -> None:
    chosen, rest = take_both_orders(np.array([[1, 2], [1, 3]]), 3)
    assert chosen.tolist() == [[1, 2], [1, 3], [2, 1]]
    assert rest.tolist() == []


@pytest.mark.parametrize(
    ("total", "caps", "counts"),
    [
        (0, [3, 3], [0, 0]),
        (5, [8, 8], [3, 2]),
        (12, [2, 9, 9], [2, 5, 5]),
        (9, [1, 2, 6], [1, 2, 6]),
        (7, [0, 1, 9], [0, 1, 6]),
    ],
)
def test_spread(total: int, caps: list[int], counts: list[int]) -> None:
    assert spread(total, caps) == counts


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


@pytest.mark.parametrize(
    ("question", "answer"), [("What is 3 times 4?", "13"), ("What is 3 times 4?", "012"), ("What is 03 times 4?", "12")]
)
def test_faults(question: str, answer: str) -> None:
    assert Multiplication(SMALL).fault(question, answer) is not None
