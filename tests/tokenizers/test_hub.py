"""Published tokenizers: the cache, the download, and a quick and clear no."""

from pathlib import Path

import httpx
import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import RemoteEntryNotFoundError

from ntl.config import UserError
from ntl.tokenizers import load_tokenizer

HUB_ID = "owner/name"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put(cache: Path, name: str, content: bytes) -> None:
    """A file in the cache, as huggingface_hub lays it."""
    home, commit = cache / "models--owner--name", "0123456789abcdef0123456789abcdef01234567"
    for folder in (home / "refs", home / "snapshots" / commit):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "refs" / "main").write_text(commit, encoding="utf-8")
    (home / "snapshots" / commit / name).write_bytes(content)


def test_offline_without_a_cached_copy(cache: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_tokenizer(HUB_ID)
    text = str(caught.value)
    assert text.startswith("no tokenizer files for 'owner/name' (not in the local cache, and ")
    remedies = ("HF_HUB_OFFLINE", "tokenizer.path=FOLDER", "hf download owner/name", "HF_HOME", "_tiny")
    assert all(remedy in text for remedy in remedies)
    assert "\n" not in text


def test_a_cached_copy_is_taken_offline(cache: Path, spiece_bytes: bytes) -> None:
    put(cache, "spiece.model", spiece_bytes)
    assert load_tokenizer(HUB_ID).tokenize("x 12")[-2:] == ["1", "2"]


def test_a_download_takes_what_the_repository_has(
    cache: Path, bpe_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(hub_id: str, name: str) -> None:
        if not (bpe_folder / name).exists():
            raise RemoteEntryNotFoundError(
                name, response=httpx.Response(404, request=httpx.Request("GET", "https://x"))
            )
        put(cache, name, (bpe_folder / name).read_bytes())

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    expected = load_tokenizer(bpe_folder)
    assert load_tokenizer(HUB_ID)("x 12").input_ids == expected("x 12").input_ids
    monkeypatch.undo()  # what is cached is taken without the hub
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    assert load_tokenizer(HUB_ID).get_vocab() == expected.get_vocab()
