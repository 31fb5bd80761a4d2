"""The prepared form of a data set: a folder with one JSON-lines file a split and a manifest that vouches for them."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, overload

import numpy as np

from ntl.config import UserError
from ntl.data.files import one_line_errors, parse_object, sha256_of

MANIFEST = "manifest.json"
SCHEMA = 1
FIELDS = ("id", "question", "answer")
Fault = Callable[[str, str], str | None]


class Example(TypedDict):
    """One row. ``id`` is ``<split>/<number>``, or ``<split>/<group>/<number>`` where the data set has groups."""

    id: str
    question: str
    answer: str


class Rows(Sequence[Example]):
    """The rows of a prepared split over its raw bytes: a row is parsed when it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n"))
        self._bounds = np.concatenate([[-1], ends]) + 1

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
        return json.loads(self._data[self._bounds[position] : self._bounds[position + 1]])

    def __iter__(self) -> Iterator[Example]:
        for start in range(0, len(self), 4096):
            stop = min(start + 4096, len(self))
            block = self._data[self._bounds[start] : self._bounds[stop]]
            yield from (json.loads(line) for line in block.splitlines())


def write_split(folder: Path, split: str, examples: Iterable[Example]) -> dict[str, Any]:
    """Write ``<split>.jsonl``, and ``<split>.arrow`` where pyarrow is there. Returns the manifest's entry."""
    path = folder / f"{split}.jsonl"
    # ASCII with everything else escaped: a line of bytes and a line of text are then the same thing.
    quote = json.encoder.encode_basestring_ascii
    rows = 0
    with open(path, "w", encoding="ascii", newline="\n") as stream:
        for example in examples:
            name, question, answer = quote(example["id"]), quote(example["question"]), quote(example["answer"])
            stream.write(f'{{"id":{name},"question":{question},"answer":{answer}}}\n')
            rows += 1
    entry = {"rows": rows, **_seal(path)}
    if rows and _write_arrow(path):
        entry["arrow"] = _seal(path.with_suffix(".arrow"))
    return entry


def _seal(path: Path) -> dict[str, Any]:
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
    return {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _write_arrow(path: Path) -> bool:
    # The Arrow copy lets `datasets` map a million rows into memory instead of holding them; without pyarrow there is
    # no `datasets` either.
    try:
        import pyarrow
        import pyarrow.json
    except ImportError:
        return False
    schema = pyarrow.schema([(field, pyarrow.string()) for field in FIELDS])
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    table = pyarrow.json.read_json(path, parse_options=options)
    with pyarrow.OSFile(str(path.with_suffix(".arrow")), "wb") as sink, pyarrow.ipc.new_stream(sink, schema) as writer:
        writer.write_table(table)
    return True


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a prepared folder: source, versions and, per split, rows, bytes and sha256."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        for entry in manifest["splits"].values():
            if not (isinstance(entry["rows"], int) and isinstance(entry["bytes"], int) and entry["sha256"]):
                raise ValueError("an entry without rows, bytes or sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}:1: missing or damaged ({error!r}); {_remedy(folder)}.") from error
    return manifest


def check_files(folder: Path, fault: Fault, *, digests: bool) -> dict[str, Any]:
    """The manifest, after a check of every split's size and, with ``digests``, of its sha256."""
    manifest = read_manifest(folder)
    for split, entry in manifest["splits"].items():
        path = folder / f"{split}.jsonl"
        if not path.is_file():
            raise UserError(f"{path}: missing; {_remedy(folder)}.")
        if digests or path.stat().st_size != entry["bytes"]:
            read_split(folder, split, entry, fault)
    return manifest


def read_split(folder: Path, split: str, entry: dict[str, Any], fault: Fault) -> Rows:
    """The rows of a split whose sha256 agrees with the manifest; UserError names the damaged line otherwise."""
    path = folder / f"{split}.jsonl"
    with one_line_errors("read", path):
        data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise UserError(_locate_damage(path, data, entry, fault))
    return Rows(data)


def intact_arrow(folder: Path, entry: dict[str, Any]) -> Path | None:
    """The Arrow copy of a split, or None where there is none that agrees with the manifest."""
    arrow = entry.get("arrow")
    if arrow is None:
        return None
    path = folder / arrow["file"]
    return path if path.is_file() and sha256_of(path) == arrow["sha256"] else None


def _locate_damage(path: Path, data: bytes, entry: dict[str, Any], fault: Fault) -> str:
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1] if lines[-1] == b"" else lines, start=1):
        label = f"{path}:{number}"
        try:
            row = parse_object(line.decode("ascii"), label, FIELDS)
        except (UserError, UnicodeDecodeError) as error:
            reason = str(error).removeprefix(f"{label}: ").removesuffix(".")
            return f"{label}: damaged ({reason}); {_remedy(path.parent)}."
        number_in_id = row["id"].rpartition("/")[2]
        wrong = fault(row["question"], row["answer"])
        if not number_in_id.isdecimal() or int(number_in_id) != number - 1 or set(row) != set(FIELDS):
            wrong = f"not row {number - 1}"
        if wrong:
            return f"{label}: damaged ({wrong}); {_remedy(path.parent)}."
    end = f"{path}:{len(lines)}" if len(lines) - 1 < entry["rows"] else str(path)
    return f"{end}: not the file that was prepared (its sha256 differs from {MANIFEST}); {_remedy(path.parent)}."


def _remedy(folder: Path) -> str:
    return f"delete the folder {folder} and prepare it again with scripts/prepare_data.py"
