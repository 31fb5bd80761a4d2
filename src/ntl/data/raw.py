"""The files of an official release: found on disk, else downloaded from their home, and checked against its sha256."""

import hashlib
import io
import os
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ntl.data.download import NETWORK_ERRORS
from ntl.data.files import read_file
from ntl.data.preparation import data_roots
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import atomic_writer, sha256_of
from ntl.system.network import unreachable

Log = Callable[[str], None]
T = TypeVar("T")
TIMEOUT = 30.0
# Far above every file here; what is larger is not the file that was asked for.
LIMIT = 1 << 28
DAMAGE = (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, zlib.error, EOFError, ValueError)


class Missing(UserError):
    """A file that is nowhere, and where it is to be had."""


@dataclass(frozen=True)
class RawFile:
    """One file. ``path`` lies below a data root, ``url`` is its home, ``member`` its name where that is a zip.

    ``sha256`` is empty where the digest of the file is not known; the data set then checks it in its own way.
    """

    path: str
    url: str
    sha256: str = ""
    member: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from. ``publishable``: its licence lets others pass its text on."""

    home: str
    licence: str
    cite: str
    publishable: bool
    files: Mapping[str, RawFile]

    @property
    def source(self) -> dict[str, Any]:
        """For a manifest."""
        digests = {file.path: file.sha256 for file in self.files.values() if file.sha256}
        return {"kind": "official files", "home": self.home, "cite": self.cite, "sha256": digests}

    @property
    def remarks(self) -> dict[str, Any]:
        """For the record of every run."""
        return {"licence": self.licence}


def obtain(file: RawFile, data_dir: Path, log: Log, *, download: bool = True) -> Path | None:
    """The file under the data folder or NTL_DATA_DIR, else fetched into the data folder, else None."""
    for root in data_roots(data_dir):
        if (root / file.path).is_file():
            return root / file.path
    return fetch(file, data_dir, log) if download else None


def read(file: RawFile, parse: Callable[[bytes, str], T], data_dir: Path, log: Log, *, download: bool = True) -> T:
    """``parse(content, label)`` of a file that is the published one.

    Missing when it is nowhere. UserError for other content: what ``parse`` finds first, since that names a line.
    """
    path = obtain(file, data_dir, log, download=download)
    if path is None:
        raise Missing(f"{whereabouts(file, data_dir)}.")
    log(f"reading {path}")
    parsed = parse(read_file(path), str(path))
    if file.sha256 and (found := sha256_of(path)) != file.sha256:
        raise UserError(
            f"{path}: not the published file: its sha256 is {found}, not {file.sha256}; fetch {file.url} again."
        )
    return parsed


def whereabouts(file: RawFile, data_dir: Path) -> str:
    """One line: what is missing, where it was looked for, where it is to be had."""
    shared = os.environ.get("NTL_DATA_DIR")
    also = f" nor under NTL_DATA_DIR={shared}" if shared else ""
    place = "" if shared else f", and may lie in any folder that NTL_DATA_DIR names, as {file.path}"
    member = f"{file.member} of " if file.member else ""
    return f"no file {data_dir / file.path}{also}; it is to be had as {member}{file.url}{place}"


def fetch(file: RawFile, data_dir: Path, log: Log) -> Path | None:
    """Download into ``data_dir``, whole and with the right sha256, or not at all; None after one line in the log."""
    if why := unreachable(file.url):
        log(f"{file.url} cannot be downloaded: {why}")
        return None
    log(f"downloading {file.url}")
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT) as response:
            content: bytes = response.read(LIMIT)
            length = response.headers.get("Content-Length", "")
        if length.isdecimal() and len(content) != int(length):
            raise ConnectionError(f"the connection ended at {len(content)} of {length} bytes")
        if file.member:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if (size := archive.getinfo(file.member).file_size) > LIMIT:
                    raise ValueError(f"{file.member} in it has {size:,} bytes, at most {LIMIT:,} are read")
                content = archive.read(file.member)
    except (*NETWORK_ERRORS, *DAMAGE) as error:
        log(f"{file.url} cannot be downloaded: {getattr(error, 'reason', None) or error or type(error).__name__}")
        return None
    found = hashlib.sha256(content).hexdigest()
    if file.sha256 and found != file.sha256:
        log(f"{file.url} is not the published file: its sha256 is {found}, not {file.sha256}")
        return None
    target = data_dir / file.path
    with one_line_errors("write", target), atomic_writer(target) as stream:
        stream.write(content)
    return data_dir / file.path
