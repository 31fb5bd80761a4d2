"""Plain text: how files are divided into documents, and documents into splits."""

from collections import Counter
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.data import Documents, SharesConfig, TextConfig
from ntl.data.prepared import Prepared
from ntl.data.sets import text
from ntl.data.sets.text import Text, documents

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
        prepared = Prepared(Text(TextConfig(**values)), data_dir)
        prepared.prepare(lambda line: None)
        return {split: [row["answer"] for row in prepared.rows(split)] for split in Text.splits}

    return read


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Documents.paragraph, [(1, "One 1\n  two "), (6, "three"), (8, "four\u2028five")]),
        (Documents.line, [(1, "One 1"), (2, "  two "), (6, "three"), (8, "four\u2028five")]),
        (Documents.file, [(1, "One 1\n  two \n\n \n\nthree\n\nfour\u2028five")]),
    ],
)
def test_documents_by_hand(kind: Documents, expected: list[tuple[int, str]], file) -> None:
    path = file(LINES)
    assert list(documents(Path(path), kind)) == [(f"{path}:{line}", text) for line, text in expected]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a\n\xff", ":2: byte 0xff is not UTF-8; save the file as UTF-8 text."),
        (b"PK\x00\x01", ":1: a zero byte, so this is no text file; give text in UTF-8."),
        (b"1234567\n" * 3, ":1: a document of more than 0 MiB, too long to tokenize at once"),
    ],
)
def test_a_file_that_is_no_text(content: bytes, fault: str, file, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "LONGEST", 16)
    path = file(content)
    with pytest.raises(UserError) as caught:
        list(documents(Path(path), Documents.paragraph))
    assert str(caught.value).startswith(path + fault)


def test_every_document_is_in_one_split_and_equal_ones_in_the_same(file, rows) -> None:
    written = [f"document {number % 300}\nof 300" for number in range(900)]
    found = rows(path=file("\n\n".join(written)), splits=SharesConfig(0.1, 0.2))
    assert Counter(text for texts in found.values() for text in texts) == Counter(written)
    splits = [set(texts) for texts in found.values()]
    assert sum(map(len, splits)) == 300
    # Means 30 and 60 of 300 draws; five standard deviations either way.
    assert 4 < len(splits[1]) < 56
    assert 25 < len(splits[2]) < 95
    # In the order of the file, and the same each time.
    assert found["train"] == [text for text in written if text in splits[0]]


def test_the_seed_chooses_and_other_documents_do_not_matter(file, rows) -> None:
    written = [f"document {number}" for number in range(400)]
    first = rows(path=file("\n".join(written)), documents=Documents.line)
    fewer = rows(path=file("\n".join(written[:200]), "fewer.txt"), documents=Documents.line)
    assert fewer == {split: [text for text in texts if text in written[:200]] for split, texts in first.items()}
    assert rows(path=file("\n".join(written)), documents=Documents.line, seed=1) != first


def test_files_of_its_own_for_test_and_validation(file, data_dir: Path) -> None:
    paths = {"path": file("a\n\nb\n\nc"), "validation_path": file("v\n\na", "v.txt"), "test_path": file("t", "t.txt")}
    prepared = Prepared(Text(TextConfig(**paths)), data_dir)
    said: list[str] = []
    prepared.prepare(said.append)
    texts = [[row["answer"] for row in prepared.rows(split)] for split in Text.splits]
    assert texts == [["a", "b", "c"], ["v", "a"], ["t"]]
    warning = "1 of 2 validation documents are in the training text, too"
    assert f"text: {warning}" in said
    assert prepared.fingerprint()["warnings"] == [warning]


@pytest.mark.parametrize(("content", "split"), [("", "train"), (" \n\t\n", "train"), ("one", "validation")])
def test_a_split_without_a_document(content: str, split: str, file, rows) -> None:
    path = file(content)
    with pytest.raises(UserError, match=f"no document for {split}"):
        rows(path=path, splits=SharesConfig(1e-9, 1e-9))
