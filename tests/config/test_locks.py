"""Who holds a lock, and what is said where a file system has none."""

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config.locks import Lock, acquire, tell_without_locks, without_locks

Refuse = Callable[[int], None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Every lock that is asked for fails with that error."""

    def make(number: int) -> None:
        def fail(handle: object, flags: int) -> None:
            raise OSError(number, "as the system says")

        monkeypatch.setattr(fcntl, "flock", fail)

    return make


def test_a_lock_is_ours_until_its_file_is_closed(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        assert acquire(first) is Lock.ours
        assert acquire(second) is Lock.theirs
        first.close()
        assert acquire(second, wait=True) is Lock.ours


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL])
@pytest.mark.parametrize("wait", [False, True])
def test_no_locks_are_not_a_lock_of_another(number: int, wait: bool, refuse: Refuse, tmp_path: Path) -> None:
    refuse(number)
    with (tmp_path / "lock").open("w") as file:
        assert acquire(file, wait=wait) is Lock.none


@pytest.mark.parametrize("number", [errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES])
def test_held_by_another(number: int, refuse: Refuse, tmp_path: Path) -> None:
    refuse(number)
    with (tmp_path / "lock").open("w") as file:
        assert acquire(file) is Lock.theirs
        with pytest.raises(OSError, match="as the system says"):
            acquire(file, wait=True)


def test_anything_else_is_raised(refuse: Refuse, tmp_path: Path) -> None:
    refuse(errno.EIO)
    with (tmp_path / "lock").open("w") as file, pytest.raises(OSError, match="as the system says"):
        acquire(file)


def test_a_place_without_locks_is_told_and_nothing_is_left_there(refuse: Refuse, tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "not" / "there"
    tell_without_locks(folder, "outputs", said.append)
    assert said == []
    refuse(errno.ENOSYS)
    tell_without_locks(folder, "outputs", said.append)
    assert said == [without_locks(folder, "run", "outputs")]
    assert said[0].endswith("start each run once, or choose another place by outputs=.")
    assert list(tmp_path.iterdir()) == []
