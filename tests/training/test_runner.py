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
from ntl.system.errors import Busy
from ntl.training import run
from ntl.training.folder import is_taken, only_one


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


def test_one_process_at_a_run_and_no_file_left(finished: Path, small, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the next may have it; the other ranks of a run need no lock."""
    (finished / "record.json").unlink()
    with pytest.raises(ZeroDivisionError), only_one(finished):
        raise ZeroDivisionError
    with only_one(finished):
        assert is_taken(finished)
        with pytest.raises(Busy, match="another process"):
            run(small())
        with only_one(finished.parent / "other"):
            pass
        monkeypatch.setenv("RANK", "1")
        with only_one(finished):
            pass
        assert is_taken(finished)
    monkeypatch.delenv("RANK")
    assert not is_taken(finished)
    assert run(small()) == finished / "record.json"
    assert list(finished.parent.iterdir()) == [finished]


def test_a_file_system_without_locks_is_a_warning(finished: Path, small, monkeypatch, capsys) -> None:
    """Neither another process that is not there, nor a wait without end, nor silence."""

    def fail(handle: object, flags: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    (finished / "record.json").unlink()
    assert run(small()) == finished / "record.json"
    assert capsys.readouterr().out.count("this file system has no locks") == 1
    assert list(finished.parent.iterdir()) == [finished]


def test_a_finished_run_deletes_the_checkpoints_that_a_kill_left(finished: Path, small) -> None:
    """A kill between the record and the deletion of earlier ones; not while another process is at the run."""
    checkpoints = finished / "checkpoints"
    shutil.copytree(checkpoints / "checkpoint-6", checkpoints / "checkpoint-3")
    with only_one(finished):
        run(small())
        assert len(list(checkpoints.iterdir())) == 3
    run(small())
    assert sorted(path.name for path in checkpoints.iterdir()) == ["checkpoint-12", "checkpoint-6"]


@pytest.mark.slow
def test_a_sweep_ends_with_the_comparison_of_its_runs(settings, command) -> None:
    """Also where a run of it cannot be: its error comes last, with its exit code."""
    done = command("train.py", "-m", *settings("loss=ce,ntl_was,mse"))
    assert (done.returncode, done.stderr.splitlines()[-1][:17]) == (2, "error: model=gpt2")
    printed = done.stdout[done.stdout.rindex("Record: ") :]
    assert "\nnoisy_numbers\n" in printed
    assert [line.split()[0] for line in printed.splitlines() if line.startswith("loss=")] == ["loss=ce", "loss=ntl_was"]
    assert "[95% t interval]" in printed
