"""A data set reads files in its own way and declares nothing: what it was made from is never stale."""

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.config.data import DatasetConfig
from ntl.data import reads
from ntl.data.dataset import Log, Material, TextDataset, numbered
from ntl.data.prepared import Prepared
from ntl.data.store import Example

Make = Callable[..., Prepared]
OLD, NEW = ["1", "2", "3"], ["1", "2", "4"]


class Reading(TextDataset):
    """Its training rows are the numbers that ``read`` finds in a file."""

    splits = ("train", "test")
    test_splits = ("test",)
    read: Callable[[Path], list[str]] = staticmethod(lambda path: path.read_text().split())
    file = "mine/numbers.txt"

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        log("preparing")

        def rows() -> Iterator[Example]:
            # Read only while the rows are written.
            numbers = self.read(data_dir / self.file)
            yield from numbered("train", [(f"{n}?", n) for n in numbers], len(numbers))

        return Material({"train": rows(), "test": numbered("test", [("0?", "0")], 1)})


def with_gzip(path: Path) -> list[str]:
    with gzip.open(path, "rt") as stream:
        return str(stream.read()).split()


def with_folder(path: Path) -> list[str]:
    return [word for file in sorted(path.parent.glob("*.txt")) for word in file.read_text().split()]


def written(path: Path, numbers: list[str]) -> None:
    path.write_text("\n".join(numbers))


def gzipped(path: Path, numbers: list[str]) -> None:
    path.write_bytes(gzip.compress("\n".join(numbers).encode(), mtime=0))


def as_array(path: Path, numbers: list[str]) -> None:
    with open(path, "wb") as stream:
        np.save(stream, np.array(numbers, int))


# How a file is read, and how its numbers are written.
WAYS: dict[str, tuple[Callable[[Path], list[str]], Callable[[Path, list[str]], None]]] = {
    "text": (lambda path: path.read_text().split(), written),
    "relative path": (lambda path: Path(os.path.relpath(path)).read_text().split(), written),
    "every file of a folder": (with_folder, written),
    "gzip": (with_gzip, gzipped),
    "memory map": (lambda path: [str(n) for n in np.load(path, mmap_mode="r")], as_array),
}


def answers(prepared: Prepared) -> list[str]:
    return [row["answer"] for row in prepared.rows("train")]


def reading(data_dir: Path, kind: type[TextDataset] = Reading) -> Prepared:
    return Prepared(kind(DatasetConfig(_target_="", name="reading")), data_dir)


@pytest.fixture
def file(data_dir: Path) -> Path:
    (data_dir / "mine").mkdir()
    written(data_dir / Reading.file, OLD)
    return data_dir / Reading.file


@pytest.fixture
def make(data_dir: Path, silent: list[str]) -> Make:
    """A data set of this class, prepared by an object of its own; what it logs goes into ``silent``."""

    def prepared(kind: type[TextDataset] = Reading) -> Prepared:
        made = reading(data_dir, kind)
        made.prepare(silent.append)
        return made

    return prepared


@pytest.mark.parametrize("way", WAYS)
def test_another_content_is_another_data_set(
    way: str, data_dir: Path, file: Path, make: Make, silent: list[str]
) -> None:
    read, write = WAYS[way]
    kind = type("Mine", (Reading,), {"read": staticmethod(read)})
    write(file, OLD)
    first = make(kind)
    assert answers(first) == OLD
    stat = file.stat()
    write(file, NEW)
    # Of the same size, and of the same time for who sets it back.
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = make(kind)
    assert answers(second) == NEW
    assert silent == ["preparing", f"reading: {file} has changed since it was prepared: preparing it anew", "preparing"]
    keys = {dataset.content_key("train") for dataset in (first, second)}
    assert len(keys) == 2
    # A run that is at the first goes on with it.
    assert answers(first) == OLD
    assert first.fingerprint() != second.fingerprint()
    # And it is found again, without being made again.
    write(file, OLD)
    assert answers(make(kind)) == OLD
    assert len(silent) == 3


def test_a_file_that_is_only_touched_is_the_same(data_dir: Path, file: Path, make: Make, silent: list[str]) -> None:
    folder = make().folder
    assert folder.name == make().dataset.folder_name
    os.utime(file, (1, 1))
    written(file, OLD)
    assert make().folder == folder
    assert silent == ["preparing"]


def test_a_file_that_a_setting_names_and_a_library_reads(
    data_dir: Path, file: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyarrow does, whose files Python does not see."""
    pyarrow = pytest.importorskip("pyarrow")

    class Foreign(Reading):
        def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
            with pyarrow.OSFile(str(file), "rb") as source:
                numbers = source.read().decode().split()
            return Material({"train": numbered("train", [("", n) for n in numbers], 3), "test": []})

        @property
        def values(self) -> dict[str, Any]:
            return {**super().values, "sources": [{"path": str(file)}]}

    assert answers(make(Foreign)) == OLD
    written(file, NEW)
    assert answers(make(Foreign)) == NEW


def test_without_its_file_the_copy_is_used_and_of_two_none(
    data_dir: Path, file: Path, make: Make, tmp_path: Path, silent: list[str]
) -> None:
    make()
    file.rename(tmp_path / "away")
    assert answers(make()) == OLD
    written(file, NEW)
    make()
    file.unlink()
    with pytest.raises(UserError, match=r"^\{data\}/mine/numbers\.txt is gone, and .* were made from different ones; "):
        make()
    (tmp_path / "away").rename(file)
    assert answers(make()) == OLD
    assert silent.count("preparing") == 2


def test_a_folder_that_is_listed_and_gets_another_file(
    data_dir: Path, file: Path, make: Make, silent: list[str]
) -> None:
    kind = type("Mine", (Reading,), {"read": staticmethod(with_folder)})
    assert answers(make(kind)) == OLD
    (file.parent / ".hidden").touch()
    make(kind)
    assert len(silent) == 1
    written(file.parent / "more.txt", ["9"])
    assert answers(make(kind)) == ["9", *OLD]
    (file.parent / "more.txt").unlink()
    assert answers(make(kind)) == OLD
    assert silent.count("preparing") == 2


def test_a_file_that_changes_while_it_is_read(data_dir: Path, file: Path, make: Make, silent: list[str]) -> None:
    def disturbed(path: Path) -> list[str]:
        numbers = path.read_text().split()
        os.utime(path, (1, 1))
        return numbers

    kind = type("Mine", (Reading,), {"read": staticmethod(disturbed)})
    with pytest.raises(UserError, match=rf"^{file}: was changed while it was read; run the same command again\.$"):
        make(kind)
    assert reading(data_dir, kind).find() is None
    assert [path.name for path in data_dir.iterdir() if path.is_dir()] == ["mine"]


def test_a_shared_folder_is_current_where_its_files_are(
    data_dir: Path, file: Path, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared in one data folder, moved, and read from it as NTL_DATA_DIR."""
    make()
    shared = data_dir.rename(tmp_path / "shared")
    data_dir.mkdir()
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert make().folder.parent == shared
    written(shared / Reading.file, NEW)
    (data_dir / "mine").mkdir()
    written(data_dir / Reading.file, NEW)
    assert make().folder.parent == data_dir
    assert not list(shared.glob("reading-*-*"))


def test_other_code_makes_other_rows(data_dir: Path, file: Path, make: Make, silent) -> None:
    own = reads.code_of(Reading)
    make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ntl.data.prepared.code_of", lambda kind: "0" * 64)
        patch.setattr(Reading, "read", staticmethod(lambda path: [f"1{n}" for n in path.read_text().split()]))
        assert answers(make()) == ["11", "12", "13"]
        # Its file is gone, and nothing can be made again: of two that of the same code.
        file.rename(data_dir / "away")
        assert answers(make()) == ["11", "12", "13"]
        patch.setattr("ntl.data.prepared.code_of", reads.code_of)
        assert answers(make()) == OLD
    (data_dir / "away").rename(file)
    assert answers(make()) == OLD
    assert silent == ["preparing", "preparing"]
    assert own == reads.code_of(Reading)


def test_without_being_prepared_the_changed_file_is_named(data_dir: Path, file: Path, make: Make) -> None:
    make()
    written(file, NEW)
    assert reading(data_dir).digests() == {}
    message = rf"^reading with these settings is not prepared: {file} has changed since; run python scripts/"
    with pytest.raises(UserError, match=message):
        reading(data_dir).rows("train")


def test_how_the_data_differs_from_a_run_s(data_dir: Path, file: Path, make: Make) -> None:
    prepared = reading(data_dir)
    assert prepared.changes_since({"train.jsonl": "a"}) == ""
    first = make().fingerprint()["files"]
    assert prepared.changes_since(first) == ""
    assert prepared.changes_since({}) == ""
    other = {**first, "train.jsonl": "a"}
    assert prepared.changes_since(other) == f"train.jsonl had sha256 a and has {first['train.jsonl']}"
    written(file, NEW)
    assert prepared.changes_since(first) == f"{file} has other content since"
    second = make().fingerprint()["files"]
    assert prepared.changes_since(first) == f"{file} has other content since"
    assert prepared.changes_since(second) == ""
