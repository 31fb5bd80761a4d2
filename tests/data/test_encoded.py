"""Arrays that grow on disk, and what a reader finds of them."""

import json
import pickle
import random
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from ntl.config import UserError
from ntl.config.cli import explain
from ntl.data import encoded
from ntl.data.encode_worker import EncodedBlock
from ntl.data.encoded import Damaged, EncodedDataset, EncodedWriter

EXAMPLES = st.lists(st.tuples(st.lists(st.integers(0, 65535), min_size=1), st.lists(st.integers(0, 65535), min_size=1)))


def part(examples: list[tuple[list[int], list[int]]]) -> EncodedBlock:
    flat = [token for question, answer in examples for token in question + answer]
    sizes = np.array([len(ids) for pair in examples for ids in pair], dtype=np.int64)
    return EncodedBlock(np.array(flat, dtype=np.uint16), sizes, (len(examples), 0, 1, 2, 3))


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
    with pytest.raises(IndexError):
        dataset.first(2)[2]
    assert [ids.tolist() for ids in dataset.first(2)[1].values()] == [[3, 4], [5]]
    assert len(list(dataset)) == 3
    for index in (-1, 3):
        with pytest.raises(IndexError):
            dataset[index]
    assert [row["answer_ids"].tolist() for row in dataset.__getitems__([2, 0])] == [[7, 8, 9], [2]]


NAMES = ("tokens.npy", "offsets.npy", "values.npy", "about.json")
Pairs = list[list[float]]


@pytest.fixture(params=[1 << 22, 0], ids=["at once", "block by block"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """600 pairs in blocks of 256 bytes, compared when they are opened, or when they are read."""
    monkeypatch.setattr(encoded, "BLOCK", 256)
    monkeypatch.setattr(encoded, "AT_ONCE", request.param)
    write(tmp_path / "whole", range(600))
    return tmp_path / "whole"


def block(number: int) -> EncodedBlock:
    """The pair of this number: a question and an answer of 1 to 5 tokens that depend on it."""
    sizes = np.array([number % 5 + 1, number % 3 + 1])
    tokens = np.arange(sizes.sum()) * 31 + number
    return EncodedBlock(tokens.astype("<u2"), sizes, (0, 0, 5, 3, 8), tokens / 7)


def write(folder: Path, numbers: range) -> None:
    writer = EncodedWriter(folder, "<u2", with_values=True)
    for number in numbers:
        writer.append(block(number), number + 1)
    writer.finish()


def pairs(dataset: EncodedDataset) -> Iterator[Pairs]:
    for index in range(len(dataset)):
        yield [part.tolist() for part in dataset[index].values()]


def whole() -> list[Pairs]:
    def parts(number: int) -> Pairs:
        made = block(number)
        assert made.values is not None
        middle = int(made.sizes[0])
        both = [(made.tokens[:middle], made.tokens[middle:]), (made.values[:middle], made.values[middle:])]
        return [part.tolist() for sides in both for part in sides]

    return [parts(number) for number in range(600)]


def flip(path: Path, places: list[int]) -> None:
    content = bytearray(path.read_bytes())
    for place in places:
        content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bits", [1, 20])
def test_a_flipped_bit_is_told_and_never_read(folder: Path, tmp_path: Path, name: str, bits: int) -> None:
    expected, draw = whole(), random.Random(bits)
    assert list(pairs(EncodedDataset(folder))) == expected
    size = 8 * (folder / name).stat().st_size
    for number in range(60):
        damaged = Path(shutil.copytree(folder, tmp_path / f"damaged-{number}"))
        flip(damaged / name, draw.sample(range(size), bits))
        read, message = [], ""
        try:
            for pair in pairs(EncodedDataset(damaged)):
                read.append(pair)
        except Damaged as error:
            message = str(error)
        # What is read before the damaged block is as it was.
        assert read == expected[: len(read)]
        assert message.startswith(f"{damaged}: damaged (")
        assert "\n" not in message


def test_a_file_that_is_cut_or_lost_or_another_is_told(folder: Path, tmp_path: Path) -> None:
    for name in NAMES:
        for number, content in enumerate([b"", (folder / name).read_bytes()[:-1], None]):
            damaged = Path(shutil.copytree(folder, tmp_path / f"{name}-{number}"))
            if content is None:
                (damaged / name).unlink()
            else:
                (damaged / name).write_bytes(content)
            with pytest.raises(Damaged, match=r"damaged .*remove this folder"):
                EncodedDataset(damaged)
    write(tmp_path / "other", range(1, 601))
    for name in ("tokens.npy", "offsets.npy", "values.npy"):
        shutil.copy(folder / name, tmp_path / "other" / name)
        with pytest.raises(Damaged):
            list(pairs(EncodedDataset(tmp_path / "other")))
        shutil.rmtree(tmp_path / "other")
        write(tmp_path / "other", range(1, 601))


def test_blocks_are_compared_once_and_only_where_something_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    crc32 = encoded.zlib.crc32
    dataset = EncodedDataset(folder)

    def counted(data: Any, *start: int) -> int:
        compared.append(len(data))
        return crc32(data, *start)

    monkeypatch.setattr(encoded.zlib, "crc32", counted)
    at_once = encoded.AT_ONCE > 0
    dataset[0]
    # One block of each array.
    assert compared == ([] if at_once else [256] * 3)
    dataset[0]
    dataset.__getitems__([0, 0])
    assert len(compared) == (0 if at_once else 3)
    # 2 x 300 and 2 x 301 of the offsets are in one block of 32.
    assert dataset.lengths(np.array([300])).tolist() == [sum(block(300).sizes)]
    assert len(compared) == (0 if at_once else 4)


def test_lengths_are_compared_too(folder: Path) -> None:
    # The last of 1,201 offsets, of 8 bytes each behind a header of 128.
    flip(folder / "offsets.npy", [8 * (128 + 8 * 1200)])
    with pytest.raises(Damaged, match=r"offsets\.npy: block 37 of 38 has another checksum"):
        EncodedDataset(folder).lengths(np.array([599]))


def test_what_is_damaged_counts_as_unfinished_where_it_can(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(folder / "tokens.npy", [8 * 2000])
    about = (folder / "about.json").read_bytes()
    with pytest.raises(Damaged, match=r"; the same command makes it again\.$"):
        list(pairs(EncodedDataset(folder)))
    assert not (folder / "about.json").exists()
    (folder / "about.json").write_bytes(about)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(Damaged, match=r"; remove this folder, and it is made again\.$"):
        list(pairs(EncodedDataset(folder)))


def test_a_data_worker_tells_it_in_one_line(folder: Path) -> None:
    loader: Any = DataLoader(EncodedDataset(folder), num_workers=1, collate_fn=list)  # pyright: ignore[reportArgumentType]
    flip(folder / "tokens.npy", [8 * 2000])
    if encoded.AT_ONCE:
        assert len(list(loader)) == 600  # compared before it was damaged
        return
    with pytest.raises(UserError) as raised:
        list(loader)
    line = explain(raised.value)
    assert line.startswith(f"{folder}: damaged (tokens.npy: block ")
    assert line.endswith("; the same command makes it again.")


@pytest.mark.slow
def test_a_copy_in_another_process_reads_the_files(folder: Path) -> None:
    data = pickle.dumps(EncodedDataset(folder))
    assert len(data) < 1000
    assert list(pairs(pickle.loads(data))) == whole()


@pytest.mark.parametrize("name", ["tokens.npy", "offsets.npy", "values.npy", "journal.json"])
def test_what_is_gone_on_with_is_compared_with_the_journal(tmp_path: Path, name: str) -> None:
    for place in range(0, 2000, 333):
        writer = EncodedWriter(tmp_path / "part", "<u2", with_values=True)
        for number in range(300):
            writer.append(block(number), number + 1)
        writer.journal()
        flip(tmp_path / "part" / name, [1024 + place % 1200])
        again = EncodedWriter(tmp_path / "part", "<u2", with_values=True)
        assert (again.damaged, again.position, again.rows) == (True, 0, 0)
        for number in range(600):
            again.append(block(number), number + 1)
        again.finish()
        assert list(pairs(EncodedDataset(tmp_path / "part"))) == whole()
        shutil.rmtree(tmp_path / "part")


def test_what_an_older_version_wrote_is_told(folder: Path) -> None:
    (folder / "about.json").write_text(json.dumps({"truncated": 0, "longest_answer": 3}))
    with pytest.raises(Damaged, match="its description has no checksum, or another"):
        EncodedDataset(folder)
