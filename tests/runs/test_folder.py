"""Complete checkpoints, and which of them are kept."""

import json
from pathlib import Path

import pytest

from ntl.runs.folder import KEEP, by_step, latest_complete, prune, step_of, write_manifest


def _checkpoint(folder: Path, step: int) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(range(256)))
    (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": [*range(100)]}))
    write_manifest(checkpoint)
    return checkpoint


def _steps(folder: Path) -> list[int]:
    return [step_of(path) for path in by_step(folder)]


@pytest.mark.parametrize("name", ["model.safetensors", "trainer_state.json", "manifest.json"])
def test_a_damaged_file_is_noticed_and_the_one_before_is_taken(tmp_path: Path, name: str) -> None:
    older, newer = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    assert latest_complete(tmp_path) == (newer, [])
    content = (newer / name).read_bytes()
    for damaged in (content[:7] + b"\1" + content[8:], content[:-1]):
        (newer / name).write_bytes(damaged)
        assert latest_complete(tmp_path) == (older, [newer])
    (newer / name).unlink()
    assert latest_complete(tmp_path) == (older, [newer])


def test_the_newest_stay_by_step_not_by_name(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    assert _steps(tmp_path) == [100, 20, 9]
    assert latest_complete(tmp_path / "none") == (None, [])
    prune(tmp_path / "checkpoint-100", keep=2)
    assert _steps(tmp_path) == [100, 20]
    assert (tmp_path / "checkpoint-best").is_dir()
    # What lies beyond the newest is of another attempt, also where it was to be kept.
    (tmp_path / "checkpoint-100" / KEEP).touch()
    prune(tmp_path / "checkpoint-20", keep=1)
    assert _steps(tmp_path) == [20]


def test_every_file_of_a_checkpoint_is_read_by_other_users_too(finished: Path) -> None:
    files = [path for path in (finished / "checkpoints").rglob("*") if path.is_file()]
    assert {path.name: oct(path.stat().st_mode)[-3:] for path in files} == {path.name: "644" for path in files}
    assert "model.safetensors" in {path.name for path in files}
