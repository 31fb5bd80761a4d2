from pathlib import Path

import pytest

from ntl.data import benchmark, encode
from ntl.data.benchmark import data_set, epoch, first_batch, main, map_datasets, prepare, tokenize, write_tree
from ntl.numbers import parse_number
from ntl.tokenizers import train_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    texts = [text for number in range(2000) for text in benchmark.made_up_pair(number)]
    train_tokenizer(texts, tmp_path / "tokenizer", kind="digit", vocab_size=200)
    return str(tmp_path / "tokenizer")


def test_made_up_text_is_like_the_real_one() -> None:
    pairs = [benchmark.made_up_pair(number) for number in range(5000)]
    assert len({question for question, _ in pairs}) > 4900
    assert all(parse_number(answer) is not None for _, answer in pairs)
    # Of the real text: 42 tokens of T5 a pair, 64 characters, at most 160.
    assert 55 < sum(len(question + answer) for question, answer in pairs) / 5000 < 75
    assert max(len(question) for question, _ in pairs) <= 160


def test_stages(data_dir: Path, tokenizer: str) -> None:
    write_tree(data_dir, 6)
    row = prepare(data_dir, 6)
    assert row["bytes"] == sum(path.stat().st_size for path in data_dir.rglob("mathematics_dataset-v1.0/*/*.txt"))
    assert data_set(6).fingerprint(data_dir)["rows"]["train"] == 39 * 5
    assert tokenize(data_dir, 6, tokenizer)["seconds"] > 0
    assert len(list((data_dir / ".encoded").glob("[0-9a-f]*"))) == 4
    assert map_datasets(data_dir, 6, tokenizer, 1)["pairs"] == 39 * 5
    before, after = first_batch(data_dir, 6, tokenizer)["padding"].split(" -> ")
    assert 0 <= float(after) < float(before) < 1
    assert epoch(data_dir, 6, tokenizer)["seconds"] >= 0


def test_the_same_ids_as_datasets_map(data_dir: Path, tokenizer: str) -> None:
    """What is compared does the same work."""
    from datasets import Dataset

    made: list[Dataset] = []
    original = Dataset.map

    def kept(self: Dataset, *args: object, **kwargs: object) -> Dataset:
        made.append(original(self, *args, **kwargs))
        return made[-1]

    write_tree(data_dir, 6)
    prepare(data_dir, 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dataset, "map", kept)
        map_datasets(data_dir, 6, tokenizer, 1)
    ours = benchmark._encode(data_dir, 6, benchmark._load(tokenizer))
    assert [row["question_ids"].tolist() for row in ours] == made[0]["input_ids"][:]
    assert [row["answer_ids"].tolist() for row in ours] == made[0]["labels"][:]


def test_the_table_is_written_as_it_grows(
    tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NTL_DATA_DIR", raising=False)
    # In this process: what is tested here is not the measuring.
    monkeypatch.setattr(benchmark, "measured", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(benchmark, "first_step", lambda *_: {"seconds": 2.5, "peak_anon_mib": 600})
    monkeypatch.setattr(encode, "_count_workers", lambda *_: 0)
    arguments = [
        "--pairs",
        "80",
        "--tokenizer",
        tokenizer,
        "--scratch",
        str(tmp_path),
        "--out",
        str(tmp_path / "a.csv"),
    ]
    assert main(arguments) == 0
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 2 + 7
    assert lines[-1] == "117,first step,2.5,,,600,"
    assert lines[2].startswith("117,prepare,")
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["tokenizer"]


@pytest.mark.slow
def test_the_first_step_of_a_real_run(data_dir: Path, tokenizer: str) -> None:
    write_tree(data_dir, 50)
    prepare(data_dir, 50)
    tokenize(data_dir, 50, tokenizer)
    row = benchmark.first_step(data_dir, 50, tokenizer)
    assert 0 < row["seconds"] < 60
    assert row["peak_anon_mib"] > 100
