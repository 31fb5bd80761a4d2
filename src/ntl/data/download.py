"""The official release of DeepMind mathematics: one archive of 2.2 GiB at its own home."""

import base64
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ntl.system.errors import one_line_errors
from ntl.system.network import unreachable

Log = Callable[[str], None]
URL = "https://storage.googleapis.com/mathematics-dataset/mathematics_dataset-v1.0.tar.gz"
BYTES = 2_333_082_954
CHUNK = 1 << 20
ATTEMPTS = 4
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


class _Broken(Exception):
    """The server's answer cannot be used; the message says why."""


def fetch(target: Path, log: Log, *, url: str = URL, size: int = BYTES, timeout: float = 10.0) -> bool:
    """Download the archive to ``target``; True when it is there whole.

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
            _download(part, url, size, timeout, log)
            os.replace(part, target)
            return True
        except (*NETWORK_ERRORS, _Broken) as error:
            reason = getattr(error, "reason", None) or error
            grown = part.is_file() and part.stat().st_size > before
            if not grown or attempt == ATTEMPTS:
                kept = f", {part} is kept to go on from" if part.is_file() else ""
                log(f"the official release ({_gib(size)}) cannot be downloaded: {reason}{kept}")
                return False
            log(f"the download stopped ({reason}); going on from {_gib(part.stat().st_size)}")
    return False


def _download(part: Path, url: str, size: int, timeout: float, log: Log) -> None:
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
            raise _Broken(f"the server offers {total} bytes, {size} are expected")
        log(f"downloading the official release: {_gib(size - have)} of {_gib(size)} to {part.parent}")
        _copy(response, part, "ab" if have else "wb", size, log)
        expected = _md5(response.headers.get_all("x-goog-hash") or [])
    if part.stat().st_size != size:
        raise _Broken(f"the connection ended at {part.stat().st_size} of {size} bytes")
    if expected is not None and _digest(part) != expected:
        part.unlink()
        raise _Broken("its md5 is not the one the server names")


def _copy(response: Any, part: Path, mode: str, size: int, log: Log) -> None:
    shown = time.monotonic()
    with open(part, mode) as stream:
        while chunk := response.read(CHUNK):
            with one_line_errors("write", part):
                stream.write(chunk)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                log(f"downloaded {_gib(stream.tell())} of {_gib(size)} ({stream.tell() / size:.0%})")


def _md5(headers: list[str]) -> bytes | None:
    for item in ",".join(headers).split(","):
        name, _, value = item.strip().partition("=")
        if name == "md5":
            return base64.b64decode(value)
    return None


def _digest(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "md5").digest()


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
