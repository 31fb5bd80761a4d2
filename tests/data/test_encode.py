"""Token ids and values on disk: what is stored, when it is reused, and what a kill leaves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ntl.config import UserError
from ntl.data import encode, encoded, store
from ntl.data.encode import answer_text, encode_dataset, settings_for
from ntl.data.encode_worker import BlockEncoder
from ntl.data.encoded import Damaged, EncodedDataset
from ntl.data.store import Example, Rows
from ntl.tokenizers import load_tokenizer, train_tokenizer

ROWS = [
    {"id": "0", "question": "1+2=", "answer": "3"},
    {"id": "1", "question": "22+1=", "answer": "23"},
    {"id": "2", "question": "1?", "answer": "1"},
]


def _tokenizer() -> PreTrainedTokenizerFast:
    vocab = {token: index for index, token in enumerate(["<pad>", "</s>", "<unk>", *"0123456789+= "])}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def _encode(folder: Path, rows: Any = ROWS, tokenizer: Any = None, **changes: Any) -> EncodedDataset:
    settings = {"cache_dir": folder, "key": "k", "decoder_only": True, "max_length": 64}
    return encode_dataset(lambda: rows, tokenizer or _tokenizer(), **{**settings, **changes})


def _finished(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if not path.name.startswith(".")]


def _prepared(folder: Path, rows: int = 4000) -> Rows:
    """A prepared file of some blocks (read with a small ``store.BLOCK``)."""
    examples = [Example(id=f"train/{i:05d}", question=f"{i}+{i % 7}=", answer=str(i + i % 7)) for i in range(rows)]
    folder.mkdir(exist_ok=True)
    entry = store.write_split(folder, "train", examples)
    return store.read_split(folder, "train", entry, lambda question, answer: None)


def _same(first: EncodedDataset, second: EncodedDataset) -> bool:
    contents = [{path.name: path.read_bytes() for path in each.folder.iterdir()} for each in (first, second)]
    return contents[0] == contents[1]


@pytest.fixture(scope="module")
def xval(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    """xVal's tokenizer, whose tokens have values, by ``paper_compat``."""
    folder = tmp_path_factory.mktemp("tokenizer") / "trained"
    train_tokenizer(["1+2= -"], folder, kind="xval", vocab_size=60)
    return {rule: load_tokenizer(folder, kind="xval", paper_compat=rule) for rule in (False, True)}


@pytest.fixture(params=["ids", "values"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """One without values, and one with."""
    return _tokenizer() if request.param == "ids" else request.getfixturevalue("xval")[False]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """A prepared file of many blocks."""
    monkeypatch.setattr(store, "BLOCK", 16_000)
    return _prepared(tmp_path / "data")


def _texts(example: dict[str, np.ndarray]) -> tuple[Any, ...]:
    tokenizer = _tokenizer()
    return tuple(tokenizer.convert_ids_to_tokens(example[name].tolist()) for name in ("question_ids", "answer_ids"))


def test_decoder_by_hand(tmp_path: Path) -> None:
    dataset = _encode(tmp_path)
    assert len(dataset) == 3
    assert _texts(dataset[1]) == (["2", "2", "+", "1", "="], ["2", "3", "</s>"])
    longest = {"longest_question": 5, "longest_answer": 3, "longest_example": 8}
    assert dataset.about == {"truncated": 0, "unknown": 1, **longest}
    assert dataset.lengths(np.array([2, 0])).tolist() == [2 + 2, 4 + 2]
    assert (dataset.tokens.dtype, dataset.offsets.dtype) == (np.uint16, np.int64)
    assert [len(row["answer_ids"]) for row in dataset.__getitems__([2, 1])] == [2, 3]


def test_an_encoder_reads_its_end_token(tmp_path: Path) -> None:
    dataset = _encode(tmp_path, decoder_only=False)
    assert _texts(dataset[0]) == (["1", "+", "2", "=", "</s>"], ["3", "</s>"])


def test_a_long_question_loses_its_beginning(tmp_path: Path) -> None:
    dataset = _encode(tmp_path, max_length=2)
    assert _texts(dataset[1])[0] == ["1", "="]
    assert dataset.about["truncated"] == 2


def test_the_same_content_is_read_not_made_again(tmp_path: Path) -> None:
    def no_rows() -> list[Any]:
        raise AssertionError("read again")

    first = _encode(tmp_path)
    settings: dict[str, Any] = {"cache_dir": tmp_path, "key": "k", "decoder_only": True, "max_length": 64}
    again = encode_dataset(no_rows, _tokenizer(), **settings)
    assert again.folder == first.folder
    np.testing.assert_array_equal(again.tokens, first.tokens)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("name", ["tokens.npy", "offsets.npy", "about.json"])
def test_what_is_damaged_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at_once: bool
) -> None:
    """When it is opened with a line, and when it is read after one that says so."""
    monkeypatch.setattr(encoded, "AT_ONCE", 1 << 22 if at_once else 0)
    folder = _encode(tmp_path).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / name).write_bytes(before[name][:-9] + b"\x55" + before[name][-8:])
    said: list[str] = []
    again = _encode(tmp_path, log=said.append)
    if not (at_once or name == "about.json"):
        assert said == []
        with pytest.raises(Damaged, match=rf"{name}: block 0 of 1 has another checksum\); the same command makes it"):
            again[2]
        again = _encode(tmp_path, log=said.append)
        assert said == []  # the first time it was told
    else:
        assert len(said) == 1
        assert said[0].startswith(f"{folder}: damaged (")
        assert said[0].endswith("): tokenizing again")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert _texts(again[2]) == (["1", "<unk>"], ["1", "</s>"])


@pytest.mark.parametrize("change", [{"key": "other"}, {"decoder_only": False}, {"max_length": 3}])
def test_other_content_is_another_folder(tmp_path: Path, change: dict[str, Any]) -> None:
    assert _encode(tmp_path, **change).folder != _encode(tmp_path).folder


def test_a_failure_half_way_is_never_taken_for_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "CHUNK", 1)
    with pytest.raises(KeyError):
        _encode(tmp_path, rows=[ROWS[0], {"id": "1"}])
    assert _finished(tmp_path) == []
    assert _texts(_encode(tmp_path)[2]) == (["1", "<unk>"], ["1", "</s>"])


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [0, 1, 5, 12])
@pytest.mark.parametrize("journaled", [True, False], ids=["journaled", "not journaled"])
def test_what_was_done_before_a_failure_is_kept(
    tmp_path: Path, rows: Rows, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, stop_after: int, journaled: bool
) -> None:
    monkeypatch.setattr(encoded, "JOURNAL_SECONDS", 0 if journaled else 1e9)
    whole = _encode(tmp_path / "whole", rows, tokenizer)
    starts: list[int] = []
    read = Rows.blocks

    def breaking(self: Rows, start: int = 0) -> Any:
        starts.append(start)
        for count, block in enumerate(read(self, start)):
            if len(starts) == 1 and count == stop_after:
                raise KeyboardInterrupt
            yield block

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "blocks", breaking)
        with pytest.raises(KeyboardInterrupt):
            _encode(tmp_path / "broken", rows, tokenizer, workers=0)
        assert _finished(tmp_path / "broken") == []
        said: list[str] = []
        resumed = _encode(tmp_path / "broken", rows, tokenizer, workers=0, log=said.append)
    assert _same(resumed, whole)
    assert (starts[1] > 0) is (journaled and stop_after > 0)
    assert [line.endswith("were done before") for line in said] == [True] * (starts[1] > 0)


KILLED = """
import sys, time
from pathlib import Path
import ntl.data.encoded as encoded
from ntl.data import store
from tests_encode import _encode

folder = Path(sys.argv[1])
store.BLOCK, encoded.JOURNAL_SECONDS = 16_000, 0
read = store.Rows.blocks
def blocks(self, start=0):
    for count, block in enumerate(read(self, start)):
        if count == 8:
            (folder / "reached").touch()
            while (folder / "hold").exists():
                time.sleep(0.01)
        yield block
store.Rows.blocks = blocks
_encode(folder / "cache", store.Rows((folder / "data" / "train.jsonl").read_bytes()), workers=int(sys.argv[2]))
"""


def _child(folder: Path, workers: int) -> "subprocess.Popen[bytes]":
    """This module's ``_encode`` in a process of its own, which waits in the middle while a file "hold" exists."""
    (folder / "tests_encode.py").write_text(Path(__file__).read_text())
    places = [str(folder), str(Path(store.__file__).parents[2])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    return subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(workers)], env=environment)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never appeared"
        time.sleep(0.01)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_kill_in_the_middle_then_a_resume_equals_no_kill(tmp_path: Path, rows: Rows, workers: int) -> None:
    (tmp_path / "hold").touch()
    process = _child(tmp_path, workers)
    _wait_for(tmp_path / "reached")
    process.kill()
    process.wait()
    assert _finished(tmp_path / "cache") == []
    said: list[str] = []
    resumed = _encode(tmp_path / "cache", rows, workers=workers, log=said.append)
    assert any("were done before" in line for line in said)
    assert _same(resumed, _encode(tmp_path / "whole", rows))
    assert [path.name for path in (tmp_path / "cache").glob(".*.part*")] == []


def test_two_at_once_make_one(tmp_path: Path, rows: Rows) -> None:
    (tmp_path / "hold").touch()
    process = _child(tmp_path, 0)
    _wait_for(tmp_path / "reached")
    said: list[str] = []

    def log(line: str) -> None:
        said.append(line)
        (tmp_path / "hold").unlink()

    dataset = _encode(tmp_path / "cache", rows, log=log)
    assert process.wait(60) == 0
    assert "waiting for another process" in said[0]
    assert len(said) == 1
    assert _same(dataset, _encode(tmp_path / "whole", rows))


def test_without_locks_nobody_else_finds_the_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def no_locks(path: Path, log: Any) -> Iterator[bool]:
        yield False

    monkeypatch.setattr(encode, "wait_for_lock", no_locks)
    first = _encode(tmp_path / "a")
    real = encode.EncodedWriter.finish

    def late(self: Any) -> None:
        real(self)
        target = tmp_path / "b" / first.folder.name
        if not target.exists():
            first.folder.rename(target)

    for name in (".0.part", ".0.part-old"):
        (tmp_path / "b" / name).mkdir(parents=True)
        os.utime(tmp_path / "b" / name, (0, 0))
    monkeypatch.setattr(encode.EncodedWriter, "finish", late)
    assert len(_encode(tmp_path / "b")) == 3
    # The second cannot be gone on with.
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [".0.part", first.folder.name]


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_give_the_same(tmp_path: Path, rows: Rows, tokenizer: Any, xval: Any, workers: int) -> None:
    alone = _encode(tmp_path / "alone", rows, tokenizer, workers=0)
    assert _same(_encode(tmp_path / "many", rows, tokenizer, workers=workers), alone)
    assert _same(_encode(tmp_path / "list", list(rows), tokenizer), alone)
    assert len(alone) == 4000
    if alone.values is None:
        assert _texts(alone[1234]) == (list("1234+2="), [*"1236", "</s>"])
        return
    assert len(alone.values) == len(alone.tokens)
    paper = [_encode(tmp_path / f"paper-{count}", rows, xval[True], workers=count) for count in (0, workers)]
    assert _same(*paper)


@pytest.mark.parametrize(
    "before", ["", "import os; os.read(int(sys.argv[1]), 100); "], ids=["at once", "while it works"]
)
def test_a_worker_that_dies_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setattr(encode, "PROGRAM", f"import sys; {before}sys.exit(9)")
    with pytest.raises(UserError, match=r"ended with status 9 .*; run again: what is done is kept"):
        _encode(tmp_path / "cache", workers=2)
    assert _finished(tmp_path / "cache") == []


def test_an_error_in_a_worker_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="tokenizing failed: KeyError: 'answer'"):
        _encode(tmp_path, rows=Rows(b'{"question": "1"}\n'), workers=1)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(encode.EncodedWriter, "append", full)
        with pytest.raises(UserError, match=r"cannot write token ids to .*: No space left on device"):
            _encode(tmp_path)
    assert _finished(tmp_path) == []
    assert len(_encode(tmp_path)) == 3


def test_a_large_vocabulary_needs_wider_ids(tmp_path: Path) -> None:
    tokenizer = _tokenizer()
    tokenizer.add_tokens([f"<{number}>" for number in range(2**16)])
    dataset = _encode(tmp_path, [{"question": "1<65000>", "answer": "2"}], tokenizer)
    assert dataset.tokens.dtype == np.int32
    assert dataset[0]["question_ids"].tolist() == tokenizer.convert_tokens_to_ids(["1", "<65000>"])


def test_an_empty_data_set(tmp_path: Path) -> None:
    assert len(_encode(tmp_path, rows=[])) == 0


def test_characters_need_no_space() -> None:
    assert answer_text("7", _tokenizer(), decoder_only=True) == "7"


def test_values_beside_the_ids_of_an_example(tmp_path: Path, xval: dict[bool, Any]) -> None:
    tokenizer = xval[False]
    example = _encode(tmp_path, [{"question": "1234.5 * -2?", "answer": "-2468"}], tokenizer)[0]
    numbers = example["question_ids"] == tokenizer.number_token_id
    assert example["question_values"][numbers].tolist() == [1234.5, -2]
    assert set(example["question_values"][~numbers].tolist()) == {1}
    assert tokenizer.convert_ids_to_tokens(example["answer_ids"].tolist()) == ["[NUM]", "</s>"]
    assert example["answer_values"].tolist() == [-2468, 1]


def test_values_that_were_not_vouched_for_are_written_again(
    tmp_path: Path, xval: dict[bool, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the journal and the end leaves more in the files than the journal says, of each another amount."""
    monkeypatch.setattr(encoded, "JOURNAL_SECONDS", 1e9)
    source = [{"question": f"{i} and 1", "answer": str(i)} for i in range(6)]
    writer = encoded.EncodedWriter(tmp_path / "part", "<u2", with_values=True)
    encoder = BlockEncoder(settings_for(xval[False], decoder_only=True, max_length=64))
    blocks = [json.dumps(row).encode() for row in source]
    for index, block in enumerate(blocks[:3]):
        writer.append(encoder(block), index + 1)
    writer.journal()
    writer.append(encoder(blocks[3]), 4)
    for array in (writer.tokens, writer.values):
        assert array is not None
        array.stream.flush()
    again = encoded.EncodedWriter(tmp_path / "part", "<u2", with_values=True)
    assert again.position == 3
    for index, block in enumerate(blocks[3:]):
        again.append(encoder(block), index + 4)
    again.finish()
    dataset = EncodedDataset(tmp_path / "part")
    assert [row["answer_values"][0] for row in dataset.__getitems__(range(6))] == [0, 1, 2, 3, 4, 5]
    assert [row["question_values"][0] for row in dataset.__getitems__(range(6))] == [0, 1, 2, 3, 4, 5]


def test_another_reading_is_another_folder(tmp_path: Path, xval: dict[bool, Any]) -> None:
    row = [{"question": "1", "answer": "-2"}]
    first, paper = (_encode(tmp_path, row, xval[rule]) for rule in (False, True))
    assert first.folder != paper.folder
    assert first[0]["answer_values"].tolist() == [-2, 1]
    assert paper[0]["answer_values"].tolist()[-2:] == [2, 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_answer_without_a_number_is_one_line_from_any_process(
    tmp_path: Path, xval: dict[bool, Any], workers: int
) -> None:
    rows = [{"question": "What is 1?", "answer": "one"}]
    with pytest.raises(UserError, match=r"^the answer 'one' of 'What is 1\?' has no number"):
        _encode(tmp_path, rows, xval[False], workers=workers)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_values_are_kept_in_double_precision(tmp_path: Path, xval: dict[bool, Any]) -> None:
    dataset = _encode(tmp_path, [{"question": "0.1", "answer": "9007199254740993"}], xval[False])
    assert dataset[0]["question_values"][0] == 0.1
    assert dataset[0]["answer_values"][0] == 9007199254740992
    assert dataset[0]["answer_values"].dtype == np.float64
