"""The files of official releases: found, downloaded, refused."""

import hashlib
import http.server
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.raw import Missing, RawFile, download_archive

CONTENT = b"one\ntwo\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Site:
    """A server that answers every path with ``content``, and what it does wrong."""

    url: str = ""
    content: bytes = CONTENT
    status: int = 200
    ranges: bool = True
    # Bytes after which the connection ends, for each request; then none ends early.
    cuts: list[int] = field(default_factory=list)
    requests: list[str | None] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    """Keeps the range that each request asked for."""
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.requests.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
            body = site.content[start:]
            self.send_response(206 if start else site.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # a client that hangs up would be printed between the dots of the tests
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    site.url = f"http://127.0.0.1:{server.server_port}/release"
    yield site
    server.shutdown()
    server.server_close()


@pytest.fixture
def file(site: Site) -> RawFile:
    return RawFile("jokes/one.txt", site.url, DIGEST)


def lines(data: bytes, label: str) -> list[str]:
    if b"bad" in data:
        raise UserError(f"{label}:2: a bad line.")
    return data.decode().split()


def test_a_file_on_disk_is_taken_and_nothing_is_asked(
    site: Site, file: RawFile, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: list[str]
) -> None:
    shared = tmp_path / "shared"
    for root, content in ((data_dir, CONTENT), (shared, b"other")):
        (root / file.path).parent.mkdir(parents=True)
        (root / file.path).write_bytes(content)
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert raw.read(file, lines, data_dir, silent.append) == ["one", "two"]
    assert silent == [f"reading {data_dir / file.path}"]
    (data_dir / file.path).unlink()
    assert raw.obtain(file, data_dir, silent.append) == shared / file.path
    assert site.requests == []


def test_a_wrong_sha256_is_one_line_and_a_bad_line_comes_first(
    file: RawFile, data_dir: Path, silent: list[str]
) -> None:
    path = data_dir / file.path
    path.parent.mkdir()
    path.write_bytes(b"one\n")
    with pytest.raises(UserError, match=rf"{path}: not the published file: its sha256 is [0-9a-f]+, not {DIGEST}; "):
        raw.read(file, lines, data_dir, silent.append)
    path.write_bytes(b"one\nbad")
    with pytest.raises(UserError, match=rf"^{path}:2: a bad line\.$"):
        raw.read(file, lines, data_dir, silent.append)
    path.write_bytes(b"one")
    assert raw.read(replace(file, sha256=""), lines, data_dir, silent.append) == ["one"]


def test_download(site: Site, file: RawFile, data_dir: Path, silent: list[str]) -> None:
    assert raw.read(file, lines, data_dir, silent.append) == ["one", "two"]
    assert (data_dir / file.path).read_bytes() == CONTENT
    assert silent == [f"downloading {site.url}", f"reading {data_dir / file.path}"]
    assert [path.name for path in (data_dir / "jokes").iterdir()] == ["one.txt"]


def test_a_member_of_a_zip(site: Site, file: RawFile, data_dir: Path, silent: list[str]) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Jokes/one.txt", CONTENT)
    site.content = buffer.getvalue()
    assert raw.fetch(replace(file, member="Jokes/one.txt"), data_dir, silent.append) == data_dir / file.path
    assert (data_dir / file.path).read_bytes() == CONTENT
    assert raw.fetch(replace(file, member="Jokes/two.txt"), data_dir, silent.append) is None
    site.content = buffer.getvalue()[:-30]
    assert raw.fetch(replace(file, member="Jokes/one.txt"), data_dir, silent.append) is None
    assert [line.split(": ", 1)[1] for line in silent if "cannot" in line] == [
        "\"There is no item named 'Jokes/two.txt' in the archive\"",
        "File is not a zip file",
    ]


def test_a_zip_that_unpacks_to_too_much_or_is_damaged(
    site: Site, file: RawFile, data_dir: Path, silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "LIMIT", 10_000)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.txt", bytes(10_001))
        archive.writestr("one.txt", CONTENT * 100)
    site.content = whole = buffer.getvalue()
    assert raw.fetch(replace(file, member="bomb.txt"), data_dir, silent.append) is None
    assert silent[-1].endswith("cannot be downloaded: bomb.txt in it has 10,001 bytes, at most 10,000 are read")
    for place in range(0, 8 * len(whole), 5):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        site.content = bytes(damaged)
        path = raw.fetch(replace(file, member="one.txt", sha256=""), data_dir, silent.append)
        assert path is None or path.read_bytes() == CONTENT * 100
        assert path or "cannot be downloaded: " in silent[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": 404}, "cannot be downloaded: Not Found"),
        ({"content": b"something else"}, f"is not the published file: its sha256 is .*, not {DIGEST}"),
        ({"cuts": [3]}, r"cannot be downloaded: (the connection ended at 3 of 8 bytes|IncompleteRead.*)"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(
    site: Site, file: RawFile, data_dir: Path, silent: list[str], changes: dict[str, object], message: str
) -> None:
    for name, value in changes.items():
        setattr(site, name, value)
    with pytest.raises(Missing):
        raw.read(file, lines, data_dir, silent.append)
    assert silent[0] == f"downloading {site.url}"
    assert len(silent) == 2
    assert re.fullmatch(f"{re.escape(site.url)} {message}", silent[1])
    assert list(data_dir.rglob("*.txt")) == []


def test_without_a_network_it_is_missing_and_the_line_says_where_it_is(
    file: RawFile, data_dir: Path, monkeypatch: pytest.MonkeyPatch, silent: list[str]
) -> None:
    away = replace(file, url="http://127.0.0.1:9/release", member="a/one.txt")
    expected = (
        f"no file {data_dir / file.path}; it is to be had as a/one.txt of http://127.0.0.1:9/release, and may lie in "
        f"any folder that NTL_DATA_DIR names, as {file.path}."
    )
    with pytest.raises(Missing) as caught:
        raw.read(away, lines, data_dir, silent.append)
    assert str(caught.value) == expected
    assert len(silent) == 1
    assert silent[0].startswith("http://127.0.0.1:9/release cannot be downloaded: ")
    with pytest.raises(Missing):
        raw.read(away, lines, data_dir, silent.append, download=False)
    assert len(silent) == 1


ARCHIVE = bytes(range(256)) * 5000


@pytest.fixture
def release(site: Site) -> Site:
    """The server, with an archive."""
    site.content = ARCHIVE
    return site


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "release.tar.gz"


def part(target: Path) -> Path:
    return target.with_name("release.tar.gz.part")


def get(site: Site, target: Path, log: list[str], size: int = len(ARCHIVE)) -> bool:
    return download_archive(site.url, size, target, log.append, timeout=5)


@pytest.mark.parametrize(
    ("changes", "before", "requests"),
    [
        ({}, None, [None]),
        ({"cuts": [700_000, 100_000]}, None, [None, "bytes=700000-", "bytes=800000-"]),
        ({}, ARCHIVE[:1000], ["bytes=1000-"]),
        ({"ranges": False}, b"x" * 1000, ["bytes=1000-"]),
    ],
    ids=["at once", "resumed", "after an earlier attempt", "a server without ranges"],
)
def test_an_archive_is_downloaded(
    release: Site, target: Path, silent: list[str], changes: dict[str, Any], before: bytes | None, requests: list[Any]
) -> None:
    vars(release).update(changes)
    if before:
        part(target).write_bytes(before)
    assert get(release, target, silent)
    assert target.read_bytes() == ARCHIVE
    assert not part(target).exists()
    assert release.requests == requests
    if not changes and not before:
        assert silent == [f"downloading the official release: 0.00 GiB of 0.00 GiB to {target.parent}"]


@pytest.mark.parametrize(
    ("changes", "size", "message", "kept"),
    [
        (
            {"cuts": [100_000] * 20},
            len(ARCHIVE),
            r"the connection ended at 400000 of 1280000 bytes, .*\.part is kept to go on from$",
            400_000,
        ),
        ({}, len(ARCHIVE) + 1, "the server offers 1280000 bytes, 1280001 are expected", None),
        ({}, 10**18, "^the official release needs 931322574.62 GiB more, ", None),
    ],
    ids=["attempts are limited", "another file", "no room on the disk"],
)
def test_an_archive_that_cannot_be_had_is_one_line(
    release: Site, target: Path, silent: list[str], changes: dict[str, Any], size: int, message: str, kept: int | None
) -> None:
    vars(release).update(changes)
    assert not get(release, target, silent, size=size)
    assert re.search(message, silent[-1])
    assert not target.exists()
    assert (part(target).read_bytes() if part(target).exists() else None) == (None if kept is None else ARCHIVE[:kept])
    assert len(release.requests) == (0 if size == 10**18 else raw.ATTEMPTS if kept else 1)
