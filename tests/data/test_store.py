import json
import pickle
import shutil
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


def test_no_rows(tmp_path: Path) -> None:
    assert write_split(tmp_path, "train", [])["rows"] == 0
    assert list(Rows(b"")) == []


@pytest.mark.parametrize(
    ("change", "line", "reason"),
    [
        (lambda lines: [*lines[:6], lines[6][:9]], 7, "not a JSON object"),
        (lambda lines: lines[:7], 8, "not the file that was prepared"),
        (lambda lines: [*lines[:4], *lines[5:]], 5, "not row 4"),
        (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5, "not row 4"),
        (lambda lines: [*lines[:2], lines[2].replace("=", "+"), *lines[3:]], 3, "is not a question of noisy_numbers"),
        (lambda lines: [*lines[:2], "", *lines[2:]], 3, "not a JSON object"),
        (lambda lines: [*lines[:2], lines[2].replace('"answer":"', '"answer":"1'), *lines[3:]], 3, "is not two digits"),
        (lambda lines: [lines[0].replace("}", ',"x":1}'), *lines[1:]], 1, "not row 0"),
        (lambda lines: [lines[0].replace(" =", " \u00e9="), *lines[1:]], 1, "can't decode byte"),
    ],
)
@pytest.mark.parametrize("call", ["rows", "load", "verify"])
def test_a_damaged_file_is_named_with_its_line(
    small: Prepared, folder: Path, change, line: int, reason: str, call: str
) -> None:
    path = folder / "train.jsonl"
    lines = path.read_text().split("\n")[:-1]
    path.write_text("\n".join(change(lines)) + "\n")
    calls = {
        "rows": lambda: small.rows("train"),
        "load": lambda: small.load("train"),
        "verify": lambda: small.prepare(verify=True),
    }
    with pytest.raises(UserError) as caught:
        calls[call]()
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert reason in str(caught.value)
    assert f"delete the folder {folder}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_changed_digit_is_noticed(small: Prepared, folder: Path) -> None:
    path = folder / "test.jsonl"
    text = path.read_text()
    answer = json.loads(text.split("\n")[0])["answer"]
    other = "50" if answer != "50" else "51"
    path.write_text(text.replace(f'"answer":"{answer}"', f'"answer":"{other}"', 1))
    small.prepare()  # sizes alone do not tell
    with pytest.raises(UserError, match=r"test\.jsonl: not the file that was prepared"):
        small.rows("test")
    assert len(small.rows("train")) == 30


def test_a_truncated_file_is_noticed_without_digests(small: Prepared, folder: Path) -> None:
    path = folder / "validation.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"validation\.jsonl:10: damaged"):
        small.prepare()


def test_missing_files(small: Prepared, folder: Path) -> None:
    (folder / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r"train\.jsonl: missing; delete the folder"):
        small.prepare()
    (folder / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json:1: missing or damaged"):
        small.prepare()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"splits": {"train": {}}}', b'{"splits": 3}', b"\xff", b"[" * 99_999]
)
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


def test_a_folder_can_be_copied(small: Prepared, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy" / folder.name)
    assert list(Prepared(small.dataset, tmp_path / "copy").rows("test")) == list(small.rows("test"))


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


def test_a_line_that_is_no_json_is_one_error(tmp_path: Path) -> None:
    rows = Rows(b"\x80\x04\n", str(tmp_path / "train.jsonl"))
    for read in (lambda: rows[0], lambda: list(rows), lambda: pickle.loads(pickle.dumps(rows))[0]):
        with pytest.raises(UserError, match=r"train\.jsonl: a line is no JSON; delete this folder and prepare"):
            read()
