"""The source of weights, and the error if they are not available."""

from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.model import T5Config, XValConfig
from ntl.models import identity, require, source, tokenizer_source


def test_source_prefers_the_path() -> None:
    assert source(T5Config(name="t5_small", hub_id="a/b")) == "a/b"
    assert source(T5Config(name="t5_small", hub_id="a/b", path="c/d")) == "c/d"
    assert source(T5Config(name="t5_tiny")) == ""


def test_a_tokenizer_may_be_published_without_weights() -> None:
    config = XValConfig(name="xval", tokenizer_hub_id="a/b")
    assert (source(config), tokenizer_source(config)) == ("", "a/b")
    config.path = "c/d"
    assert (source(config), tokenizer_source(config)) == ("c/d", "c/d")
    assert tokenizer_source(T5Config(name="t5_small", hub_id="a/b")) == "a/b"


def test_a_folder_needs_a_config_and_weights(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        require(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"neither model\.safetensors nor"):
        require(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    require(str(tmp_path))


def test_a_cached_model_is_named_by_its_commit_and_by_what_a_folder_of_the_same_files_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    commit, home = "c" * 40, tmp_path / "models--owner--name"
    snapshot = home / "snapshots" / commit
    for folder in (snapshot, home / "refs"):
        folder.mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"weights")
    found = identity("owner/name")
    assert found["commit"] == commit
    assert {"sha256": found["sha256"]} == identity(str(snapshot))
    (snapshot / "model.safetensors").write_bytes(b"other weights")
    assert identity("owner/name")["sha256"] != found["sha256"]
    assert identity("owner/other") == {}


def test_without_a_hub_the_three_remedies_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError) as caught:
        require("google-t5/t5-base")
    message = str(caught.value)
    assert "\n" not in message
    assert all(remedy in message for remedy in ("cached", "model.path=", "model.pretrained=false"))
