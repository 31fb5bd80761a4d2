"""Published tokenizers: the cache, the download, and a quick and clear no."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer

HUB_ID = "owner/name"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def online(cache: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def repository(online: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A hub on this machine with one repository, whose files are the items of the dictionary."""
    files: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            name = self.path.removeprefix(f"/{HUB_ID}/resolve/main/").removeprefix(f"/{HUB_ID}/resolve/{COMMIT}/")
            self.send_response(200 if name in files or self.path == "/" else 404)
            self.send_header("X-Repo-Commit", COMMIT)
            if name in files:
                self.send_header("ETag", f'"{name}"')
                self.send_header("Content-Length", str(len(files[name])))
            elif self.path.startswith(f"/{HUB_ID}/"):
                self.send_header("X-Error-Code", "EntryNotFound")
            else:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            if name in files and self.command == "GET":
                self.wfile.write(files[name])

        do_GET = do_HEAD

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    online.setattr(constants, "ENDPOINT", endpoint)
    online.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    yield files
    server.shutdown()
    server.server_close()


def refusal(hub_id: str = HUB_ID) -> str:
    with pytest.raises(UserError) as caught:
        load_tokenizer(hub_id)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_remedies(text: str) -> None:
    assert all(remedy in text for remedy in ("tokenizer.path=FOLDER", "hf download owner/name", "HF_HOME", "_tiny"))


def test_offline_without_a_cached_copy(cache: Path) -> None:
    text = refusal()
    assert text.startswith("no tokenizer files for 'owner/name' (not in the local cache, and ")
    assert "HF_HUB_OFFLINE" in text
    assert_remedies(text)


def test_a_cached_copy_is_taken_offline(cache: Path, spiece_bytes: bytes) -> None:
    snapshot = cache / "models--owner--name" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "models--owner--name" / "refs").mkdir()
    (cache / "models--owner--name" / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    (snapshot / "spiece.model").write_bytes(spiece_bytes)
    assert load_tokenizer(HUB_ID).tokenize("x 12")[-2:] == ["1", "2"]


def test_a_download_takes_what_the_repository_has(repository: dict[str, bytes], bpe_folder: Path) -> None:
    expected = load_tokenizer(bpe_folder)
    repository.update({path.name: path.read_bytes() for path in bpe_folder.iterdir()})
    assert load_tokenizer(HUB_ID)("x 12").input_ids == expected("x 12").input_ids
    repository.clear()
    assert load_tokenizer(HUB_ID).get_vocab() == expected.get_vocab()
