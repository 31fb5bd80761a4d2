import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ntl
from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import dataset_named, load_dataset
from ntl.data.prepared import Prepared
from ntl.data.sets.noisy_numbers import NoisyNumbers

# Prepares the data set of the fixture `small` and waits in the middle of writing while a file named "hold" exists.
CHILD = """
import sys, time
from pathlib import Path
from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import store
from ntl.data.prepared import Prepared
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
    Prepared(NoisyNumbers(NoisyNumbersConfig(train_rows=30, validation_rows=10, test_rows=20)), data_dir).prepare(print)
except UserError as error:
    print("UserError", error)
"""


def child(data_dir: Path, code: str = CHILD) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code, str(data_dir)], stdout=subprocess.PIPE, text=True, env=environment()
    )


def environment() -> dict[str, str]:
    source = str(Path(ntl.__file__).parents[1])
    return {**{key: value for key, value in os.environ.items() if key != "NTL_DATA_DIR"}, "PYTHONPATH": source}


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.01)


def parts(data_dir: Path) -> list[Path]:
    return [path for path in data_dir.iterdir() if ".part-" in path.name]


def test_the_second_run_does_nothing(small: Prepared, data_dir: Path, silent: list[str]) -> None:
    folder = small.prepare(silent.append)
    assert silent == ["noisy_numbers: computing 60 rows"]
    assert parts(data_dir) == []
    before = {path: path.stat().st_mtime_ns for path in [data_dir, folder, *folder.iterdir()]}
    assert small.prepare(silent.append) == folder
    assert small.prepare(silent.append, verify=True) == folder
    assert {path: path.stat().st_mtime_ns for path in [data_dir, folder, *folder.iterdir()]} == before
    assert len(silent) == 1


def test_the_manifest_says_what_was_done(small: Prepared, data_dir: Path) -> None:
    import numpy

    manifest = json.loads((small.prepare() / "manifest.json").read_text())
    sizes = {"train_rows": 30, "validation_rows": 10, "test_rows": 20}
    assert manifest["config"] == {"name": "noisy_numbers", "answers": "number", "noise_sd": 6.0, "seed": 0, **sizes}
    assert manifest["source"] == {"kind": "computed from the config"}
    assert manifest["made_with"]["numpy"] == numpy.__version__
    rows = {split: entry["rows"] for split, entry in manifest["splits"].items()}
    assert rows == {"train": 30, "validation": 10, "test": 20}


def test_a_kill_in_the_middle_leaves_nothing_taken_for_whole(
    small: Prepared, data_dir: Path, silent: list[str]
) -> None:
    (data_dir / "hold").touch()
    process = child(data_dir)
    wait_for(data_dir / "reached")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(parts(data_dir)) == 1
    assert small.find() is None
    with pytest.raises(UserError, match="is not prepared"):
        small.rows("train")
    small.prepare(silent.append)
    assert parts(data_dir) == []
    assert len(small.rows("train")) == 30


def test_two_at_once_make_one(small: Prepared, data_dir: Path) -> None:
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
    small.prepare(verify=True)


def test_a_read_only_folder(small: Prepared, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ntl.data.prepared.tempfile.mkdtemp", refuse)
    with pytest.raises(UserError, match=r"^cannot write prepared data to .*/data: Permission denied\.$"):
        small.prepare()


def test_a_full_disk_is_one_line_and_leaves_nothing(data_dir: Path) -> None:
    # A limit on file size breaks a write in its middle, as a full disk does.
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))\n"
    output = child(data_dir, limit + CHILD).communicate()[0].splitlines()
    assert output[1:] == [f"UserError cannot write prepared data to {data_dir}: File too large."]
    assert parts(data_dir) == []
    assert Prepared(NoisyNumbers(NoisyNumbersConfig()), data_dir).find() is None


def test_the_shared_folder_is_read_and_never_written(
    small: Prepared, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert small.prepare().parent == data_dir
    assert list(shared.iterdir()) == []
    other = NoisyNumbers(NoisyNumbersConfig(seed=7))
    monkeypatch.delenv("NTL_DATA_DIR")
    Prepared(other, shared).prepare()
    monkeypatch.setenv("NTL_DATA_DIR", str(shared))
    assert Prepared(other, data_dir).prepare().parent == shared
    assert len(Prepared(other, data_dir).rows("test")) == 2000


def test_reading_before_preparing_says_what_to_do(small: Prepared) -> None:
    with pytest.raises(
        UserError, match=r"is not prepared: no folder .*; run python scripts/prepare_data.py noisy_numbers"
    ):
        small.rows("train")


def test_of_many_targets_every_kth_is_taken(small: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    small.prepare()
    answers = [row["answer"] for row in small.rows("train")]
    for most, step in ((30, 1), (29, 2), (15, 2), (7, 5), (1, 30)):
        monkeypatch.setattr("ntl.data.prepared.MAX_TARGETS", most)
        assert small.train_targets() == answers[::step]


def test_the_key_of_a_split_s_content(small: Prepared, data_dir: Path) -> None:
    small.prepare()
    keys = {small.content_key(split) for split in small.dataset.splits}
    assert len(keys) == 3
    other = NoisyNumbers(NoisyNumbersConfig(train_rows=30, validation_rows=10, test_rows=20, seed=1))
    with_another_seed = Prepared(other, data_dir)
    with_another_seed.prepare()
    assert with_another_seed.content_key("train") not in keys


def test_load_dataset_prepares_on_first_use(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_dataset("noisy_numbers", "test", data_dir)
    assert len(data) == 2000
    assert data.column_names == ["id", "question", "answer"]
    assert data[0]["id"] == "test/00000"
    # Without a folder, into data.
    monkeypatch.chdir(data_dir)
    assert len(load_dataset("noisy_numbers", "validation")) == 500
    made = [path.name for path in (data_dir / "data").iterdir() if path.is_dir()]
    assert made == [dataset_named("noisy_numbers").folder_name]


def test_text_comes_without_torch_and_without_datasets(data_dir: Path) -> None:
    code = (
        "import sys; sys.modules['datasets'] = None; sys.modules['pyarrow'] = None\n"
        "from ntl.data import Prepared, dataset_named\n"
        "p = Prepared(dataset_named('noisy_numbers', train_rows=9), sys.argv[1]); p.prepare()\n"
        "assert len(p.rows('train')) == 9 and p.train_targets()\n"
        "assert not any('arrow' in str(e) for e in p.manifest['splits'].values())\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(data_dir)], check=True, env=environment())
