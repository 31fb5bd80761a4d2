"""What is seen of what is opened, what files are called, and when a digest is computed again."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ntl.config.composition import known_datasets
from ntl.data import reads
from ntl.data.dataset import TextDataset, dataset_named
from ntl.data.prepared import Prepared
from ntl.data.reads import Files, code_of, named_files, stamp_of, watching
from ntl.data.sets import gsm8k
from ntl.data.sets.gsm8k import GSM8K
from ntl.data.sets.noisy_numbers import NoisyNumbers
from ntl.system.files import sha256_of

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "abc"
    path.write_text("abc")
    return path


def test_what_is_read_is_seen_and_what_is_written_is_not(file: Path, tmp_path: Path) -> None:
    with watching() as opened:
        file.read_bytes()
        (tmp_path / "new").write_text("x")
        with open(tmp_path / "both", "w+") as stream:
            stream.read()
        with pytest.raises(FileNotFoundError):
            (tmp_path / "none").read_text()
        thread = threading.Thread(target=(tmp_path / "new").read_text)
        thread.start()
        thread.join()
    assert opened == {str(file): stamp_of(file), str(tmp_path / "new"): stamp_of(tmp_path / "new")}
    (tmp_path / "both").read_text()
    assert len(opened) == 2


def test_one_within_another(file: Path, tmp_path: Path) -> None:
    with watching() as outer:
        with watching() as inner:
            file.read_bytes()
        assert inner == outer
        file.write_text("abd")
        assert (list(inner), list(outer)) == ([str(file)], [])
    file.read_bytes()
    assert outer == {}


def test_files_that_settings_name(file: Path, tmp_path: Path) -> None:
    values = {"a": str(file), "b": [{"c": "abc"}, 3, None, ""], "d": "x\0", "e": "x" * 5000, "f": str(tmp_path)}
    assert set(named_files(values, [tmp_path])) == {file}
    assert list(named_files({"a": "none"}, [tmp_path])) == []


def test_names_mean_the_same_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [tmp_path / "data", tmp_path / "shared"]
    files = Files(roots)
    for root in roots:
        (root / "x").mkdir(parents=True)
        (root / "x" / "y").touch()
    assert files.name(tmp_path / "shared" / "x" / "y") == "{data}/x/y"
    assert files.path("{data}/x/y") == tmp_path / "data" / "x" / "y"
    (tmp_path / "data" / "x" / "y").unlink()
    assert files.path("{data}/x/y") == tmp_path / "shared" / "x" / "y"
    assert files.name(gsm8k.SPLIT) == "{ntl}/data/gsm8k_split.json"
    assert files.path("{ntl}/data/gsm8k_split.json") == gsm8k.SPLIT
    monkeypatch.chdir(tmp_path)
    assert files.name(Path("a/b")) == "a/b"
    assert files.path("a/b") is None
    for path in (tmp_path / "data" / ".encoded" / "z", Path(json.__file__), Path(pytest.__file__), Path("/etc/hosts")):
        assert files.name(path) is None


def test_a_digest_is_computed_once_for_a_change(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, read = Files([tmp_path]), []
    monkeypatch.setattr(reads, "sha256_of", lambda path: read.append(path) or sha256_of(path))
    assert files.digests([file]) == {file: ABC}
    assert files.digests([file]) == {file: ABC}
    # Written a moment ago: it may change once more without another time.
    assert len(read) == 2
    monkeypatch.setattr(reads, "SETTLED_SECONDS", 0.0)
    time.sleep(0.01)
    for _ in range(3):
        assert Files([tmp_path]).digests([file]) == {file: ABC}
    assert len(read) == 3
    stamp = file.stat()
    file.write_text("abd")
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert Files([tmp_path]).digests([file]) != {file: ABC}
    other = tmp_path / "other"
    other.write_text("abc")
    other.replace(file)
    assert Files([tmp_path]).digests([file]) == {file: ABC}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"x": 3}', b"\xff"])
def test_digests_that_were_kept_and_are_damaged(content: bytes, file: Path, tmp_path: Path) -> None:
    (tmp_path / ".digests.json").write_bytes(content)
    assert Files([tmp_path]).digests([file]) == {file: ABC}


def test_where_nothing_can_be_written_it_is_computed_each_time(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "SETTLED_SECONDS", 0.0)
    time.sleep(0.01)
    assert Files([file / "no folder"]).digests([file]) == {file: ABC}


def test_the_code_of_a_data_set_is_what_it_does(tmp_path: Path) -> None:
    source = (
        '"""Doc."""\nclass A:\n    """Doc."""\n\n    def f(self):\n        """Doc."""\n        return 1  # comment\n'
    )
    written = {
        "same": source.replace("Doc", "Other words").replace("# comment", ""),
        "other": source.replace("return 1", "return 2"),
        "first": source,
    }
    program = "import sys, mine\nfrom ntl.data.reads import code_of\nprint(code_of(mine.A))"
    digests = {}
    for name, text in written.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").write_text(text)
        places = os.pathsep.join([str(tmp_path / name), str(Path(reads.__file__).parents[2])])
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONPATH": places}
        )
        digests[name] = done.stdout
    assert digests["first"] == digests["same"] != digests["other"]
    assert code_of(GSM8K) != code_of(NoisyNumbers)
    assert code_of(type("Nowhere", (TextDataset,), {"__module__": "no.such.module"})) == ""


def test_a_computed_data_set_has_no_source(small: Prepared) -> None:
    small.prepare()
    assert small.manifest["made_from"] == {"code": code_of(NoisyNumbers), "files": {}}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="ast.unparse writes some code otherwise in other versions")
def test_what_earlier_code_prepared_is_found() -> None:
    """The data sets' code has moved since, and its rows are the same."""
    assert {code_of(type(dataset_named(name))) for name in known_datasets()} >= set(reads.SAME_ROWS.values())
    assert code_of(NoisyNumbers) == "60070f01b5be6a36826fe83d299dbdc097faa0d65bab9a4b92ed8fa14b723c52"
