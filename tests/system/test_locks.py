"""Locks between processes, and the warning about a file system without locks."""

import errno
import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.system.locks import Taken, is_locked, lock, wait_for_lock, without_locks

Refuse = Callable[[int], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Make every lock fail with this error."""

    def make(number: int) -> None:
        def fail(handle: object, flags: int) -> None:
            raise OSError(number, "as the system says")

        monkeypatch.setattr(fcntl, "flock", fail)

    return make


def test_a_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with lock(path) as held:
        assert held
        assert is_locked(path)
        with pytest.raises(Taken), lock(path):
            pass
    assert not is_locked(path)
    with pytest.raises(ZeroDivisionError), lock(path):
        raise ZeroDivisionError
    assert not is_locked(path)


def test_waiting_is_told_once_and_a_dead_owner_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = f"import fcntl, time; f = open({str(path)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); "
    with subprocess.Popen([sys.executable, "-c", program + "time.sleep(60)"], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        said: list[str] = []

        def waiting() -> None:
            said.append("waiting")
            owner.kill()

        with lock(path, waiting) as held:
            assert held
    assert said == ["waiting"]
    with wait_for_lock(path, said.append) as held:
        assert held
    assert said == ["waiting"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_no_locks_are_not_a_lock_of_another(number: int, refuse: Refuse, tmp_path: Path) -> None:
    refuse(number)
    (tmp_path / "lock").touch()
    assert not is_locked(tmp_path / "lock")
    with lock(tmp_path / "lock") as held:
        assert not held
    with lock(tmp_path / "lock", lambda: pytest.fail("there is nobody to wait for")) as held:
        assert not held


@pytest.mark.parametrize("number", [errno.EWOULDBLOCK, errno.EACCES])
def test_held_by_another(number: int, refuse: Refuse, tmp_path: Path) -> None:
    refuse(number)
    with pytest.raises(Taken), lock(tmp_path / "lock"):
        pass
    assert is_locked(tmp_path / "lock")


def test_a_place_without_locks_is_told() -> None:
    assert without_locks(Path("a"), "run", "outputs").endswith(
        "start each run once, or choose another place by outputs=."
    )
