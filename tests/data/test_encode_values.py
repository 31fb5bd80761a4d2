"""Values beside token ids on disk: the same in any number of processes, and after a kill."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ntl.config import UserError
from ntl.data import encoded, store
from ntl.data.encode import encode_dataset, settings_for
from ntl.data.encode_worker import BlockEncoder
from ntl.data.encoded import EncodedDataset
from ntl.data.store import Example, Rows
from ntl.tokenizers import load_tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    """xVal's tokenizer by ``paper_compat``."""
    folder = tmp_path_factory.mktemp("tokenizer") / "trained"
    train_tokenizer(["What is 3 times 4? -"], folder, kind="xval", vocab_size=60)
    return {rule: load_tokenizer(folder, kind="xval", paper_compat=rule) for rule in (False, True)}


def _prepared(folder: Path, rows: int = 3000) -> Rows:
    examples = [
        Example(id=f"train/{i:05d}", question=f"What is {i}.5 times -{i % 7}?", answer=str(-(i % 7) * i))
        for i in range(rows)
    ]
    folder.mkdir()
    entry = store.write_split(folder, "train", examples)
    return store.read_split(folder, "train", entry, lambda question, answer: None)


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    monkeypatch.setattr(store, "BLOCK", 16_000)
    return _prepared(tmp_path / "data")


def _encode(folder: Path, rows: Any, tokenizer: Any, **changes: Any) -> EncodedDataset:
    settings = {"cache_dir": folder, "key": "k", "decoder_only": True, "max_length": 64}
    return encode_dataset(lambda: rows, tokenizer, **{**settings, **changes})


def _same(first: EncodedDataset, second: EncodedDataset) -> bool:
    files = ("tokens.npy", "offsets.npy", "values.npy", "about.json")
    return all((first.folder / name).read_bytes() == (second.folder / name).read_bytes() for name in files)


def test_an_example(tmp_path: Path, rows: Rows, tokenizers: dict[bool, Any]) -> None:
    tokenizer = tokenizers[False]
    example = _encode(tmp_path / "cache", rows, tokenizer)[1234]
    tokens = {name: tokenizer.convert_ids_to_tokens(example[f"{name}_ids"].tolist()) for name in ("question", "answer")}
    question = dict(zip(tokens["question"][::-1], example["question_values"][::-1], strict=True))
    assert tokens["question"].count("[NUM]") == 2
    assert question["[NUM]"] == 1234.5
    assert example["question_values"][example["question_ids"] == tokenizer.number_token_id].tolist() == [1234.5, -2]
    assert tokens["answer"] == ["[NUM]", "</s>"]
    assert example["answer_values"].tolist() == [-2468, 1]


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_give_the_same_values(tmp_path: Path, rows: Rows, tokenizers: dict[bool, Any], workers: int) -> None:
    for rule, tokenizer in tokenizers.items():
        alone = _encode(tmp_path / f"alone-{rule}", rows, tokenizer, workers=0)
        assert _same(_encode(tmp_path / f"many-{rule}", rows, tokenizer, workers=workers), alone)
        assert alone.values is not None
        assert len(alone.values) == len(alone.tokens)


@pytest.mark.parametrize("journaled", [True, False])
def test_what_was_done_before_a_failure_keeps_its_values(
    tmp_path: Path, rows: Rows, tokenizers: dict[bool, Any], monkeypatch: pytest.MonkeyPatch, journaled: bool
) -> None:
    monkeypatch.setattr(encoded, "JOURNAL_SECONDS", 0 if journaled else 1e9)
    whole = _encode(tmp_path / "whole", rows, tokenizers[False])
    read = Rows.blocks

    def breaking(self: Rows, start: int = 0) -> Any:
        for count, block in enumerate(read(self, start)):
            if count == 5:
                raise KeyboardInterrupt
            yield block

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "blocks", breaking)
        with pytest.raises(KeyboardInterrupt):
            _encode(tmp_path / "broken", rows, tokenizers[False], workers=0)
    said: list[str] = []
    resumed = _encode(tmp_path / "broken", rows, tokenizers[False], workers=0, log=said.append)
    assert any("were done before" in line for line in said) is journaled
    assert _same(resumed, whole)


def test_values_that_were_not_vouched_for_are_written_again(
    tmp_path: Path, tokenizers: dict[bool, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between the journal and the end leaves more in the files than the journal says, of each another amount."""
    monkeypatch.setattr(encoded, "JOURNAL_SECONDS", 1e9)
    source = [{"question": f"{i} and 1", "answer": str(i)} for i in range(6)]
    writer = encoded.EncodedWriter(tmp_path / "part", "<u2", with_values=True)
    encoder = BlockEncoder(settings_for(tokenizers[False], decoder_only=True, max_length=64))
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


def test_another_reading_is_another_folder(tmp_path: Path, tokenizers: dict[bool, Any]) -> None:
    row = [{"question": "1", "answer": "-2"}]
    first, paper = (_encode(tmp_path, row, tokenizers[rule]) for rule in (False, True))
    assert first.folder != paper.folder
    assert first[0]["answer_values"].tolist() == [-2, 1]
    assert paper[0]["answer_values"].tolist()[-2:] == [2, 1]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_answer_without_a_number_is_one_line_from_any_process(
    tmp_path: Path, tokenizers: dict[bool, Any], workers: int
) -> None:
    rows = [{"question": "What is 1?", "answer": "one"}]
    with pytest.raises(UserError, match=r"^the answer 'one' of 'What is 1\?' has no number"):
        _encode(tmp_path, rows, tokenizers[False], workers=workers)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]


def test_values_are_kept_in_double_precision(tmp_path: Path, tokenizers: dict[bool, Any]) -> None:
    dataset = _encode(tmp_path, [{"question": "0.1", "answer": "9007199254740993"}], tokenizers[False])
    assert dataset[0]["question_values"][0] == 0.1
    assert dataset[0]["answer_values"][0] == 9007199254740992
    assert dataset[0]["answer_values"].dtype == np.float64
