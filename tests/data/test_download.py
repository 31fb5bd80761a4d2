import base64
import hashlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data import download
from ntl.data.download import fetch

CONTENT = bytes(range(256)) * 5000


@dataclass
class Site:
    """A server of CONTENT and what it does wrong."""

    url: str = ""
    requests: list[str | None] = field(default_factory=list)
    break_after: list[int] = field(default_factory=list)
    ranges: bool = True
    status: int = 200
    content: bytes = CONTENT
    md5: bytes = hashlib.md5(CONTENT).digest()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            site.requests.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and site.ranges else 0
            body = site.content[start:]
            self.send_response(206 if start else site.status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("x-goog-hash", "crc32c=AAAAAA==")
            self.send_header("x-goog-hash", f"md5={base64.b64encode(site.md5).decode()}")
            self.end_headers()
            self.wfile.write(body[: site.break_after.pop(0)] if site.break_after else body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # a client that hangs up would be printed between the dots of the tests
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    site.url = f"http://127.0.0.1:{server.server_port}/release.tar.gz"
    yield site
    server.shutdown()
    server.server_close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "release.tar.gz"


def part(target: Path) -> Path:
    return target.with_name("release.tar.gz.part")


def get(site: Site, target: Path, lines: list[str], size: int = len(CONTENT)) -> bool:
    return fetch(target, lines.append, url=site.url, size=size, timeout=5)


def test_download(site: Site, target: Path, silent: list[str]) -> None:
    assert get(site, target, silent)
    assert target.read_bytes() == CONTENT
    assert not part(target).exists()
    assert site.requests == [None]
    assert silent == [f"downloading the official release: 0.00 GiB of 0.00 GiB to {target.parent}"]


def test_a_broken_connection_is_resumed(site: Site, target: Path, silent: list[str]) -> None:
    site.break_after = [700_000, 100_000]
    assert get(site, target, silent)
    assert target.read_bytes() == CONTENT
    assert site.requests == [None, "bytes=700000-", "bytes=800000-"]


def test_a_part_of_an_earlier_attempt_is_continued(site: Site, target: Path, silent: list[str]) -> None:
    part(target).write_bytes(CONTENT[:1000])
    assert get(site, target, silent)
    assert site.requests == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(site: Site, target: Path, silent: list[str]) -> None:
    site.ranges = False
    part(target).write_bytes(b"x" * 1000)
    assert get(site, target, silent)
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_too_long_starts_over(site: Site, target: Path, silent: list[str]) -> None:
    part(target).write_bytes(b"x" * len(CONTENT))
    assert get(site, target, silent)
    assert site.requests == [None]
    assert target.read_bytes() == CONTENT


def test_attempts_are_limited_and_the_part_is_kept(site: Site, target: Path, silent: list[str]) -> None:
    site.break_after = [100_000] * 20
    assert not get(site, target, silent)
    assert len(site.requests) == download.ATTEMPTS
    assert part(target).read_bytes() == CONTENT[:400_000]
    assert "the connection ended at 400000 of 1280000 bytes" in silent[-1]
    assert silent[-1].endswith(f"{part(target)} is kept to go on from")


def test_no_progress_is_not_tried_again(site: Site, target: Path, silent: list[str]) -> None:
    site.break_after = [0] * 20
    assert not get(site, target, silent)
    assert len(site.requests) == 1


def test_another_file_is_refused(site: Site, target: Path, silent: list[str]) -> None:
    assert not get(site, target, silent, size=len(CONTENT) + 1)
    assert "the server offers 1280000 bytes, 1280001 are expected" in silent[-1]
    assert not target.exists()


def test_other_content_is_refused(site: Site, target: Path, silent: list[str]) -> None:
    site.content = CONTENT[:-1] + b"x"
    assert not get(site, target, silent)
    assert "its md5 is not the one the server names" in silent[-1]
    assert not target.exists()
    assert not part(target).exists()


def test_an_http_error_is_one_line(site: Site, target: Path, silent: list[str]) -> None:
    site.status = 404
    assert not get(site, target, silent)
    assert silent == ["the official release (0.00 GiB) cannot be downloaded: Not Found"]


def test_no_network_is_one_line(target: Path, silent: list[str]) -> None:
    assert not fetch(target, silent.append, url="http://127.0.0.1:9/x", size=10, timeout=5)
    assert len(silent) == 1
    assert silent[0].startswith("the official release (0.00 GiB) cannot be downloaded: [Errno")


def test_a_disk_without_room_is_one_line(site: Site, target: Path, silent: list[str]) -> None:
    assert not get(site, target, silent, size=10**18)
    assert silent[0].startswith("the official release needs 931322574.62 GiB more, ")
    assert site.requests == []


def test_a_disk_that_fills_up(site: Site, target: Path, silent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    part(target).symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"cannot write .*release\.tar\.gz\.part: No space left on device"):
        get(site, target, silent)
