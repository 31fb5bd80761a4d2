"""The files of official releases: found, downloaded, refused."""

import gzip
import hashlib
import http.server
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from ntl.config import UserError
from ntl.data import raw
from ntl.data.raw import Missing, RawFile, download_package
from ntl.system.files import sha256_of

CONTENT = b"one\ntwo\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Site:
    """A server that answers every path with ``content``, and what it does wrong."""

    url: str = ""
    content: bytes = CONTENT
    status: int = 200
    cut: int | None = None  # bytes after which the connection ends
    requests: int = 0


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.requests += 1
            self.send_response(site.status)
            self.send_header("Content-Length", str(len(site.content)))
            self.end_headers()
            self.wfile.write(site.content[: site.cut])

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


def test_a_file_on_disk_is_taken_and_nothing_is_asked(site, file, data_dir, tmp_path, monkeypatch, caplog) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    for root in (shared, data_dir):  # the data folder comes first
        path = root / file.path
        path.parent.mkdir(parents=True)
        path.write_bytes(CONTENT)
        assert raw.read(file, data_dir) == CONTENT
        assert caplog.messages[-1] == f"reading {path}"
    assert site.requests == 0
    path.write_bytes(b"one\nother\n")
    with pytest.raises(UserError, match=rf"^{path}: not the published file: its sha256 is [0-9a-f]+, not {DIGEST}; "):
        raw.read(file, data_dir)
    assert raw.read(replace(file, sha256=""), data_dir) == b"one\nother\n"


def test_a_download_and_a_member_of_a_zip(site: Site, file: RawFile, data_dir: Path, caplog) -> None:
    assert raw.read(file, data_dir) == CONTENT
    assert caplog.messages == [f"downloading {site.url}", f"reading {data_dir / file.path}"]
    assert {path.name for path in (data_dir / "jokes").iterdir()} == {"one.txt", ".one.txt.lock"}
    (data_dir / file.path).unlink()
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        archive.writestr("Jokes/one.txt", CONTENT)
    site.content = buffer.getvalue()
    member = replace(file, member="Jokes/one.txt")
    assert raw.read(member, data_dir) == CONTENT
    site.content = buffer.getvalue()[:-30]
    assert raw.fetch(member, data_dir) is None
    assert caplog.messages[-1] == f"{site.url} is no whole zip file: File is not a zip file"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": 404}, "cannot be downloaded: Not Found"),
        ({"content": b"something else"}, f"is not the published file: its sha256 is .*, not {DIGEST}"),
        ({"cut": 3}, "cannot be downloaded: (the connection ended at 3 of 8 bytes|IncompleteRead.*)"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(
    site: Site, file: RawFile, data_dir: Path, caplog, changes: dict[str, object], message: str
) -> None:
    vars(site).update(changes)
    (data_dir / "jokes" / ".one.txt.part-killed").mkdir(parents=True)
    with pytest.raises(Missing):
        raw.read(file, data_dir)
    assert len(caplog.messages) == 2
    assert re.fullmatch(f"{re.escape(site.url)} {message}", caplog.messages[1])
    assert [path.name for path in (data_dir / "jokes").iterdir()] == [".one.txt.lock"]


def test_without_a_network_it_is_missing_and_the_line_says_where_it_is(file, data_dir: Path, caplog) -> None:
    away = replace(file, url="http://127.0.0.1:9/release", member="a/one.txt")
    expected = (
        f"no file {data_dir / file.path}; it is to be had as a/one.txt of http://127.0.0.1:9/release, and may lie in "
        f"any folder that NTL_DATA_DIR names, as {file.path}."
    )
    for download, said in ((False, 0), (True, 2)):
        with pytest.raises(Missing) as caught:
            raw.read(away, data_dir, download=download)
        assert str(caught.value) == expected
        assert len(caplog.messages) == said
    assert caplog.messages[1].startswith("http://127.0.0.1:9/release cannot be downloaded: ")


def test_a_packed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "a.txt.GZ", b"a\nb\n" * 1000
    packed = gzip.compress(text, mtime=0)
    path.write_bytes(packed)
    assert raw.read_file(path) == text
    for place in range(1, len(packed)):  # nothing at all is an empty text
        path.write_bytes(packed[:place])
        with pytest.raises(UserError, match=r"truncated or damaged .*; fetch it again\.$"):
            raw.read_file(path)
    monkeypatch.setattr(raw, "UNPACKED", 1 << 20)
    path.write_bytes(gzip.compress(b"\n" * ((1 << 20) + 1)))
    with pytest.raises(UserError, match=r"unpacks to more than 1 MiB, which no text does; fetch it again\.$"):
        raw.read_file(path)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^cannot read .*/none: No such file or directory\.$"):
        raw.read_file(tmp_path / "none")
    (tmp_path / "x").write_bytes(b"\xef\xbb\xbfa\nb")
    assert raw.read_text(tmp_path / "x") == "a\nb"
    (tmp_path / "x").write_bytes(b"a\nb\xff\n")
    with pytest.raises(UserError, match=rf"^{tmp_path / 'x'}:2: byte 0xff is not UTF-8; save the file as that\.$"):
        raw.read_text(tmp_path / "x")


# Files of packages, downloaded by pip from an index that is a folder.


PACKAGE = "Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n"
# Its own build backend, so that no other package is needed; it leaves a trace of having run.
BACKEND = f"""
import pathlib
pathlib.Path({{trace!r}}).touch()
def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "made_up-1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text({PACKAGE!r})
    return info.name
def build_wheel(folder, settings=None, metadata=None):
    raise NotImplementedError
"""


@pytest.fixture
def package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip sees: a wheel and a source distribution of the package ``made-up``."""
    folder = tmp_path / "index"
    folder.mkdir()
    with ZipFile(folder / "made_up-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made_up-1.0.dist-info/METADATA", PACKAGE)
        wheel.writestr("made_up-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("made_up-1.0.dist-info/RECORD", "")
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    backend = BACKEND.format(trace=str(tmp_path / "ran"))
    contents = {"PKG-INFO": PACKAGE, "pyproject.toml": build, "backend.py": backend}
    with tarfile.open(folder / "made_up-1.0.tar.gz", "w:gz") as source:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"made_up-1.0/{name}")
            member.size = len(text.encode())
            source.addfile(member, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.slow
def test_a_file_of_a_package_lies_in_the_data_folder(package_index: Path, tmp_path: Path, caplog) -> None:
    for name in ("made_up-1.0-py3-none-any.whl", "made_up-1.0.tar.gz"):
        file = raw.RawFile(f"packages/{name}", sha256=sha256_of(package_index / name), package="made-up==1.0")
        for may_download in (True, False):
            raw.read(file, tmp_path / "data", may_download)
        assert (tmp_path / "data" / "packages" / name).read_bytes() == (package_index / name).read_bytes()
    assert caplog.messages[0] == "downloading made-up==1.0 with pip; nothing of it is installed"
    made = [tmp_path / "data" / "packages", package_index]
    assert {path.name for path in made[0].glob("[!.]*")} == {path.name for path in made[1].iterdir()}


@pytest.mark.slow
def test_nothing_of_another_file_is_run(package_index: Path, tmp_path: Path) -> None:
    found = sha256_of(package_index / "made_up-1.0.tar.gz")
    with pytest.raises(UserError, match=rf"^made-up==1\.0: sha256 {found}, not 0{{64}}; "):
        download_package("made-up==1.0", "0" * 64, tmp_path, source=True)
    assert not (tmp_path / "ran").exists()
