"""Whole runs on a file system that fills up, and on a read-only one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ntl.config import Config, UserError, run_id
from ntl.training import run
from ntl.training.checkpoints import newest_whole
from ntl.training.trainer import ObjectiveTrainer

ONE_LINE = r"^[^\n]*: a file could not be written whole \([^\n]*\): is the disk full, or read-only\? Make room; [^\n]*$"


@pytest.fixture
def on_tmpfs(small: Callable[..., Config], tmp_path: Path, mount: Callable[..., None]) -> Config:
    """The config of the ``finished`` run, with the folder of outputs on a file system of 4 MiB."""
    outputs = tmp_path / "small_disk"
    outputs.mkdir()
    mount(outputs, "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    return small(f"output_dir={outputs}")


def fill(folder: Path, leave: int) -> Path:
    """A file that takes all room but ``leave`` bytes."""
    filler, status = folder / "filler", os.statvfs(folder)
    filler.write_bytes(bytes(status.f_bavail * status.f_frsize - leave))
    return filler


@pytest.mark.parametrize("leave", [pytest.param(0, marks=pytest.mark.slow), 40 << 10])
def test_a_disk_that_fills_up_while_a_checkpoint_is_written(
    leave: int, on_tmpfs: Config, finished: Path, without_times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the checkpoint the room ends, the one before it stays, and with room the run ends as it would."""
    folder = Path(on_tmpfs.output_dir) / run_id(on_tmpfs)
    original, fillers = ObjectiveTrainer._save_checkpoint, []

    def save(self: ObjectiveTrainer, *args: Any) -> None:
        if self.state.global_step == 12:
            fillers.append(fill(Path(on_tmpfs.output_dir), leave))
        original(self, *args)

    monkeypatch.setattr(ObjectiveTrainer, "_save_checkpoint", save)
    with pytest.raises(UserError, match=ONE_LINE):
        run(on_tmpfs)
    monkeypatch.setattr(ObjectiveTrainer, "_save_checkpoint", original)
    checkpoint, _ = newest_whole(folder / "checkpoints")
    assert checkpoint == folder / "checkpoints" / "checkpoint-6"
    fillers[0].unlink()
    assert without_times(run(on_tmpfs)) == without_times(finished / "record.json")


def test_a_read_only_folder_of_outputs(finished: Path, small, make_read_only, capsys) -> None:
    make_read_only(finished.parent)
    assert run(small()) == finished / "record.json"
    assert "finished already" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"^output_dir=\S+: Read-only file system; choose another by output_dir=\.$"):
        run(small("seed=2"))
