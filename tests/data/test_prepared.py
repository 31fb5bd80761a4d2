import hashlib
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ntl
from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import dataset_named, load_dataset
from ntl.data.dataset import Log, Material, numbered
from ntl.data.prepared import Lines, Prepared, Rows, write_split
from ntl.data.sets.noisy_numbers import NoisyNumbers

# Prepares the data set of the fixture `small` and waits in the middle of writing while a file named "hold" exists.
CHILD = """
import sys, time
from pathlib import Path
from ntl.config import UserError
from ntl.config.data import NoisyNumbersConfig
from ntl.data import prepared
from ntl.data.prepared import Prepared
from ntl.data.sets.noisy_numbers import NoisyNumbers

data_dir = Path(sys.argv[1])
write = prepared.write_split

def held(path, rows):
    entry = write(path, rows)
    if path.name == "train.jsonl":
        (data_dir / "reached").touch()
        while (data_dir / "hold").exists():
            time.sleep(0.01)
    return entry

prepared.write_split = held
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
    assert {path: path.stat().st_mtime_ns for path in [data_dir, folder, *folder.iterdir()]} == before
    assert len(silent) == 1


def test_the_manifest_says_what_was_done(small: Prepared, data_dir: Path) -> None:
    manifest = json.loads((small.prepare() / "manifest.json").read_text())
    sizes = {"train_rows": 30, "validation_rows": 10, "test_rows": 20}
    assert manifest["config"] == {"name": "noisy_numbers", "answers": "number", "noise_sd": 6.0, "seed": 0, **sizes}
    assert manifest["source"] == {"kind": "computed from the config"}
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
    with pytest.raises(UserError, match=r"is not prepared: no folder .*; run python scripts/prepare_data.py noisy_num"):
        small.rows("train")
    small.prepare(silent.append)
    assert parts(data_dir) == []
    assert len(small.rows("train")) == 30


@pytest.mark.slow
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
    assert len(small.rows("train")) == 30


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


def test_of_many_targets_every_kth_is_taken(small: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    small.prepare()
    answers = [row["answer"] for row in small.rows("train")]
    for most, step in ((30, 1), (29, 2), (15, 2), (7, 5), (1, 30)):
        monkeypatch.setattr("ntl.data.prepared.MAX_TARGETS", most)
        assert small.train_targets() == answers[::step]


def test_load_dataset_prepares_on_first_use(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = load_dataset("noisy_numbers", "test", data_dir)
    assert len(data) == 2000
    assert data.column_names == ["id", "question", "answer"]
    assert data[0]["id"] == "test/00000"
    # Without a folder, into data.
    monkeypatch.chdir(data_dir)
    assert len(load_dataset("noisy_numbers", "validation")) == 500
    made = [path.name for path in (data_dir / "data").glob("[!.]*")]
    assert made == [dataset_named("noisy_numbers").folder_name]


def test_text_comes_without_torch_and_without_datasets(data_dir: Path) -> None:
    code = (
        "import sys; sys.modules['datasets'] = None; sys.modules['pyarrow'] = None\n"
        "from ntl.data import Prepared, dataset_named\n"
        "p = Prepared(dataset_named('noisy_numbers', train_rows=9), sys.argv[1]); p.prepare()\n"
        "assert len(p.rows('train')) == 9 and p.train_targets()\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(data_dir)], check=True, env=environment())


EXAMPLES = [
    {"id": f"train/{i:05d}", "question": question, "answer": str(i)}
    for i, question in enumerate(["plain", 'quote " and \\', "line\nfeed", "é ² \u2028 \x85", "\U0001f600"])
]


def test_rows_are_a_sequence_over_lines_of_ascii(tmp_path: Path) -> None:
    entry = write_split(tmp_path / "train.jsonl", EXAMPLES)
    rows = Rows(tmp_path / "train.jsonl")
    assert list(rows) == EXAMPLES == list(pickle.loads(pickle.dumps(rows)))
    assert (rows[0], rows[-1], len(rows), entry["rows"]) == (EXAMPLES[0], EXAMPLES[4], 5, 5)
    with pytest.raises(IndexError):
        rows[5]
    data = (tmp_path / "train.jsonl").read_bytes()
    assert data.isascii()
    assert data.startswith(b'{"id":"train/00000","question":"plain","answer":"0"}\n{"id"')
    assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def test_load_keeps_texts_as_they_are(data_dir: Path) -> None:
    class Texts(NoisyNumbers):
        version = 9

        def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
            pairs = [("2021-01-01", "007"), ("é \u2028", "1.50"), ("null", "true")]
            return Material({split: numbered(split, pairs) for split in self.splits})

    found = Prepared(Texts(NoisyNumbersConfig()), data_dir)
    found.prepare()
    assert found.load("test").to_list() == list(found.rows("test"))


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data.replace(b"flat", b"farm", 1)])
def test_a_damaged_file_is_named(small: Prepared, damage: Callable[[bytes], bytes]) -> None:
    path = small.prepare() / "train.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    for read in (lambda: small.rows("train"), lambda: small.load("train")):
        with pytest.raises(UserError, match=rf"^{path}: not the file that was prepared: .*; delete the folder "):
            read()
    path.unlink()
    with pytest.raises(UserError, match=r"train\.jsonl: missing; delete the folder"):
        small.prepare()


def test_a_damaged_manifest_is_one_error(small: Prepared) -> None:
    folder = small.prepare()
    for content in (b"", b'{"splits": {"train": {}}}', b'{"splits": 3}', b"\xff"):
        (folder / "manifest.json").write_bytes(content)
        with pytest.raises(UserError, match=r"manifest\.json:1: missing or damaged .*; delete the folder"):
            _ = small.manifest


def test_how_the_data_differs_from_a_run_s(small: Prepared) -> None:
    assert small.changes_since({"train.jsonl": "a"}) == ""
    small.prepare()
    files = small.fingerprint()["files"]
    assert small.changes_since(files) == small.changes_since({}) == ""
    other = {**files, "train.jsonl": "a"}
    assert small.changes_since(other) == f"train.jsonl had sha256 a and has {files['train.jsonl']}"
    assert small.digests() == files


ADDED = """
from dataclasses import dataclass
from ntl.config import DatasetConfig
from ntl.data.dataset import Material, TextDataset, numbered

@dataclass
class AddedConfig(DatasetConfig):
    name: str = "added"

class Added(TextDataset):
    def material(self, data_dir, log, *, download=True):
        return Material({split: numbered(split, [("q", "1")]) for split in self.splits})
"""


def test_an_edited_class_of_one_s_own_is_prepared_again(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(code: str) -> str:
        module = ModuleType("added")
        module.__file__ = str(data_dir / "added.py")
        Path(module.__file__).write_text(code)
        monkeypatch.setitem(sys.modules, "added", module)
        exec(code, vars(module))
        found = Prepared(module.Added(module.AddedConfig()), data_dir)
        found.prepare()
        return found.rows("train")[0]["answer"]

    assert [answer(ADDED), answer(ADDED.replace('"1"', '"2"')), answer(ADDED)] == ["1", "2", "1"]
    assert len([path for path in data_dir.iterdir() if path.is_dir()]) == 2


@given(st.binary())
def test_only_line_feeds_end_a_line_and_the_last_is_optional(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(data)
    expected = data.removesuffix(b"\n").split(b"\n") if data else []
    assert list(Lines(path)) == expected


def test_lines_over_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntl.data.prepared.BLOCK", 7)
    written = [f"line {number}".encode() for number in range(40)]
    (tmp_path / "a").write_bytes(b"\n".join(written))
    lines = Lines(tmp_path / "a")
    assert (list(lines), lines[-1], len(lines)) == (written, b"line 39", 40)
    with pytest.raises(IndexError):
        lines[40]
