"""The files of a folder that are read, and their digest."""

import hashlib
import json
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.system.content import digest, tokenizer_files, weight_files


def _fill(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder


def _names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_the_digest_by_hand(tmp_path: Path) -> None:
    folder = _fill(tmp_path / "m", config__json="{}", model__safetensors="abc")
    config, weights = (hashlib.sha256(content).hexdigest() for content in (b"{}", b"abc"))
    expected = hashlib.sha256(f"config.json {config}\nmodel.safetensors {weights}\n".encode()).hexdigest()
    assert digest(weight_files(folder)) == expected


def test_shards_count_and_what_lies_beside_them_does_not(tmp_path: Path) -> None:
    index = json.dumps({"weight_map": {"a": "two.safetensors", "b": "one.safetensors", "c": "one.safetensors"}})
    parts = {"one__safetensors": "1", "two__safetensors": "2", "trained__safetensors": "3"}
    folder = _fill(tmp_path / "m", config__json="{}", model__safetensors__index__json=index, **parts)
    expected = ["config.json", "model.safetensors.index.json", "one.safetensors", "two.safetensors"]
    assert _names(weight_files(folder)) == expected
    (folder / "two.safetensors").unlink()
    with pytest.raises(UserError, match="names files that are not there; fetch the folder again"):
        weight_files(folder)
    _fill(folder, model__safetensors="whole")  # then from_pretrained loads this file
    assert _names(weight_files(folder)) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}'])
def test_a_broken_index_is_one_line(index: str, tmp_path: Path) -> None:
    folder = _fill(tmp_path / "m", config__json="{}", model__safetensors__index__json=index)
    with pytest.raises(UserError, match=r"^model\.path=.*fetch the folder again\.$"):
        weight_files(folder)


def test_an_index_names_no_file_elsewhere(tmp_path: Path) -> None:
    _fill(tmp_path, elsewhere="secret")
    index = json.dumps({"weight_map": {"a": "../elsewhere"}})
    folder = _fill(tmp_path / "m", config__json="{}", model__safetensors__index__json=index)
    with pytest.raises(UserError, match="names files that are not there"):
        weight_files(folder)


def test_an_adapter_alone_is_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = _fill(tmp_path / "m", config__json="{}", model__safetensors="", adapter_config__json="{}")
    with pytest.raises(UserError, match=r"whose base model lies elsewhere; merge the two .*merge_and_unload"):
        weight_files(folder)


def test_a_tokenizer_s_files_are_those_that_are_read(tmp_path: Path) -> None:
    settings = {"tokenizer_config__json": "{}", "special_tokens_map__json": "{}"}
    folder = _fill(tmp_path / "t", vocab__json="{}", merges__txt="", **settings)
    expected = ["vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"]
    assert _names(tokenizer_files(folder)) == expected
    _fill(folder, spiece__model="")
    assert _names(tokenizer_files(folder)) == ["spiece.model", *expected[2:]]
    _fill(folder, tokenizer__json="{}")
    assert _names(tokenizer_files(folder)) == ["tokenizer.json", *expected[2:]]


def test_a_file_that_changes_has_another_digest_at_once(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("one")
    first = digest([file])
    file.write_text("two")
    assert digest([file]) != first
    file.write_text("one")
    assert digest([file]) == first
