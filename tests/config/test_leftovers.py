import os
import time
from pathlib import Path

from ntl.config.leftovers import sweep

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
