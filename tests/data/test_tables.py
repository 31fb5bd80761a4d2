"""Readers of a user's own tables: no type is inferred."""

import csv
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ntl.config import UserError
from ntl.data.sets.file import documents, text_of
from ntl.data.tables import open_tables

Row = dict[str, Any]


def as_csv(path: Path, rows: list[Row], delimiter: str) -> None:
    with open(path, "w", newline="", encoding="utf-8-sig") as stream:
        writer = csv.DictWriter(stream, COLUMNS, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def saved(path: Path, rows: list[Row]) -> None:
    # Their indices are not in the order of the file.
    Dataset.from_list(rows[::-1]).select(range(len(rows))[::-1]).save_to_disk(str(path))


COLUMNS = ["a", "NA", "größe, \n"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.sampled_from(["NA", "1.0", '"', "\r\n", "\\"])
ROWS_OF_TEXT = st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, TEXT)), min_size=1, max_size=9)
WRITERS: dict[str, Callable[[Path, list[Row]], Any]] = {
    "a.jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "a.json": lambda path, rows: path.write_text(json.dumps(rows, ensure_ascii=False, indent=1)),
    "a.json.GZ": lambda path, rows: path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, rows)).encode())),
    "a.csv": lambda path, rows: as_csv(path, rows, ","),
    "a.tsv": lambda path, rows: as_csv(path, rows, "\t"),
    "a.parquet": lambda path, rows: parquet.write_table(pyarrow.Table.from_pylist(rows), path),
    "a": saved,
}


def values_of(path: Path, columns: list[str], *, cells: str = "quoted", header: bool = True) -> list[list[Any]]:
    rows = open_tables(path, lambda names: columns, header=header, cells=cells)[""].rows
    return [[*row.values()] for _, row in rows]


@pytest.mark.parametrize("name", WRITERS)
@settings(deadline=None, max_examples=25)
@given(rows=ROWS_OF_TEXT)
def test_any_text_is_read_as_it_was_written(name: str, rows: list[Row], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("ö a&b") / name
    WRITERS[name](path, rows)
    assert values_of(path, COLUMNS[::-1]) == [[row[column] for column in COLUMNS[::-1]] for row in rows]


@given(numbers=st.lists(st.decimals(-(10**40), 10**40), min_size=1))
def test_any_number_of_json_keeps_its_value(numbers: list[Decimal], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text("\n".join(f'{{"a": {number}}}' for number in numbers))
    texts = [text_of("a", value) for (value,) in values_of(path, ["a"])]
    assert [Decimal(text) for text in texts] == numbers
    assert not any("e" in text.lower() for text in texts)


@pytest.mark.parametrize(("kind", "width"), [(pyarrow.float16(), 16), (pyarrow.float32(), 32), (pyarrow.float64(), 64)])
@settings(max_examples=25)
@given(data=st.data())
def test_a_float_is_the_shortest_decimal_of_its_own_type(kind: Any, width: int, data: Any, tmp_path_factory) -> None:
    of_type = getattr(np, f"float{width}")
    numbers = data.draw(st.lists(st.floats(width=width, allow_nan=False, allow_infinity=False), min_size=1))
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    parquet.write_table(pyarrow.table({"a": pyarrow.array(map(of_type, numbers), kind)}), path)
    texts = [text_of("a", value) for (value,) in values_of(path, ["a"])]
    assert [of_type(text) for text in texts] == numbers
    categories = pyarrow.array(map(of_type, numbers), kind).dictionary_encode()
    parquet.write_table(pyarrow.table({"a": categories}), path)
    assert [text_of("a", value) for (value,) in values_of(path, ["a"])] == texts
    assert [Decimal(text) for text in texts] == [Decimal(str(of_type(number))) for number in numbers]


def test_cells_as_they_stand_and_of_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('1\ta "b\\\r\n\n2\t"c" d\n')
    assert values_of(path, ["2", "1"], cells="plain", header=False) == [['a "b\\', "1"], ['"c" d', "2"]]
    path = tmp_path / "a.csv"
    for sign, other in (";,", ",;", "\t,", "|;"):
        path.write_text(f"question{sign}answer{sign}x{other} y\nHow much{other} then?{sign}1{sign}2\n")
        assert values_of(path, ["question", "answer"]) == [[f"How much{other} then?", "1"]]
    with pytest.raises(UserError, match="it has 'question', 'answer', 'x; y'"):
        values_of(path, ["question", "anwser"])


def test_lines_that_end_as_on_an_old_mac(tmp_path: Path) -> None:
    for cells in ("quoted", "plain"):
        (tmp_path / "a.csv").write_bytes(b"question,answer\rHow much?,12\r\rAnd then?,3")
        assert values_of(tmp_path / "a.csv", ["question", "answer"], cells=cells) == [
            ["How much?", "12"],
            ["And then?", "3"],
        ]
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\r{"a": 2}\r')
    assert values_of(tmp_path / "a.jsonl", ["a"]) == [[1], [2]]
    for content in (b"a,b\n1,2\r3\n", b'a,b\r"1\n2",3\r'):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(UserError, match=r"a\.csv:\d: a \\r within a row; end each row by \\n, and quote a cell"):
            values_of(tmp_path / "a.csv", ["a", "b"])


def test_without_names_of_columns_the_sign_divides_all_rows_alike_or_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for sign, content in ((";", "1,5;2,5\n3;4\n"), (",", "a; b,2,5\n1,2,3\n"), ("\t", "1,5\t2,5\n\n3\t4,0\n")):
        path.write_text(content)
        expected = [line.split(sign)[:2] for line in content.splitlines() if line]
        assert values_of(path, ["1", "2"], header=False) == expected
    path.write_text("one; two\nthree\n")
    assert values_of(path, ["1"], header=False) == [["one; two"], ["three"]]
    path.write_text("1,5;2,5\n" * 2)
    with pytest.raises(
        UserError, match=r"a\.csv:1: .* by ',' or by ';'; write the names of the columns in a first row"
    ):
        values_of(path, ["1", "2"], header=False)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("paragraph", [(1, "One 1\n  two "), (6, "three"), (8, "four\u2028five")]),
        ("line", [(1, "One 1"), (2, "  two "), (6, "three"), (8, "four\u2028five")]),
        ("file", [(1, "One 1\n  two \n\n \n\nthree\n\nfour\u2028five")]),
    ],
)
def test_documents_by_hand(kind: str, expected: list[tuple[int, str]], tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("\ufeffOne 1\n  two \r\n\n \n\nthree\r\n\nfour\u2028five".encode())
    assert list(documents(path, kind)) == [(f"{path}:{line}", text) for line, text in expected]
