"""Atomic writing of files, locks between processes, what killed processes leave behind, and files of weights."""

import errno
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import Timeout

from ntl.config.model import stored_parameters
from ntl.runs.folder import remove_parts
from ntl.system.errors import UserError
from ntl.system.files import is_locked, lock, make_once, sha256_of, write_text
from ntl.system.hub import digest, identity, require, tokenizer_files, weight_files


def test_a_text_that_could_not_be_written_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.md").write_text("old")

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match=r"cannot write .*a\.md: No space left on device"):
        write_text(tmp_path / "a.md", "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.md", "old")]
    monkeypatch.undo()
    write_text(tmp_path / "deep" / "b.md", "new")
    assert (tmp_path / "deep" / "b.md").read_text() == "new"
    assert (tmp_path / "deep" / "b.md").stat().st_mode & 0o777 == 0o644


@pytest.mark.timeout(20)
def test_what_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    held = os.open(tmp_path / "pipe", os.O_RDWR)  # so that to open it does not wait, and to read it does
    os.write(held, b"a")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="a pipe, socket or device, where a file is needed"):
            sha256_of(tmp_path / name)
    os.close(held)


def test_what_a_killed_process_had_begun_to_write_is_removed(tmp_path: Path) -> None:
    for name in (".record.json.1a.part", "record.json", ".config.yaml"):
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config.yaml", "record.json"]


def test_a_folder_is_made_whole_or_not_at_all_and_once(tmp_path: Path) -> None:
    target, wrong = tmp_path / "a", [True]

    def find() -> str | None:
        return (target / "x").read_text() if (target / "x").exists() else None

    def write(new: Path) -> None:
        (new / "x").write_text("whole")
        if wrong:
            raise OSError(28, "No space left on device")

    (tmp_path / "a").mkdir()  # damaged: without its file
    (tmp_path / ".a.part-killed").mkdir()
    with pytest.raises(UserError, match=rf"^cannot write it to {tmp_path}: No space left on device\.$"):
        make_once(target, find, write, "write it to")
    assert not [path for path in tmp_path.rglob("*") if path.name not in ("a", ".a.lock")]
    wrong.clear()
    assert make_once(target, find, write, "write it to") == "whole"
    wrong.append(True)
    assert make_once(target, find, write, "write it to") == "whole"


# ---- locks


def test_a_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with lock(path) as held:
        assert held
        assert is_locked(path)
        with pytest.raises(Timeout), lock(path):
            pass
    assert not is_locked(path)


def test_waiting_is_told_once_and_a_dead_owner_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, said = tmp_path / "lock", list[str]()
    program = f"import fcntl, time; f = open({str(path)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); "
    with subprocess.Popen([sys.executable, "-c", program + "time.sleep(60)"], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        monkeypatch.setattr("ntl.system.files.logger.warning", lambda line: (said.append(line), owner.kill()))
        with lock(path, wait=True) as held:
            assert held
    assert said == [f"waiting for another process that holds {path}"]
    with lock(path, wait=True) as held:
        assert held
    assert len(said) == 1


def test_no_locks_are_not_a_lock_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: object, flags: int) -> None:
        raise OSError(errno.ENOLCK, "as the system says")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "lock").touch()
    assert not is_locked(tmp_path / "lock")
    with lock(tmp_path / "lock") as held:
        assert not held
    with lock(tmp_path / "lock", lambda line: pytest.fail("there is nobody to wait for")) as held:
        assert not held


# ---- files of weights and tokenizers in folders and in the cache, and their digest


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


def test_a_cached_model_is_named_by_its_commit_and_by_what_a_folder_of_the_same_files_is(tmp_path, monkeypatch) -> None:
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
