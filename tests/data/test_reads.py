"""What is seen of what is opened, what files are called, and when a digest is computed again."""

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
from ntl.data.reads import Files, code_of, stamp_of, watching
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
