"""The prepared form of a data set: a folder with one JSON Lines file per split, and a manifest with their digests."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast, overload

import numpy as np

from ntl.config.targets import check_name
from ntl.data.files import Buffer, line_blocks, line_bounds, map_file
from ntl.system.errors import UserError
from ntl.system.files import sha256_of, sync

MANIFEST = "manifest.json"
SCHEMA = 1
FIELDS = ("id", "question", "answer")
# Rows written at a time.
CHUNK = 20_000


class Example(TypedDict):
    """One row. ``id`` is ``<split>/<number>``, or ``<split>/<group>/<number>`` where the data set has groups."""

    id: str
    question: str
    answer: str
    before: NotRequired[str]  # earlier messages, as JSON


class Rows(Sequence[Example]):
    """The rows of a prepared split, over the bytes of its file; a row is parsed each time it is read."""

    def __init__(self, data: Buffer, label: str = "prepared data") -> None:
        self._data = data
        self._label = label

    @cached_property
    def _bounds(self) -> np.ndarray:
        return line_bounds(self._data, self._label)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self._parse(self._data[self._bounds[position] : self._bounds[position + 1]])

    def __iter__(self) -> Iterator[Example]:
        for block in self.blocks():
            yield from map(self._parse, block.splitlines())

    def _parse(self, line: bytes) -> Example:
        try:
            return json.loads(line)
        except ValueError as error:
            raise UserError(f"{self._label}: a line is no JSON; delete this folder and prepare it again.") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, (bytes(self._data), self._label)

    def blocks(self) -> Iterator[bytes]:
        """As ``line_blocks``."""
        return line_blocks(self._data)


def write_split(folder: Path, split: str, examples: Iterable[Example]) -> dict[str, Any]:
    """Write ``<split>.jsonl``, and ``<split>.arrow`` if pyarrow is installed; returns the manifest's entry.

    All rows have the fields of the first one. Memory does not grow with the number of rows.
    """
    path = folder / f"{split}.jsonl"
    # Everything but ASCII is escaped, so that lines of bytes and lines of text are the same.
    quote = json.encoder.encode_basestring_ascii
    rows, remaining = 0, cast(Iterator[Any], iter(examples))
    first = list(islice(remaining, 1))
    fields, remaining = tuple(first[0]) if first else FIELDS, chain(first, remaining)
    line = "{{" + ",".join(f'"{field}":{{}}' for field in fields) + "}}\n"
    with open(path, "w", encoding="ascii", newline="\n") as stream, _arrow_writer(path, fields) as write_arrow:
        while chunk := [tuple(map(row.__getitem__, fields)) for row in islice(remaining, CHUNK)]:
            stream.writelines(line.format(*map(quote, values)) for values in chunk)
            write_arrow(chunk)
            rows += len(chunk)
    entry = {"rows": rows, **_file_entry(path)}
    arrow = path.with_suffix(".arrow")
    if rows and arrow.is_file():
        entry["arrow"] = _file_entry(arrow)
    else:
        arrow.unlink(missing_ok=True)
    return entry


def _file_entry(path: Path) -> dict[str, Any]:
    sync(path)
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


@contextmanager
def _arrow_writer(path: Path, fields: Sequence[str]) -> Iterator[Callable[[list[tuple[str, ...]]], None]]:
    # `datasets` maps an Arrow file into memory instead of reading it. Without pyarrow there is no `datasets` either.
    try:
        import pyarrow
    except ImportError:
        yield lambda chunk: None
        return
    schema = pyarrow.schema([(field, pyarrow.string()) for field in fields])

    def write(chunk: list[tuple[str, ...]]) -> None:
        columns = [pyarrow.array(column, pyarrow.string()) for column in zip(*chunk, strict=True)]
        writer.write_batch(pyarrow.record_batch(columns, schema=schema))

    with pyarrow.OSFile(str(path.with_suffix(".arrow")), "wb") as sink, pyarrow.ipc.new_stream(sink, schema) as writer:
        yield write


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared folder: source, versions and, per split, rows, bytes and sha256."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        for split, entry in manifest["splits"].items():
            check_name(split, f"{path}:1: split")
            if not (isinstance(entry["rows"], int) and isinstance(entry["bytes"], int) and entry["sha256"]):
                raise ValueError("an entry without rows, bytes or sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}:1: missing or damaged ({error!r}); {_remedy(folder)}.") from error
    return manifest


def check_files(folder: Path, *, digests: bool) -> dict[str, Any]:
    """The manifest, after a check of every split's size and, with ``digests``, of its sha256."""
    manifest = read_manifest(folder)
    for split, entry in manifest["splits"].items():
        path = folder / f"{split}.jsonl"
        if not path.is_file():
            raise UserError(f"{path}: missing; {_remedy(folder)}.")
        if digests or path.stat().st_size != entry["bytes"]:
            read_split(folder, split, entry)
    return manifest


def read_split(folder: Path, split: str, entry: dict[str, Any]) -> Rows:
    """The rows of a split; UserError if its sha256 is not that of the manifest."""
    path = folder / f"{split}.jsonl"
    data = map_file(path)
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise UserError(
            f"{path}: not the file that was prepared: its sha256 differs from {MANIFEST}; {_remedy(folder)}."
        )
    return Rows(data, str(path))


def intact_arrow(folder: Path, entry: dict[str, Any]) -> Path | None:
    """The Arrow copy of a split, or None if it is missing or differs from the manifest."""
    arrow = entry.get("arrow")
    if arrow is None:
        return None
    path = folder / check_name(arrow["file"], f"{folder / MANIFEST}: file")
    return path if path.is_file() and sha256_of(path) == arrow["sha256"] else None


def _remedy(folder: Path) -> str:
    return f"delete the folder {folder} and prepare it again with scripts/prepare_data.py"
