"""Readers that give examples or one clear error with file and line, and writers that leave a whole file or none."""

import gzip
import hashlib
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ntl.config import UserError

Pair = tuple[str, str]
DAMAGE = (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, IndexError)


def read_file(path: Path) -> bytes:
    """The bytes of a file, decompressed where its name ends in ``.gz``. UserError names the line it breaks at."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as stream:
            return _drain(stream, str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_members(archive: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Members of a ``.tar.gz`` by their path below its top folder; those it lacks are left out of the result.

    Stops at the last wanted member, so that a large archive is not read to its end.
    """
    found: dict[str, bytes] = {}
    last = "the start"
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                last = member.name
                below_top = member.name.removeprefix("./").partition("/")[2]
                stream = tar.extractfile(member) if below_top in wanted and member.isfile() else None
                if stream is not None:
                    found[below_top] = _drain(stream, f"{archive}/{member.name}")
                if len(found) == len(set(wanted)):
                    break
    except DAMAGE as error:
        raise UserError(f"{archive}: truncated or damaged after {last} ({error}); fetch it again.") from error
    return found


def _drain(stream: Any, label: str) -> bytes:
    # read1 hands over what was decompressed before the damage, so that the line can be named.
    chunks: list[bytes] = []
    try:
        while chunk := stream.read1(1 << 16):
            chunks.append(chunk)
    except DAMAGE as error:
        line = 1 + sum(chunk.count(b"\n") for chunk in chunks)
        raise UserError(f"{label}:{line}: truncated or damaged here ({error}); fetch the file again.") from error
    return b"".join(chunks)


def decode(data: bytes, label: str) -> str:
    """UTF-8 text; UserError with the line of the first bad byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        raise UserError(f"{label}:{line}: byte 0x{data[error.start]:02x} is not UTF-8.") from error


def parse_pairs(data: bytes, label: str) -> list[Pair]:
    r"""Pairs of a question line and an answer line. Only ``\n`` ends a line, and the last one may lack it.

    Question ``i`` stands in line ``2 i + 1``. UserError for an empty file or line, an odd count, or bytes that are
    not UTF-8.
    """
    lines = decode(data, label).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise UserError(f"{label}:1: the file is empty.")
    if "" in lines:
        index = lines.index("")
        raise UserError(f"{label}:{index + 1}: empty {'answer' if index % 2 else 'question'}.")
    if len(lines) % 2:
        raise UserError(f"{label}:{len(lines)}: question without an answer; the file is truncated or damaged.")
    return list(zip(lines[0::2], lines[1::2], strict=True))


def read_pairs(path: Path) -> list[Pair]:
    """The question and answer lines of a ``.txt`` or ``.txt.gz`` file (the layout of DeepMind mathematics)."""
    return parse_pairs(read_file(path), str(path))


def read_jsonl(path: Path, fields: tuple[str, ...] = ("question", "answer")) -> list[dict[str, Any]]:
    """One object a line, blank lines skipped. Each of ``fields`` must be a string; other keys are kept as they are."""
    rows = []
    for number, line in enumerate(decode(read_file(path), str(path)).split("\n"), start=1):
        if line.strip():
            rows.append(parse_object(line, f"{path}:{number}", fields))
    if not rows:
        raise UserError(f"{path}:1: the file is empty.")
    return rows


def parse_object(line: str, label: str, fields: tuple[str, ...]) -> dict[str, Any]:
    """One line of JSON as an object whose ``fields`` are strings that UTF-8 can hold."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{label}: not a JSON object ({error}).") from error
    if not isinstance(row, dict):
        raise UserError(f"{label}: a JSON {type(row).__name__}, not an object.")
    for field in fields:
        value = row.get(field)
        if not isinstance(value, str):
            raise UserError(f"{label}: {'no' if value is None else 'not a string:'} {field!r}.")
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(f"{label}: {field!r} holds half of a surrogate pair.") from error
    return row


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def one_line_errors(action: str, where: Path) -> Iterator[None]:
    """Turn a full disk, a read-only folder and the like into one line."""
    try:
        yield
    except OSError as error:
        at = f" ({error.filename})" if error.filename and str(error.filename) != str(where) else ""
        raise UserError(f"cannot {action} {where}: {error.strerror or error}{at}.") from error


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A binary handle; the file appears under its name only when the block ends well."""
    with one_line_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o644)  # mkstemp's own mode shuts out everyone else
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
