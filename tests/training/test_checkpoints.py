"""Which checkpoint counts as whole, and which are kept."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.training.checkpoints import (
    by_step,
    check_data,
    is_whole,
    keep_newest,
    newest_whole,
    prune,
    read_meters,
    read_run,
    step_of,
    steps_taken,
    write_data,
    write_manifest,
    write_meters,
    write_run,
)


def _checkpoint(folder: Path, step: int) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(range(256)))
    (checkpoint / "trainer_state.json").write_text("{}")
    write_manifest(checkpoint)
    return checkpoint


def test_a_checkpoint_is_whole_once_its_manifest_is_written(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    assert is_whole(checkpoint)
    (checkpoint / "manifest.json").unlink()
    assert not is_whole(checkpoint)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_file_is_noticed_and_the_one_before_is_taken(tmp_path: Path, damage: str) -> None:
    older, newer = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    file = newer / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    damaged = {"flip": bytes(content), "cut": content[:100], "empty": b""}
    file.unlink() if damage == "gone" else file.write_bytes(damaged[damage])
    assert newest_whole(tmp_path) == (older, [newer])


def test_after_a_run_the_newest_whole_ones_stay(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-20" / "manifest.json").unlink()
    keep_newest(tmp_path, 2)
    assert [step_of(path) for path in by_step(tmp_path)] == [15, 10]
    keep_newest(tmp_path, 1)
    assert [step_of(path) for path in by_step(tmp_path)] == [15]
    (tmp_path / "checkpoint-15" / "manifest.json").unlink()
    keep_newest(tmp_path, 1)
    assert [step_of(path) for path in by_step(tmp_path)] == [15]


def test_a_manifest_names_no_file_elsewhere(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    other = tmp_path / "other"
    other.write_bytes(b"")
    for name in ("../other", str(other)):
        (checkpoint / "manifest.json").write_text(json.dumps({name: hashlib.sha256(b"").hexdigest()}))
        assert not is_whole(checkpoint)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"no-such-file": "00"}'])
def test_a_broken_manifest_is_no_manifest(tmp_path: Path, manifest: str) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    (checkpoint / "manifest.json").write_text(manifest)
    assert newest_whole(tmp_path) == (None, [checkpoint])


def test_order_is_by_step_not_by_name(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "notes").mkdir()
    assert [step_of(path) for path in by_step(tmp_path)] == [100, 20, 9]
    assert step_of(tmp_path / "notes") == -1
    prune(tmp_path / "checkpoint-100", keep=2)
    assert [step_of(path) for path in by_step(tmp_path)] == [100, 20]
    assert (tmp_path / "checkpoint-best").is_dir()


def test_what_lies_beyond_the_newest_is_of_another_attempt(tmp_path: Path) -> None:
    for step in (4, 8, 12, 16):
        _checkpoint(tmp_path, step)
    prune(tmp_path / "checkpoint-8", keep=1)
    assert [step_of(path) for path in by_step(tmp_path)] == [8]


def test_steps_are_those_of_the_state_not_of_the_name(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 7}')
    assert steps_taken(checkpoint.rename(tmp_path / "mine")) == 7


def test_no_folder_no_checkpoint(tmp_path: Path) -> None:
    assert newest_whole(tmp_path / "none") == (None, [])


def test_meters_come_back_to_the_last_bit(tmp_path: Path) -> None:
    meters = [1 / 3, 2**53 + 0.0, 5e-324]
    write_meters(tmp_path / "meters.json", meters, 17, (96, 123456789))
    assert read_meters(tmp_path / "meters.json") == (meters, 17, [96, 123456789])
    assert json.loads((tmp_path / "meters.json").read_text())["since"] == 17
    assert [path.name for path in tmp_path.iterdir()] == ["meters.json"]


def test_the_data_of_a_checkpoint_is_known(tmp_path: Path) -> None:
    write_data(tmp_path, {"train.jsonl": "aa", "test.jsonl": "bb"})
    check_data(tmp_path, {"test.jsonl": "bb", "train.jsonl": "aa"})
    with pytest.raises(UserError) as raised:
        check_data(tmp_path, {"train.jsonl": "cc", "other.jsonl": "bb"})
    assert str(raised.value) == (
        f"{tmp_path}: the data is not what it was trained on: other.jsonl had sha256 None and has bb, "
        "test.jsonl had sha256 bb and has None, train.jsonl had sha256 aa and has cc; "
        "restore it, or begin anew with resume=never."
    )


def test_a_checkpoint_of_before_does_not_know_its_data(tmp_path: Path) -> None:
    check_data(tmp_path, {"train.jsonl": "cc"})


def test_a_checkpoint_is_on_the_disk_before_its_manifest_and_then_so_is_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        events.extend(name(path) for path in (tmp_path, *tmp_path.rglob("*")) if path.stat().st_ino == inode)
        sync(handle)

    def name(path: Path | str) -> str:
        # A file that is being written has a random part in its name.
        return re.sub(r"json[.].*[.]part$", "json.part", Path(path).name)

    def rename(source: str, target: Path) -> None:
        events.append(f"{name(source)} -> {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    _checkpoint(tmp_path, 5)
    new = ".manifest.json.part"
    files = ["model.safetensors", "trainer_state.json"]
    assert events == [*files, new, f"{new} -> manifest.json", "checkpoint-5", tmp_path.name]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"config": {}, "made_of": 3}', '{"config": null, "made_of": {}}'])
def test_a_description_of_a_run_that_is_none(tmp_path: Path, content: str) -> None:
    assert read_run(tmp_path) == {}
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=r"cannot be continued from \(run\.json: not what was written\); remove this"):
        read_run(tmp_path)
    run = {"id": "a", "config": {"seed": 1}, "processes": 1, "made_of": {}}
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run
