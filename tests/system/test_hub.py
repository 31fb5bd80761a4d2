"""Files of weights and tokenizers in folders and in the cache, and their digest."""

import hashlib
import json
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.model import stored_parameters
from ntl.system.hub import digest, identity, require, tokenizer_files, weight_files


def fill(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_the_digest_by_hand(tmp_path: Path) -> None:
    folder = fill(tmp_path / "m", config__json="{}", model__safetensors="abc")
    config, weights = (hashlib.sha256(content).hexdigest() for content in (b"{}", b"abc"))
    expected = hashlib.sha256(f"config.json {config}\nmodel.safetensors {weights}\n".encode()).hexdigest()
    assert digest(weight_files(folder)) == expected
    fill(folder, model__safetensors="abd")  # noticed at once, although digests are cached
    assert digest(weight_files(folder)) != expected
    fill(folder, model__safetensors="abc")
    assert digest(weight_files(folder)) == expected


def test_shards_count_and_what_lies_beside_them_does_not(tmp_path: Path) -> None:
    index = json.dumps({"weight_map": {"a": "two.safetensors", "b": "one.safetensors", "c": "one.safetensors"}})
    shards = {"one__safetensors": "1", "two__safetensors": "2", "trained__safetensors": "3"}
    folder = fill(tmp_path / "m", config__json="{}", model__safetensors__index__json=index, **shards)
    expected = ["config.json", "model.safetensors.index.json", "one.safetensors", "two.safetensors"]
    assert names(weight_files(folder)) == expected
    (folder / "two.safetensors").unlink()
    with pytest.raises(UserError, match="names files that are not there; fetch the folder again"):
        weight_files(folder)
    fill(folder, model__safetensors="whole")  # then from_pretrained loads this file
    assert names(weight_files(folder)) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"model__safetensors__index__json": "{"}, r"index\.json: cannot be read as JSON settings; fetch it again\.$"),
        ({"model__safetensors": "", "adapter_config__json": "{}"}, "merge the two .*merge_and_unload"),
        ({}, r"neither model\.safetensors nor"),
    ],
)
def test_a_folder_without_whole_weights_is_one_line(files: dict[str, str], line: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"^[^\n]*{line}"):
        require(str(fill(tmp_path / "m", config__json="{}", **files)))


def test_weights_are_as_long_as_their_header_says(tmp_path: Path) -> None:
    header = b'{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"__metadata__":{"format":"pt"}}'
    content = len(header).to_bytes(8, "little") + header + bytes(24)
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert stored_parameters([path, tmp_path / "config.json"]) == 6
    for other in (*(content[:size] for size in (0, 7, 50, len(content) - 1)), content + b"\0"):
        path.write_bytes(other)
        with pytest.raises(UserError, match=rf"^{path}: truncated or corrupt safetensors file \(.*\); fetch it again"):
            stored_parameters([path])


def test_a_tokenizer_s_files_are_those_that_are_read(tmp_path: Path) -> None:
    settings = {"tokenizer_config__json": "{}", "special_tokens_map__json": "{}"}
    folder = fill(tmp_path / "t", vocab__json="{}", merges__txt="", **settings)
    expected = ["vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"]
    assert names(tokenizer_files(folder)) == expected
    fill(folder, spiece__model="")
    assert names(tokenizer_files(folder)) == ["spiece.model", *expected[2:]]
    fill(folder, tokenizer__json="{}")
    assert names(tokenizer_files(folder)) == ["tokenizer.json", *expected[2:]]


def test_a_cached_model_is_named_by_its_commit_and_by_what_a_folder_of_the_same_files_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    commit, home = "c" * 40, tmp_path / "models--owner--name"
    fill(home / "refs", main=commit)
    snapshot = fill(home / "snapshots" / commit, config__json="{}", model__safetensors="weights")
    found = identity("owner/name")
    assert found["commit"] == commit
    assert {"sha256": found["sha256"]} == identity(str(snapshot))
    fill(snapshot, model__safetensors="other weights")
    assert identity("owner/name")["sha256"] != found["sha256"]
    assert identity("owner/other") == {}
