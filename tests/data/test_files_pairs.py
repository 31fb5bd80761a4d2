"""Pairs over bytes and over a mapped file, read in blocks of any size."""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.data import files
from ntl.data.files import Pairs, iterate_members, map_file, map_unpacked

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=9)


def reference(data: bytes) -> list[tuple[str, str]] | None:
    """The format in three lines; None for what is an error."""
    try:
        lines = data.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return None
    return list(zip(lines[::2], lines[1::2], strict=True)) if all(lines) and len(lines) % 2 == 0 else None


@given(
    data=st.one_of(st.binary(max_size=60), st.lists(LINE, max_size=20).map(lambda lines: "\n".join(lines).encode())),
    block=st.integers(1, 30),
)
def test_blocks_of_any_size_read_the_same(data: bytes, block: int) -> None:
    found, reason = None, "x:"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        try:
            found = list(Pairs(data, "x"))
        except UserError as error:
            reason = str(error)
    assert reason.startswith("x:")
    assert found == reference(data)


def test_a_bad_byte_behind_the_first_block_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 8)
    with pytest.raises(UserError, match=r"^x:42: byte 0xff is not UTF-8"):
        Pairs(b"q\na\n" * 20 + b"q\n\xff\n" + b"q\na\n" * 20, "x")


def test_a_mapped_file_is_a_sequence_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"é{i}?\n{i}\n" for i in range(9000)))
    pairs = Pairs(map_file(path), "a.txt")
    assert len(pairs) == 9000
    assert (pairs[17], pairs[-1]) == (("é17?", "17"), ("é8999?", "8999"))
    assert pairs[3:9:2] == [("é3?", "3"), ("é5?", "5"), ("é7?", "7")]
    assert pairs[9000:] == []
    assert list(pairs.take(np.array([5, 0], dtype=np.uint32))) == [("é5?", "5"), ("é0?", "0")]
    assert [int(answer) for _, answer in pairs] == list(range(9000))
    with pytest.raises(IndexError):
        pairs[9000]


def test_an_empty_and_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert map_file(tmp_path / "empty") == b""
    with pytest.raises(UserError, match=r"cannot read .*none: No such file"):
        map_file(tmp_path / "none")


def test_a_packed_file_is_unpacked_without_holding_it(tmp_path: Path) -> None:
    scratch, path, content = tmp_path / "scratch", tmp_path / "a.txt.gz", b"how much?\n12\n" * 2_000_000
    scratch.mkdir()
    path.write_bytes(gzip.compress(content, 1))
    tracemalloc.start()
    try:
        data = map_unpacked(path, scratch)
        assert tracemalloc.get_traced_memory()[1] < len(content) / 20
    finally:
        tracemalloc.stop()
    assert data[:] == content
    assert list(scratch.iterdir()) == []
    path.write_bytes(gzip.compress(b""))
    assert map_unpacked(path, scratch) == b""


def test_a_packed_file_that_cannot_be_unpacked(tmp_path: Path) -> None:
    path, lines = tmp_path / "a.txt.gz", b"".join(b"%d\n" % (i * i) for i in range(100_000))
    path.write_bytes(gzip.compress(lines)[:-20_000])
    with pytest.raises(UserError, match=r"a\.txt\.gz:[0-9]{5}: truncated or damaged here"):
        map_unpacked(path, tmp_path)
    with pytest.raises(UserError, match=r"^cannot unpack .*a\.txt\.gz into .*none: No such file"):
        map_unpacked(path, tmp_path / "none")
    with pytest.raises(UserError, match=r"^cannot unpack .*b\.gz into .*: No such file or directory \(.*b\.gz\)\.$"):
        map_unpacked(tmp_path / "b.gz", tmp_path)


def test_members_come_one_by_one(tmp_path: Path) -> None:
    import io
    import tarfile

    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for name in ("b", "a", "c"):
            info = tarfile.TarInfo(f"top/{name}")
            info.size = 1
            tar.addfile(info, io.BytesIO(name.encode()))
    assert list(iterate_members(tmp_path / "a.tar.gz", ["a", "b", "none"])) == [("b", b"b"), ("a", b"a")]
