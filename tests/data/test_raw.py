import hashlib
import http.server
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.raw import Missing, Origin, RawFile

CONTENT = b"one\ntwo\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Site:
    """A server that answers every path with ``content``."""

    url: str = ""
    content: bytes = CONTENT
    status: int = 200
    cut: int | None = None
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests.append(self.path)
            self.send_response(site.status)
            self.send_header("Content-Length", str(len(site.content)))
            self.end_headers()
            self.wfile.write(site.content[: site.cut])

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
        ({"cut": 3}, r"cannot be downloaded: (the connection ended at 3 of 8 bytes|IncompleteRead.*)"),
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


def test_a_full_disk_is_one_line(
    site: Site, file: RawFile, data_dir: Path, silent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ntl.data.files.os.fsync", full)
    with pytest.raises(UserError, match=r"^cannot write .*one\.txt: No space left on device\.$"):
        raw.fetch(file, data_dir, silent.append)
    assert list(data_dir.rglob("*one*")) == []


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
    monkeypatch.setenv("NTL_DATA_DIR", str(data_dir / "shared"))
    assert raw.whereabouts(replace(away, member=""), data_dir) == (
        f"no file {data_dir / file.path} nor under NTL_DATA_DIR={data_dir / 'shared'}; it is to be had as "
        "http://127.0.0.1:9/release"
    )


def test_what_a_manifest_and_a_record_keep_of_an_origin(file: RawFile) -> None:
    unknown = RawFile("jokes/two.txt", "")
    origin = Origin("home", "licence", "cite", False, {"train": unknown, "test": file})
    assert origin.source == {
        "kind": "official files",
        "home": "home",
        "cite": "cite",
        "sha256": {"jokes/one.txt": DIGEST},
    }
    assert origin.remarks == {"licence": "licence"}
