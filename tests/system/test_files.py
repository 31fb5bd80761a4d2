"""Atomic writing of files, and the removal of what killed processes leave behind."""

import os
import time
from pathlib import Path

import pytest

from ntl.system.errors import UserError
from ntl.system.files import atomic_writer, remove_parts, sweep, write_text

HOUR = 3600


def aged(path: Path, hours: float) -> None:
    os.utime(path, (time.time() - hours * HOUR,) * 2)


def make(parent: Path, name: str, folder_hours: float, file_hours: float) -> None:
    (parent / name / "deep").mkdir(parents=True)
    (parent / name / "deep" / "file").touch()
    aged(parent / name / "deep" / "file", file_hours)
    for path in (parent / name / "deep", parent / name):
        aged(path, folder_hours)


def test_only_what_matches_and_nobody_wrote_to_goes(tmp_path: Path) -> None:
    make(tmp_path, ".a.part-gone", 25, 30)
    make(tmp_path, ".b.part-written", 25, 23)
    make(tmp_path, ".c.part-new", 23, 25)
    make(tmp_path, ".d.part", 25, 25)
    (tmp_path / ".e.part-file").touch()
    aged(tmp_path / ".e.part-file", 25)
    sweep(tmp_path, ".*.part-*")
    kept = [".b.part-written", ".c.part-new", ".d.part", ".e.part-file"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    sweep(tmp_path, ".*.part-*", unused_seconds=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".d.part", ".e.part-file"]
    sweep(tmp_path / "none", "*")


def test_a_text_that_could_not_be_written_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("old")

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match=r"cannot write .*a\.md: No space left on device"):
        write_text(tmp_path / "a.md", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.md", "old")]


def test_atomic_writer_leaves_a_whole_file_or_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    with atomic_writer(path) as stream:
        stream.write(b"old")
    with pytest.raises(TypeError), atomic_writer(path) as stream:
        stream.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert [child.name for child in path.parent.iterdir()] == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    for name in (".record.json.1a.part", "record.json", ".config.yaml"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config.yaml", "record.json"]
