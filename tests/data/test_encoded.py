"""Arrays that grow on disk, and what a reader finds of them."""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntl.data import encoded
from ntl.data.encode_worker import Encoded
from ntl.data.encoded import EncodedDataset, EncodedWriter

EXAMPLES = st.lists(st.tuples(st.lists(st.integers(0, 65535), min_size=1), st.lists(st.integers(0, 65535), min_size=1)))


def part(examples: list[tuple[list[int], list[int]]]) -> Encoded:
    flat = [token for question, answer in examples for token in question + answer]
    sizes = np.array([len(ids) for pair in examples for ids in pair], dtype=np.int64)
    return Encoded(np.array(flat, dtype=np.uint16), sizes, (len(examples), 0, 1, 2, 3))


def read(dataset: EncodedDataset) -> list[tuple[list[int], list[int]]]:
    rows = [dataset[index] for index in range(len(dataset))]
    return [(row["question_ids"].tolist(), row["answer_ids"].tolist()) for row in rows]


@settings(max_examples=25)  # each waits for the disk some ten times
@given(parts=st.lists(EXAMPLES, max_size=4), kept=st.integers(0, 4), lost=st.booleans())
def test_what_was_written_is_read_however_often_it_was_stopped(
    tmp_path_factory: pytest.TempPathFactory, parts: list, kept: int, lost: bool
) -> None:
    folder = tmp_path_factory.mktemp("growing")
    kept = min(kept, len(parts))
    writer = EncodedWriter(folder, "<u2")
    for number, examples in enumerate(parts[:kept]):
        writer.append(part(examples), number + 1)
    writer.journal()
    if lost:
        # Written, but not vouched for: as after a kill.
        writer.append(part([([7], [8, 9])]), 99)
        writer.tokens.sync()
        writer.offsets.sync()
    again = EncodedWriter(folder, "<u2")
    assert again.position == kept
    for number, examples in enumerate(parts[kept:], start=kept):
        again.append(part(examples), number + 1)
    again.finish()
    dataset = EncodedDataset(folder)
    assert read(dataset) == [example for examples in parts for example in examples]
    assert dataset.about["truncated"] == sum(map(len, parts))
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "offsets.npy", "tokens.npy"]
    # What numpy itself writes of these arrays.
    assert np.array_equal(np.load(folder / "offsets.npy"), dataset.offsets)
    assert (folder / "tokens.npy").stat().st_size == 128 + 2 * len(dataset.tokens)


def test_the_journal_is_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "JOURNAL_SECONDS", 3600)
    writer = EncodedWriter(tmp_path, "<u2")
    writer.append(part([([1], [2])]), 5)
    assert not (tmp_path / "journal.json").exists()
    writer.journaled -= 3600
    writer.append(part([([1, 1], [2])]), 9)
    entry = json.loads((tmp_path / "journal.json").read_text())
    assert (entry["position"], entry["rows"], entry["counters"]) == (9, 2, [2, 0, 1, 2, 3])
    # The CRC-32 of the ids and of the offsets, little-endian.
    assert entry["arrays"] == {
        "tokens.npy": {"dtype": "<u2", "length": 5, "header": [], "sums": crc32_of([1, 2, 1, 1, 2], "<u2")},
        "offsets.npy": {"dtype": "<i8", "length": 5, "header": [], "sums": crc32_of([0, 1, 2, 4, 5], "<i8")},
    }


def crc32_of(values: list[int], dtype: str) -> str:
    return zlib.crc32(np.array(values, dtype).tobytes()).to_bytes(4, "little").hex()


def test_lengths_and_head(tmp_path: Path) -> None:
    writer = EncodedWriter(tmp_path, "<i4")
    writer.append(part([([1], [2]), ([3, 4], [5]), ([6], [7, 8, 9])]), 3)
    writer.finish()
    dataset = EncodedDataset(tmp_path)
    assert dataset.tokens.dtype == np.int32
    assert dataset.lengths(np.array([2, 0, 1])).tolist() == [4, 2, 3]
    assert [len(dataset.first(rows)) for rows in (0, 2, 9)] == [3, 2, 3]
    assert len(list(dataset)) == 3
    for index in (-1, 3):
        with pytest.raises(IndexError):
            dataset[index]
    assert [row["answer_ids"].tolist() for row in dataset.__getitems__([2, 0])] == [[7, 8, 9], [2]]


def test_head(tmp_path: Path) -> None:
    writer = EncodedWriter(tmp_path / "a", "<u2")
    writer.append(part([([1], [2]), ([3, 4], [5]), ([6], [7, 8])]), 3)
    writer.finish()
    dataset = EncodedDataset(tmp_path / "a")
    assert [len(dataset.first(rows)) for rows in (0, 2, 9)] == [3, 2, 3]
    with pytest.raises(IndexError):
        dataset.first(2)[2]
    assert [ids.tolist() for ids in dataset.first(2)[1].values()] == [[3, 4], [5]]
