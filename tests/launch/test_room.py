"""What a sweep will take of the disk is said before it begins, and refused where there is less."""

import errno
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ntl.config import UserError, compose
from ntl.costs.runs import Costs
from ntl.launch.plan import Run, plan_runs
from ntl.launch.room import tell_room

OVERRIDES = [["dataset=noisy_numbers", f"seed={seed}"] for seed in (1, 2)]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What is said for two runs, with so many bytes free on the disk of the outputs, which are not there yet."""
    config = compose(OVERRIDES[0])
    asked: list[Path] = []

    def make(free: int, outputs: Path, runs: list[Run] | None = None) -> list[str]:
        def usage(path: Path) -> SimpleNamespace:
            assert path.is_dir()
            asked.append(path)
            return SimpleNamespace(free=free)

        monkeypatch.setattr(shutil, "disk_usage", usage)
        todo = plan_runs(OVERRIDES, outputs)[0] if runs is None else runs
        said: list[str] = []
        configs = {run.id: config for run in todo}
        tell_room(todo, configs, costs=Costs([]), at_once=1, outputs=outputs, say=said.append)
        return said

    monkeypatch.setattr(Costs, "parameters", lambda self, config: 1_000_000_000)
    return make


# One checkpoint of 12 GB of each run and 5 MB beside it, and two more of the one that trains.
NEEDED = 4 * 12_000_000_000 + 2 * 5_000_000


def test_it_is_told(tell: Callable[..., list[str]], tmp_path: Path) -> None:
    outputs = tmp_path / "not" / "there"
    assert tell(NEEDED, outputs) == [f"Disk: about 48 GB for 2 runs, 48 GB free in {outputs}."]
    assert not outputs.exists()


def test_too_little_is_refused(tell: Callable[..., list[str]], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the 2 runs need about 48 GB of disk, and 5\.0 GB are free there; make room"):
        tell(5_000_000_000, tmp_path)


def test_what_a_run_has_on_disk_is_not_needed_again(tell: Callable[..., list[str]], tmp_path: Path) -> None:
    todo, _ = plan_runs(OVERRIDES, tmp_path)
    (todo[0].folder / "checkpoints").mkdir(parents=True)
    (todo[0].folder / "checkpoints" / "weights").write_bytes(b"x" * 1000)
    assert len(tell(NEEDED - 1000, tmp_path)) == 1
    with pytest.raises(UserError, match="make room"):
        tell(NEEDED - 1001, tmp_path)


def test_nothing_to_run_needs_nothing(tell: Callable[..., list[str]], tmp_path: Path) -> None:
    assert tell(0, tmp_path, []) == []


def test_a_place_without_locks_is_told_first(
    tell: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs themselves tell it to their logs alone."""

    def no_locks(handle: object, flags: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    first, second = tell(NEEDED, tmp_path)
    assert first.startswith(f"{tmp_path}: this file system has no locks")
    assert second.startswith("Disk: ")
