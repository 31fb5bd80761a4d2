"""What happens before torch is loaded, and who may be at a run."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ntl.config import UserError, compose
from ntl.training.folder import is_taken, only_one
from ntl.training.runner import run


def test_a_finished_run_is_reported_without_torch(finished: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from ntl.config.composition import read_config
from ntl.training import run
print(run(read_config(Path({str(finished)!r}))))
print("torch" in sys.modules or "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, path, torch_is_loaded = done.stdout.splitlines()
    assert Path(path) == finished / "record.json"
    assert "finished already" in said
    assert torch_is_loaded == "False"


def test_weights_that_are_not_there_are_told_before_anything_is_made(settings, tmp_path: Path) -> None:
    words = [word for word in settings() if not word.startswith("model.")]
    config = compose([*words, "model=gpt2_small", "model.path=nobody/nothing"])
    with pytest.raises(UserError, match=r"nobody/nothing.*model.pretrained=false"):
        run(config)
    assert not Path(config.output_dir).exists()


def _locked_by_another(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def test_one_process_at_a_run_and_no_file_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, lock = tmp_path / "outputs" / "run", tmp_path / "outputs" / ".run.lock"
    with pytest.raises(ZeroDivisionError), only_one(folder):  # after an error the next may have it
        raise ZeroDivisionError
    with only_one(folder):
        assert _locked_by_another(lock)
        with pytest.raises(UserError, match="another process"), only_one(folder):
            pass
        with only_one(tmp_path / "outputs" / "other"):
            pass
        monkeypatch.setenv("RANK", "1")  # of the same run
        with only_one(folder):
            pass
        assert _locked_by_another(lock)
    assert list((tmp_path / "outputs").iterdir()) == []


def test_a_record_of_another_schema_is_left_alone(finished: Path, small) -> None:
    path = finished / "record.json"
    other = path.read_text().replace('"schema":1', '"schema":2', 1)
    path.write_text(other)
    with pytest.raises(UserError, match=r"record\.json: written by a newer ntl"):
        run(small())
    assert path.read_text() == other


def test_a_file_system_without_locks_is_a_warning(finished: Path, monkeypatch, capsys) -> None:
    """Neither another process that is not there, nor a wait without end, nor silence."""

    def fail(handle: object, flags: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with only_one(finished):
        assert not is_taken(finished)
    assert capsys.readouterr().out.startswith(f"{finished.parent}: this file system has no locks")
    assert not (finished.parent / f".{finished.name}.lock").exists()


def test_a_finished_run_deletes_the_checkpoints_that_a_kill_left(finished: Path, small) -> None:
    """Between the record and the deletion of earlier ones; not while somebody is at the run."""
    checkpoints = finished / "checkpoints"
    shutil.copytree(checkpoints / "checkpoint-6", checkpoints / "checkpoint-3")
    with only_one(finished):
        run(small())
        assert len(list(checkpoints.iterdir())) == 3
    run(small())
    assert sorted(path.name for path in checkpoints.iterdir()) == ["checkpoint-12", "checkpoint-6"]
