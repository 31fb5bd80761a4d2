"""Atomic writing of files, locks between processes, and the removal of what killed processes leave behind."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import Timeout

from ntl.runs.folder import remove_parts
from ntl.system.errors import UserError
from ntl.system.files import is_locked, lock, make_once, sha256_of, write_text


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
        make_once(target, find, write, print, "write it to")
    assert not [path for path in tmp_path.rglob("*") if path.name not in ("a", ".a.lock")]
    wrong.clear()
    assert make_once(target, find, write, print, "write it to") == "whole"
    wrong.append(True)
    assert make_once(target, find, write, print, "write it to") == "whole"


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


def test_waiting_is_told_once_and_a_dead_owner_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = f"import fcntl, time; f = open({str(path)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); "
    with subprocess.Popen([sys.executable, "-c", program + "time.sleep(60)"], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        said: list[str] = []

        def log(line: str) -> None:
            said.append(line)
            owner.kill()

        with lock(path, log) as held:
            assert held
    assert said == [f"waiting for another process that holds {path}"]
    with lock(path, said.append) as held:
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
