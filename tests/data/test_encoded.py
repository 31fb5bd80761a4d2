"""Arrays that grow on disk, and what a reader finds of them."""

import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntl.data.encoded import Damaged, EncodedBlock, EncodedDataset, EncodedWriter

IDS = st.lists(st.integers(0, 65535), min_size=1)
Pairs = list[tuple[list[int], list[int]]]


def block(examples: Pairs) -> EncodedBlock:
    """Token ids, and beside each a value that depends on it."""
    tokens = np.array([token for question, answer in examples for token in question + answer], dtype=np.uint16)
    sizes = np.array([len(ids) for pair in examples for ids in pair], dtype=np.int64)
    return EncodedBlock(tokens, sizes, tokens / 7, truncated=len(examples))


def write(folder: Path, *blocks: Pairs) -> EncodedDataset:
    writer = EncodedWriter(folder, "<u2", with_values=True)
    for examples in blocks:
        writer.append(block(examples))
    writer.finish()
    return EncodedDataset(folder)


def read(dataset: EncodedDataset) -> Pairs:
    rows = [dataset[index] for index in range(len(dataset))]
    for row in rows:
        for part in ("question", "answer"):
            assert np.array_equal(row[f"{part}_values"], row[f"{part}_ids"] / 7)
    return [(row["question_ids"].tolist(), row["answer_ids"].tolist()) for row in rows]


@settings(max_examples=25)  # each waits for the disk some times
@given(blocks=st.lists(st.lists(st.tuples(IDS, IDS)), max_size=4))
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, blocks: list[Pairs]) -> None:
    folder = tmp_path_factory.mktemp("growing")
    dataset = write(folder, *blocks)
    assert read(dataset) == [example for examples in blocks for example in examples]
    pairs = [(len(question), len(answer)) for examples in blocks for question, answer in examples]
    longest = [max(lengths, default=0) for lengths in zip(*pairs, strict=True)] or [0, 0]
    assert list(dataset.about.values()) == [len(pairs), 0, *longest, max(map(sum, pairs), default=0)]
    assert read(pickle.loads(pickle.dumps(dataset))) == read(dataset)


def test_lengths_and_head(tmp_path: Path) -> None:
    dataset = write(tmp_path, [([1], [2]), ([3, 4], [5]), ([6], [7, 8, 9])])
    assert (dataset.tokens.dtype, dataset.offsets.dtype) == (np.uint16, np.int64)
    assert dataset.lengths(np.array([2, 0, 1])).tolist() == [4, 2, 3]
    assert [len(dataset.first(rows)) for rows in (0, 2, 9)] == [3, 2, 3]
    assert len(list(dataset)) == 3
    for index in (-1, 3):
        with pytest.raises(IndexError):
            dataset[index]


@pytest.mark.parametrize("name", ["tokens.npy", "offsets.npy", "values.npy", "about.json"])
def test_flipped_bits_and_what_is_cut_or_lost_is_told(tmp_path: Path, name: str) -> None:
    write(tmp_path / "whole", [([number, 2], [3] * (number % 5 + 1)) for number in range(600)])
    content = (tmp_path / "whole" / name).read_bytes()
    draw = random.Random(0)
    damaged: list[bytes | None] = [None, b"", content[:-1]]
    for bits in [1, 20] * 20:
        flipped = bytearray(content)
        for place in draw.sample(range(8 * len(content)), bits):
            flipped[place // 8] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    for number, other in enumerate(damaged):
        folder = Path(shutil.copytree(tmp_path / "whole", tmp_path / str(number)))
        (folder / name).unlink()
        if other is not None:
            (folder / name).write_bytes(other)
        with pytest.raises(Damaged, match=r"^.*: damaged \(.*\); remove this folder, and it is made again\.$"):
            EncodedDataset(folder)
