"""Files read whole, plain and packed, and line by line."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.data import files
from ntl.data.files import Lines, make_once, map_file, read_file, read_text


@given(st.binary())
def test_only_line_feeds_end_a_line_and_the_last_is_optional(data: bytes) -> None:
    lines = Lines(data)
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    assert list(lines) == expected


def test_lines_over_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 7)
    written = [f"line {number}".encode() for number in range(40)]
    (tmp_path / "a").write_bytes(b"\n".join(written))
    lines = Lines(map_file(tmp_path / "a"))
    assert (list(lines), lines[-1], len(lines)) == (written, b"line 39", 40)
    with pytest.raises(IndexError):
        lines[40]
    (tmp_path / "empty").touch()
    assert len(Lines(map_file(tmp_path / "empty"))) == 0


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.GZ"])
def test_a_packed_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, text = gzip.compress(b"a\nb\n" * 1000, mtime=0), b"a\nb\n" * 1000
    (tmp_path / name).write_bytes(packed)
    assert read_file(tmp_path / name) == text
    for place in range(1, len(packed)):  # nothing at all is an empty text
        (tmp_path / name).write_bytes(packed[:place])
        with pytest.raises(UserError, match=r"truncated or damaged .*; fetch it again\.$"):
            read_file(tmp_path / name)
    monkeypatch.setattr(files, "UNPACKED", 1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(b"\n" * ((1 << 20) + 1)))
    with pytest.raises(UserError, match=r"unpacks to more than 1 MiB, which no text does; fetch it again\.$"):
        read_file(tmp_path / name)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^cannot read .*/none: No such file or directory\.$"):
        read_file(tmp_path / "none")
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfa\nb")
    assert read_text(tmp_path / "x") == "a\nb"
    (tmp_path / "x").write_bytes(b"a\nb\xff\n")
    with pytest.raises(UserError, match=rf"^{tmp_path / 'x'}:2: byte 0xff is not UTF-8; save the file as that\.$"):
        read_text(tmp_path / "x")


def test_a_folder_is_made_whole_or_not_at_all_and_once(tmp_path: Path) -> None:
    target, wrong = tmp_path / "a", [True]

    def find() -> str | None:
        return (target / "x").read_text() if (target / "x").exists() else None

    def write(new: Path) -> None:
        (new / "x").write_text("whole")
        if wrong:
            raise OSError(28, "No space left on device")

    (tmp_path / "a").mkdir()  # damaged: without its file
    with pytest.raises(UserError, match=rf"^cannot write it to {tmp_path}: No space left on device\.$"):
        make_once(target, find, write, print, "write it to")
    assert not [path for path in tmp_path.rglob("*") if path.name not in ("a", ".a.lock")]
    wrong.clear()
    assert make_once(target, find, write, print, "write it to") == "whole"
    wrong.append(True)
    assert make_once(target, find, write, print, "write it to") == "whole"
