import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.data.prepared import Prepared
from ntl.data.store import Example, Rows, read_manifest, write_split

EXAMPLES = [
    Example(id=f"train/{i:05d}", question=question, answer=str(i))
    for i, question in enumerate(["plain", 'quote " and \\', "line\nfeed", "é ² \u2028 \x85", "\U0001f600"])
]


@pytest.fixture
def folder(small: Prepared) -> Path:
    return small.prepare()


def test_rows_are_a_sequence(tmp_path: Path) -> None:
    write_split(tmp_path, "train", EXAMPLES)
    rows = Rows((tmp_path / "train.jsonl").read_bytes())
    assert len(rows) == 5
    assert list(rows) == EXAMPLES
    assert rows[1:4] == EXAMPLES[1:4]
    assert rows[::-2] == EXAMPLES[::-2]
    assert (rows[0], rows[-1]) == (EXAMPLES[0], EXAMPLES[4])
    assert list(pickle.loads(pickle.dumps(rows))) == EXAMPLES
    with pytest.raises(IndexError):
        rows[5]


def test_lines_are_json_and_the_arrow_copy_agrees(tmp_path: Path) -> None:
    from datasets import Dataset

    entry = write_split(tmp_path, "train", EXAMPLES)
    lines = (tmp_path / "train.jsonl").read_text(encoding="ascii").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == EXAMPLES
    assert entry["rows"] == 5
    assert entry["bytes"] == (tmp_path / "train.jsonl").stat().st_size
    assert Dataset.from_file(str(tmp_path / "train.arrow")).to_list() == EXAMPLES


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data.replace(b"flat", b"farm", 1)])
def test_a_damaged_file_is_named(small: Prepared, folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = folder / "train.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    for read in (lambda: small.rows("train"), lambda: small.load("train"), lambda: small.prepare(verify=True)):
        with pytest.raises(UserError, match=rf"^{path}: not the file that was prepared: .*; delete the folder "):
            read()


def test_missing_files(small: Prepared, folder: Path) -> None:
    (folder / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r"train\.jsonl: missing; delete the folder"):
        small.prepare()
    (folder / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json:1: missing or damaged"):
        small.prepare()


@pytest.mark.parametrize("content", [b"", b'{"splits": {"train": {}}}', b'{"splits": 3}', b"\xff"])
def test_a_damaged_manifest_is_one_error(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=r"manifest\.json:1: missing or damaged") as caught:
        read_manifest(folder)
    assert "\n" not in str(caught.value)


def test_load_without_an_intact_arrow_copy_reads_the_lines(small: Prepared, folder: Path) -> None:
    mapped = small.load("train")
    assert mapped.cache_files == [{"filename": str(folder / "train.arrow")}]
    expected = mapped.to_list()
    arrow = folder / "train.arrow"
    arrow.write_bytes(arrow.read_bytes().replace(b"flat", b"loft"))
    again = small.load("train")
    assert again.cache_files == []
    assert again.to_list() == expected
    arrow.unlink()
    assert small.load("train").to_list() == expected


def test_a_manifest_names_no_file_elsewhere(small: Prepared, folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    arrow = folder / "test.arrow"
    shutil.move(arrow, folder.parent / "elsewhere.arrow")
    manifest["splits"]["test"]["arrow"]["file"] = "../elsewhere.arrow"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"manifest\.json: file='\.\./elsewhere\.arrow': not a plain name"):
        small.load("test")
    manifest["splits"]["../elsewhere"] = manifest["splits"].pop("test")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"manifest\.json:1: split='\.\./elsewhere': not a plain name"):
        read_manifest(folder)
