"""What happens before torch is loaded, and who may be at a run."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import UserError, compose
from ntl.system.errors import Busy
from ntl.training import runner
from ntl.training.folder import is_taken, only_one, say
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


def test_only_the_first_rank_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    say("one")
    monkeypatch.setenv("RANK", "0")
    say("two")
    monkeypatch.setenv("RANK", "1")
    say("three")
    assert capsys.readouterr().out == "one\ntwo\n"


def _locked_by_another(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def test_whether_somebody_is_at_a_run(tmp_path: Path) -> None:
    folder, lock = tmp_path / "run", tmp_path / ".run.lock"
    assert not is_taken(folder)
    with only_one(folder):
        assert is_taken(folder)
    assert not is_taken(folder)
    lock.touch()  # left by a process that was killed
    assert not is_taken(folder)
    with only_one(folder):  # asking took nothing
        assert is_taken(folder)


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


def test_a_lock_file_that_its_owner_just_deleted_is_not_the_lock(tmp_path: Path, monkeypatch) -> None:
    path, original = tmp_path / ".run.lock", fcntl.flock
    opened: list[object] = []

    def delete_first(handle, flags: int) -> None:
        opened.append(handle)
        if len(opened) == 1:
            path.unlink()
        original(handle, flags)

    monkeypatch.setattr(fcntl, "flock", delete_first)
    with only_one(tmp_path / "run"):
        assert len(opened) > 1
        assert _locked_by_another(path)


def test_a_run_that_was_finished_while_this_one_came_is_not_repeated(finished: Path, small, monkeypatch) -> None:
    record = finished / "record.json"
    hidden = record.rename(finished / "hidden")

    def finish(*arguments: object) -> None:
        hidden.rename(record)

    config = small()
    config.model.pretrained = False
    monkeypatch.setattr(runner, "source", lambda model: finish() or "")
    before = sorted(path.stat().st_mtime_ns for path in finished.rglob("*"))
    assert run(config) == record
    assert sorted(path.stat().st_mtime_ns for path in finished.rglob("*")) == before


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (2, r"record\.json: written by a newer ntl \(record schema 2, here 1\): upgrade$"),
        (0, r"record\.json: record schema 0 is unknown: run the training again"),
    ],
)
def test_a_record_of_another_schema_is_left_alone(schema: int, message: str, finished: Path, small) -> None:
    path = finished / "record.json"
    other = path.read_text().replace('"schema":1', f'"schema":{schema}', 1)
    path.write_text(other)
    with pytest.raises(UserError, match=message):
        run(small())
    assert path.read_text() == other


def test_a_full_disk_is_one_line(small, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(runner, "_train", full)
    config = small()
    with pytest.raises(UserError, match=r"noisy_numbers-gpt2_tiny.*No space left on device.*Make room"):
        run(config)


def _failing_locks(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def fail(handle: object, flags: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", fail)


def test_a_file_system_without_locks_is_a_warning(finished: Path, small, monkeypatch, capsys) -> None:
    """Neither another process that is not there, nor a wait without end, nor silence."""
    _failing_locks(monkeypatch, errno.ENOLCK)
    with only_one(finished):
        assert not is_taken(finished)
    said = capsys.readouterr().out
    assert said.startswith(f"{finished.parent}: this file system has no locks")
    assert said.count("\n") == 1
    assert not (finished.parent / f".{finished.name}.lock").exists()
    (finished / "record.json").unlink()
    assert run(small()) == finished / "record.json"


def test_a_lock_that_fails_is_neither_another_process_nor_a_missing_one(tmp_path: Path, monkeypatch) -> None:
    _failing_locks(monkeypatch, errno.EIO)
    refused = pytest.raises(UserError, match=r"output_dir=.*: Input/output error; choose another by output_dir=")
    with refused as caught, only_one(tmp_path / "run"):
        pass
    assert not isinstance(caught.value, Busy)


@pytest.fixture
def leftovers(finished: Path) -> Callable[[], list[str]]:
    """The checkpoints after a kill between the record and the deletion of earlier ones: 6 and 12 are kept, 3 is not."""
    shutil.copytree(finished / "checkpoints" / "checkpoint-6", finished / "checkpoints" / "checkpoint-3")
    return lambda: sorted(path.name for path in (finished / "checkpoints").iterdir())


def test_a_finished_run_deletes_the_checkpoints_that_a_kill_left(leftovers, small) -> None:
    run(small())
    assert leftovers() == ["checkpoint-12", "checkpoint-6"]


def test_leftovers_stay_while_somebody_is_at_the_run_or_where_nothing_can_be_written(
    finished: Path, leftovers, small, monkeypatch: pytest.MonkeyPatch, make_read_only
) -> None:
    with only_one(finished):
        run(small())
        assert len(leftovers()) == 3
    monkeypatch.setenv("RANK", "1")
    run(small())
    assert len(leftovers()) == 3
    monkeypatch.delenv("RANK")
    make_read_only(finished.parent)
    run(small())
    assert len(leftovers()) == 3
