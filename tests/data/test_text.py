"""Plain text: how files are divided into documents, and documents into splits."""

from pathlib import Path

import datasets
import pytest

from ntl.config import UserError
from ntl.data.dataset import dataset_named
from ntl.data.prepared import Prepared
from ntl.data.sets import file as own
from ntl.data.sets.file import Text, documents

LINES = "\ufeffOne 1\n  two \r\n\n \n\nthree\r\n\nfour\u2028five".encode()


@pytest.fixture
def file(tmp_path: Path):
    def write(content: bytes | str, name: str = "corpus.txt") -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def rows(data_dir: Path):
    """The texts of each split of a data set with these settings."""

    def read(**values) -> dict[str, list[str]]:
        prepared = Prepared(dataset_named("text", data_dir, **values), data_dir)
        prepared.prepare(lambda line: None)
        return {split: [row["answer"] for row in prepared.rows(split)] for split in Text.splits}

    return read


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("paragraph", [(1, "One 1\n  two "), (6, "three"), (8, "four\u2028five")]),
        ("line", [(1, "One 1"), (2, "  two "), (6, "three"), (8, "four\u2028five")]),
        ("file", [(1, "One 1\n  two \n\n \n\nthree\n\nfour\u2028five")]),
    ],
)
def test_documents_by_hand(kind: str, expected: list[tuple[int, str]], file) -> None:
    path = file(LINES)
    assert list(documents(Path(path), kind)) == [(f"{path}:{line}", text) for line, text in expected]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"PK\x00\x01", ":1: a zero byte, so this is no text file; give text in UTF-8."),
        (b"1234567\n" * 3, ":1: a document of more than 16 characters, too long to tokenize at once"),
    ],
)
def test_a_file_that_is_no_text(content: bytes, fault: str, file, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "LONGEST", 16)
    path = file(content)
    with pytest.raises(UserError) as caught:
        list(documents(Path(path), "paragraph"))
    assert str(caught.value).startswith(path + fault)


def test_a_column(file, rows, tmp_path: Path) -> None:
    """The same rows as of a text; blank ones are left out."""
    texts = [f"row {number},\nwith 2 lines" for number in range(30)] + ["  "]
    datasets.Dataset.from_dict({"body": texts, "other": list(range(31))}).save_to_disk(tmp_path / "saved")
    found = rows(path=str(tmp_path / "saved"), column="body")
    assert sorted(text for split in found.values() for text in split) == sorted(texts[:-1])
    assert rows(path=file("\n\n".join(texts))) == found


@pytest.mark.parametrize(
    ("name", "content", "values", "fault"),
    [
        ("x.jsonl", '{"body": "a"}', {}, "x.jsonl:1: no column 'text', it has 'body'"),
        ("x.docx", "a", {}, "x.docx: unknown format; export a spreadsheet as CSV, or rename it after "),
        ("x.txt", "a", {"column": "body"}, "dataset.column=body: a text file has no columns"),
        ("x.csv", "text", {"documents": "line"}, "dataset.documents=line: only text files"),
    ],
)
def test_what_cannot_be_read(name: str, content: str, values: dict, fault: str, file, rows) -> None:
    path = file(content, name)
    with pytest.raises(UserError) as caught:
        rows(path=path, **values)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)
