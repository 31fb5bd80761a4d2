import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import preparation
from ntl.data.preparation import find_prepared
from ntl.data.sets.noisy_numbers import NoisyNumbers
from ntl.system.locks import wait_for_lock

# Prepares the data set of the fixture `small` and waits in the middle of writing while a file named "hold" exists.
CHILD = """
import sys, time
from pathlib import Path
from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import store
from ntl.data.sets.noisy_numbers import NoisyNumbers

data_dir = Path(sys.argv[1])
write = store.write_split

def held(folder, split, rows):
    entry = write(folder, split, rows)
    if split == "train":
        (data_dir / "reached").touch()
        while (data_dir / "hold").exists():
            time.sleep(0.01)
    return entry

store.write_split = held
try:
    NoisyNumbers(NoisyNumbersConfig(train_rows=30, validation_rows=10, test_rows=20)).prepare(data_dir, print)
except UserError as error:
    print("UserError", error)
"""


def child(data_dir: Path, code: str = CHILD) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(data_dir)], stdout=subprocess.PIPE, text=True, env=environment()
    )


def environment() -> dict[str, str]:
    source = str(Path(preparation.__file__).parents[2])
    return {**{key: value for key, value in os.environ.items() if key != "NTL_DATA_DIR"}, "PYTHONPATH": source}


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.01)


def parts(data_dir: Path) -> list[Path]:
    return [path for path in data_dir.iterdir() if ".part-" in path.name]


def test_the_second_run_does_nothing(small: NoisyNumbers, data_dir: Path, silent: list[str]) -> None:
    folder = small.prepare(data_dir, silent.append)
    assert silent == ["noisy_numbers: computing 60 rows"]
    assert parts(data_dir) == []
    before = {path: path.stat().st_mtime_ns for path in [data_dir, folder, *folder.iterdir()]}
    assert small.prepare(data_dir, silent.append) == folder
    assert small.prepare(data_dir, silent.append, verify=True) == folder
    assert {path: path.stat().st_mtime_ns for path in [data_dir, folder, *folder.iterdir()]} == before
    assert len(silent) == 1


def test_the_manifest_says_what_was_done(small: NoisyNumbers, data_dir: Path) -> None:
    import numpy

    manifest = json.loads((small.prepare(data_dir) / "manifest.json").read_text())
    assert manifest["config"] == {
        "name": "noisy_numbers",
        "answers": "number",
        "train_rows": 30,
        "validation_rows": 10,
        "test_rows": 20,
        "noise_sd": 6.0,
        "seed": 0,
    }
    assert manifest["source"] == {"kind": "computed from the config"}
    assert manifest["made_with"]["numpy"] == numpy.__version__
    assert {split: entry["rows"] for split, entry in manifest["splits"].items()} == {
        "train": 30,
        "validation": 10,
        "test": 20,
    }


def test_a_kill_in_the_middle_leaves_nothing_taken_for_whole(
    small: NoisyNumbers, data_dir: Path, silent: list[str]
) -> None:
    (data_dir / "hold").touch()
    process = child(data_dir)
    wait_for(data_dir / "reached")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(parts(data_dir)) == 1
    assert find_prepared(small, data_dir) is None
    with pytest.raises(UserError, match="is not prepared"):
        small.rows("train", data_dir)
    small.prepare(data_dir, silent.append)
    assert parts(data_dir) == []
    assert len(small.rows("train", data_dir)) == 30


def test_two_at_once_make_one(small: NoisyNumbers, data_dir: Path) -> None:
    (data_dir / "hold").touch()
    first = child(data_dir)
    wait_for(data_dir / "reached")
    second = child(data_dir)
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting for another process")
    (data_dir / "hold").unlink()
    assert first.communicate()[0] == "noisy_numbers: computing 60 rows\n"
    assert second.communicate()[0] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert parts(data_dir) == []
    small.prepare(data_dir, verify=True)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINVAL])
def test_without_locks_the_first_rename_wins(
    number: int, small: NoisyNumbers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    working, replace = data_dir / f".{small.folder_name}.part-theirs", os.replace
    working.mkdir()

    def beaten(source: Path, target: Path) -> None:
        target.mkdir()
        (target / "theirs").touch()
        replace(source, target)

    monkeypatch.setattr(os, "replace", beaten)
    with pytest.raises(UserError, match=r"manifest\.json:1: missing"):  # their folder is kept, and looked at
        small.prepare(data_dir)
    assert parts(data_dir) == [working]
    assert (data_dir / small.folder_name / "theirs").exists()


def test_any_other_lock_error_is_reported(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(UserError, match=r"cannot write .*: Input/output error"),
        wait_for_lock(data_dir / "x.lock", print),
    ):
        pass


def test_a_file_in_place_of_the_data_folder(small: NoisyNumbers, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"^cannot make the data folder .*/file/data: "):
        small.prepare(tmp_path / "file" / "data")


def test_a_read_only_folder(small: NoisyNumbers, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(preparation.tempfile, "mkdtemp", refuse)
    with pytest.raises(UserError, match=r"^cannot write prepared data to .*/data: Permission denied\.$"):
        small.prepare(data_dir)
    if os.geteuid() == 0:
        return  # permissions do not stop root; the rest is for everyone else
    monkeypatch.undo()
    data_dir.chmod(0o555)
    with pytest.raises(UserError, match=r"^cannot write .*Permission denied"):
        small.prepare(data_dir)


def test_a_full_disk_is_one_line_and_leaves_nothing(data_dir: Path) -> None:
    # A limit on file size breaks a write in its middle, as a full disk does.
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))\n"
    output = child(data_dir, limit + CHILD).communicate()[0].splitlines()
    assert output[1:] == [f"UserError cannot write prepared data to {data_dir}: File too large."]
    assert parts(data_dir) == []
    assert find_prepared(NoisyNumbers(NoisyNumbersConfig()), data_dir) is None


def test_an_interrupt_removes_the_temporary_folder(
    small: NoisyNumbers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation.store, "write_split", interrupt)
    with pytest.raises(KeyboardInterrupt):
        small.prepare(data_dir)
    assert parts(data_dir) == []


def test_the_shared_folder_is_read_and_never_written(
    small: NoisyNumbers, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert small.prepare(data_dir).parent == data_dir
    assert list(shared.iterdir()) == []
    prepared = NoisyNumbers(NoisyNumbersConfig(seed=7))
    monkeypatch.delenv("NTL_DATA_DIR")
    prepared.prepare(shared)
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert prepared.prepare(data_dir).parent == shared
    assert len(prepared.rows("test", data_dir)) == 2000
