"""Packed files with a flipped bit anywhere, and packed files that unpack to far more than text does."""

import gzip
import io
import random
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data import files
from ntl.data.files import iterate_members, map_unpacked, read_file
from ntl.data.sets.deepmind import unpack

TEXT = b"".join(b"What is %d times %d?\n%d\n" % (a, b, a * b) for a in range(40, 60) for b in range(11, 23))
WANTED = {"easy/a.txt": 1, "hard/b.txt": 1}


def packed_tree(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"top/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def from_members(path: Path) -> bytes:
    return b"".join(content for _, content in sorted(iterate_members(path, WANTED)))


def from_tree(path: Path) -> bytes:
    unpack(path, path.parent / "tree", WANTED, lambda line: None)
    return b"".join((path.parent / "tree" / name).read_bytes() for name in WANTED)


def by_map(path: Path) -> bytes:
    return map_unpacked(path, path.parent)[:]


ARCHIVE = packed_tree({"easy/a.txt": TEXT, "other.txt": TEXT[::-1], "hard/b.txt": TEXT[:3000], "last.txt": TEXT[9:]})
CASES = [
    pytest.param(from_members, ARCHIVE, TEXT + TEXT[:3000], id="members"),
    pytest.param(from_tree, ARCHIVE, TEXT + TEXT[:3000], id="unpacked archive"),
    pytest.param(read_file, gzip.compress(TEXT), TEXT, id="file"),
    pytest.param(by_map, gzip.compress(TEXT), TEXT, id="mapped file"),
]


@pytest.mark.parametrize(("read", "packed", "text"), CASES)
def test_a_flipped_bit_is_an_error_or_changes_nothing(
    tmp_path: Path, read: Callable[[Path], bytes], packed: bytes, text: bytes
) -> None:
    draw = random.Random(7)
    # All of the first and the last 30 bytes, which are gzip's own, and 400 places between them.
    places = [*range(240), *range(8 * len(packed) - 240, 8 * len(packed))]
    places += draw.sample(range(240, 8 * len(packed) - 240), 400)
    # Files on the disk are synced, which takes its time.
    places = places[:: 12 if read is from_tree else 1]
    told = 0
    for number, place in enumerate(places):
        folder = tmp_path / str(number)
        folder.mkdir()
        damaged = bytearray(packed)
        damaged[place // 8] ^= 1 << place % 8
        path = folder / "a.gz"
        path.write_bytes(damaged)
        found, message = text, ""
        try:
            found = read(path)
        except UserError as error:
            message = str(error)
        assert found == text, f"bit {place} of {8 * len(packed)}"
        if message:
            told += 1
            assert str(path) in message
            assert "\n" not in message
            assert [child.name for child in folder.rglob("*") if child.is_file()] == ["a.gz"]
    assert told > len(places) / 2


@pytest.mark.parametrize(
    "rest", [b"", packed_tree({"easy/a.txt": TEXT})[:50], b"\0" * 40], ids=["nothing", "another archive", "zeros"]
)
def test_what_follows_a_whole_archive(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(ARCHIVE + rest)
    if rest.strip(b"\0"):
        with pytest.raises(UserError, match=r"a\.tar\.gz: truncated or damaged"):
            from_members(path)
    else:
        assert from_members(path) == TEXT + TEXT[:3000]


def pax_bomb(size: int) -> bytes:
    """An archive whose first header says that the next ``size`` bytes are its attributes."""
    info = tarfile.TarInfo("top/easy/a.txt")
    info.type, info.size = tarfile.XHDTYPE, size
    return gzip.compress(info.tobuf() + bytes(size), 9)


BOMBS = [
    pytest.param(read_file, gzip.compress(bytes(30 << 20)), id="file"),
    pytest.param(by_map, gzip.compress(bytes(30 << 20)), id="mapped file"),
    pytest.param(from_members, packed_tree({"easy/a.txt": bytes(30 << 20)}), id="member"),
    pytest.param(from_members, packed_tree({"other.txt": bytes(30 << 20)}), id="member not wanted"),
    pytest.param(from_members, pax_bomb(30 << 20), id="header"),
    pytest.param(from_tree, packed_tree({"easy/a.txt": bytes(30 << 20)}), id="unpacked archive"),
]


@pytest.mark.parametrize(("read", "packed"), BOMBS)
def test_a_bomb_is_one_line_and_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], bytes], packed: bytes
) -> None:
    monkeypatch.setattr(files, "UNPACKED", 4 << 20)
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as raised:
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    message = str(raised.value)
    assert "\n" not in message
    assert f"{path}: unpacks to more than 4 MiB from {len(packed):,} bytes" in message
    assert [child.name for child in tmp_path.rglob("*") if child.is_file()] == ["a.gz"]


def test_dense_text_of_any_size_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNPACKED", 1000)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT))
    assert len(TEXT) > 5000
    assert read_file(path) == TEXT
