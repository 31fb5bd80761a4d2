import gzip
import io
import re
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import UserError
from ntl.data import files
from ntl.data.files import Pair, Pairs, iterate_members, map_unpacked, parse_jsonl, read_file
from ntl.data.sets import gsm8k, multirc, rjokes

TWO_LINES = b"What is 1 + 1?\n2\nWhat is 2 + 2?\n4\n"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def read_pairs(path: Path) -> list[Pair]:
    return list(Pairs(read_file(path), str(path)))


def parse_pairs(data: bytes, label: str) -> list[Pair]:
    return list(Pairs(data, label))


def read_jsonl(path: Path) -> list[dict[str, object]]:
    return [row for _, row in parse_jsonl(read_file(path), str(path), ("question", "answer"))]


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def _members(path: Path, wanted: list[str]) -> dict[str, bytes]:
    return dict(iterate_members(path, wanted))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize("data", [TWO_LINES, TWO_LINES.removesuffix(b"\n")], ids=["newline", "no final newline"])
def test_read_pairs(tmp_path: Path, name: str, data: bytes) -> None:
    path = write(tmp_path / name, gzip.compress(data) if name.endswith(".gz") else data)
    assert read_pairs(path) == [("What is 1 + 1?", "2"), ("What is 2 + 2?", "4")]


def test_only_line_feeds_end_a_line() -> None:
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\rg \n 1\t\n"
    assert parse_pairs(text.encode(), "x") == [("a\x0bb\x0cc\x1cd\x85e\u2028f\rg ", " 1\t")]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x:1: the file is empty"),
        (b"q\na\nq\n", "x:3: question without an answer"),
        (b"q\na\nq", "x:3: question without an answer"),
        (b"q\na\n\na\n", "x:3: empty question"),
        (b"q\n\nq\na\n", "x:2: empty answer"),
        (b"q\na\nq\xff\na\n", "x:3: byte 0xff is not UTF-8"),
    ],
)
def test_a_bad_line_is_named(data: bytes, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_pairs(data, "x")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_read_jsonl(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", b'{"question": "q", "answer": "7", "n": 1}\n\n  \n{"answer":"\\u2028","question":"r"}'
    )
    assert read_jsonl(path) == [{"question": "q", "answer": "7", "n": 1}, {"answer": "\u2028", "question": "r"}]
    assert read_jsonl(write(tmp_path / "a.jsonl.gz", gzip.compress(path.read_bytes()))) == read_jsonl(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", ":2: not a JSON object"),
        (b'{"question": "q", "answer": 7}', ":2: not a string: 'answer'"),
        (b'{"question": "\\ud800", "answer": "7"}', ":2: 'question' holds half of a surrogate pair"),
        (b"[" * 100_000, ":2: not a JSON object"),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"question": "q", "answer": "7"}\n' + line + b"\n")
    with pytest.raises(UserError) as caught:
        read_jsonl(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_members_by_the_path_below_the_top_folder(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", {"top/easy/m.txt": TWO_LINES, "top/hard/m.txt": b"h\n1\n", "top/x": b"x"})
    easy, hard = ("easy/m.txt", TWO_LINES), ("hard/m.txt", b"h\n1\n")
    assert list(iterate_members(path, ["easy/m.txt", "none/m.txt"])) == [easy]
    assert list(iterate_members(path, ["hard/m.txt", "easy/m.txt"])) == [easy, hard]  # in the archive's order


def test_a_truncated_archive_is_one_error(tmp_path: Path) -> None:
    body = b"".join(b"%d\n%d\n" % (i, 7919 * i % 10007) for i in range(50_000))
    whole = archive(tmp_path / "whole.tar.gz", {"top/easy/m.txt": body, "top/hard/m.txt": body}).read_bytes()
    cut = write(tmp_path / "cut.tar.gz", whole[: len(whole) // 4])
    with pytest.raises(UserError, match=r"cut\.tar\.gz/top/easy/m\.txt:(\d+): truncated or damaged here") as caught:
        _members(cut, ["easy/m.txt"])
    assert 1_000 < int(str(caught.value).split("m.txt:")[1].split(":")[0]) < 100_000
    header = write(tmp_path / "header.tar.gz", whole[:30])
    with pytest.raises(UserError, match=r"header\.tar\.gz: truncated or damaged after the start"):
        _members(header, ["easy/m.txt"])


SAMPLES = {
    "gsm8k": (gsm8k.parse, b'{"question": "1 + 1?", "answer": "1+1=<<1+1=2>>2\\n#### 2"}\n'),
    "multirc": (
        multirc.parse,
        b'{"passage": {"text": "t", "questions": [{"idx": 0, "question": "q", '
        b'"answers": [{"text": "a", "label": 1}]}]}}\n',
    ),
    "rjokes": (rjokes.parse, b"3\tWhy so tense? \\\\ \n0\tlast\n"),
    "pairs": (parse_pairs, TWO_LINES),
}


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_whatever_the_bytes_rows_or_one_line(name: str, data: st.DataObject) -> None:
    """A file of arbitrary bytes, or one with some bytes taken out and others put in."""
    parse, sample = SAMPLES[name]
    start = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(start, min(start + 9, len(sample))))
    damaged = sample[:start] + data.draw(st.binary(max_size=9)) + sample[end:]
    content = data.draw(st.sampled_from([damaged, data.draw(st.binary(max_size=60))]))
    try:
        parse(content, "f")
        reason = ""
    except UserError as error:
        reason = str(error)
    assert re.fullmatch("(f:[0-9]+: .+)?", reason)


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1)


def reference(data: bytes) -> list[tuple[str, str]] | None:
    """The format in three lines; None for what is an error."""
    try:
        lines = data.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return None
    return list(zip(lines[::2], lines[1::2], strict=True)) if all(lines) and len(lines) % 2 == 0 else None


@given(
    data=st.one_of(st.binary(max_size=200), st.lists(LINE, max_size=20).map(lambda lines: "\n".join(lines).encode())),
    block=st.integers(1, 30) | st.just(files.BLOCK),
)
def test_whatever_bytes_pairs_or_one_error_with_blocks_of_any_size(data: bytes, block: int) -> None:
    found, reason = None, "x:"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        try:
            found = list(Pairs(data, "x"))
        except UserError as error:
            reason = str(error)
    assert reason.startswith("x:")
    assert found == reference(data)


def test_a_packed_file_is_unpacked_without_holding_it(tmp_path: Path) -> None:
    scratch, path, content = tmp_path / "scratch", tmp_path / "a.txt.gz", b"how much?\n12\n" * 2_000_000
    scratch.mkdir()
    path.write_bytes(gzip.compress(content, 1))
    tracemalloc.start()
    try:
        data = map_unpacked(path, scratch)
        assert tracemalloc.get_traced_memory()[1] < len(content) / 20
    finally:
        tracemalloc.stop()
    assert data[:] == content
    assert list(scratch.iterdir()) == []
    path.write_bytes(gzip.compress(b""))
    assert map_unpacked(path, scratch) == b""
