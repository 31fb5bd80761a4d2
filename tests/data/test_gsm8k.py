import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import compose, run_id
from ntl.config.data import GSM8KConfig
from ntl.data.prepared import Prepared
from ntl.data.raw import Log
from ntl.data.sets import gsm8k
from ntl.data.sets.gsm8k import GSM8K, normalize, normalize_as_paper, parse

ROWS = [
    ("A bag holds 1,000 nuts.", "2*3=<<2*3=6>>6 bags\n6,000/.5 = <<6000/.5=12000>>12,000\n#### 12,000"),
    ("How much is left?", "It’s −3.\n#### -3"),
    ("Half of 12.5?", "12.5*.5=<<12.5*.5=6.25>>6.25\n#### 6"),
    ("And zero?", "none\n#### 0"),
]


def jsonl(rows: list[tuple[str, str]] = ROWS) -> bytes:
    return b"".join(json.dumps({"question": q, "answer": a}).encode() + b"\n" for q, a in rows)


def made(folder: Path, log: Log = print, **settings: Any) -> Prepared:
    prepared = Prepared(GSM8K(GSM8KConfig(**settings)), folder)
    prepared.prepare(log, download=False)
    return prepared


@pytest.fixture
def made_up(release: Any, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four training rows, of which the last and the first are for training, and one test row."""
    release(GSM8K, train=jsonl(), test=jsonl(ROWS[1:2]))
    monkeypatch.setattr(gsm8k, "SPLIT", data_dir / "split.json")
    gsm8k.SPLIT.write_text('{"train":[3,0],"validation":[1,2]}')
    return data_dir


def test_rows_follow_the_list_of_indices(made_up: Path, silent: list[str]) -> None:
    prepared = made(made_up, log=silent.append)
    assert list(prepared.rows("train")) == [
        {"id": "train/00000", "question": "And zero?", "answer": "none\n#### 0"},
        {
            "id": "train/00001",
            "question": "A bag holds 1000 nuts.",
            "answer": "2*3=6 bags\n6000/0.5 = 12000\n#### 12000",
        },
    ]
    assert [row["question"] for row in prepared.rows("validation")] == [
        "How much is left?",
        "Half of 12.5?",
    ]
    assert [row["answer"] for row in prepared.rows("test")] == ["It’s −3.\n#### -3"]
    assert silent[0] == "gsm8k: licence: MIT (OpenAI, 2021)"
    assert prepared.fingerprint()["licence"] == "MIT (OpenAI, 2021)"
    assert prepared.manifest["source"]["home"] == "https://github.com/openai/grade-school-math"


def test_the_scored_part_and_the_group(made_up: Path) -> None:
    dataset = GSM8K(GSM8KConfig())
    assert dataset.scored("2 and 3\n#### 1200") == "1200"
    assert dataset.group("test/00000") is None
    assert dataset.truth("any") is None


def test_test_rows_takes_a_prefix(release: Any, made_up: Path) -> None:
    release(GSM8K, train=jsonl(), test=jsonl(ROWS))
    assert made(made_up, test_rows=3).fingerprint()["rows"] == {"train": 2, "validation": 2, "test": 3}


def test_paper_compat_is_another_text_another_folder_and_another_run(made_up: Path) -> None:
    corrected, original = made(made_up), made(made_up, paper_compat=True)
    answers = [prepared.rows("validation")[1]["answer"] for prepared in (corrected, original)]
    assert answers == ["12.5*0.5=6.25\n#### 6", "120.5*0.5=6.25\n#### 6"]
    assert corrected.folder != original.folder
    composed = compose(["dataset=gsm8k", "paper_compat=true"])
    assert composed.dataset == GSM8KConfig(paper_compat=True, test_rows=500)
    assert run_id(composed) != run_id(compose(["dataset=gsm8k"]))


@pytest.mark.parametrize(
    ("text", "corrected", "original"),
    [
        ("$1,920,000 and 12,000.50", "$1920000 and 12000.50", "$1920000 and 12000.50"),
        ("1 000 000", "1000000", "1000000"),
        ("450 000 people", "450000 people", "450000 people"),
        ("$100 000 x 5", "$100000 x 5", "$100 000 x 5"),
        ("17 000/5 = 3 400.", "17000/5 = 3400.", "17000/5 = 3400."),
        ("1 000 000 + 500 000 = 1 500 000", "1000000 + 500000 = 1500000", "1000000 + 500000 = 1 500000"),
        ("3 100 200", "3 100 200", "3100200"),
        ("12 200-kilobyte videos", "12 200-kilobyte videos", "12200-kilobyte videos"),
        ("2000 450 of them", "2000 450 of them", "2000 450 of them"),
        ("16,0000 and 4,5,6 and 0,2", "16,0000 and 4,5,6 and 0,2", "160000 and 4,5,6 and 0,2"),
        ("12.5 x .5", "12.5 x 0.5", "120.5 x 0.5"),
        ("10 .5 and 0.5", "10 0.5 and 0.5", "10 0.5 and 00.5"),
        (".9g = .9", "0.9g = 0.9", "00.9g = 00.9"),
        ("v1..5 and 3.4.5", "v1..5 and 3.4.5", "v1.0.5 and 3.40.5"),
        ("½ of 50% of €3 is 10²", "½ of 50% of €3 is 10²", "½ of 50% of €3 is 10²"),
    ],
)
def test_normalization(text: str, corrected: str, original: str) -> None:
    assert normalize(text) == corrected
    assert normalize_as_paper(text) == original


@given(st.text(alphabet="0123456789,. -x$", max_size=40))
def test_normalization_is_settled_and_changes_no_digit_but_zeros(text: str) -> None:
    once = normalize(text)
    assert re.sub("[0., ]", "", once) == re.sub("[0., ]", "", text)
    assert re.findall(r"(?<![\d.])\.\d", once) == []


def test_line_ends() -> None:
    text = json.dumps({"question": "one\u2028two\x85", "answer": "a\u2028b\n#### 5"}, ensure_ascii=False)
    assert parse(f"{text}\n{text}".encode()) == [("one\u2028two\x85", "a\u2028b\n#### 5")] * 2


def test_the_list_of_indices_covers_the_official_file() -> None:
    chosen = json.loads(gsm8k.SPLIT.read_bytes())
    assert {split: len(indices) for split, indices in chosen.items()} == {"train": 6353, "validation": 1120}
    assert sorted(chosen["train"] + chosen["validation"]) == list(range(7473))


@pytest.mark.data
def test_the_real_files_give_the_papers_rows(data_root: Path, tmp_path: Path) -> None:
    corrected, original = made(tmp_path), made(tmp_path, paper_compat=True)
    for prepared in (corrected, original):
        assert prepared.fingerprint()["rows"] == {"train": 6353, "validation": 1120, "test": 1319}
    scored = corrected.dataset.scored
    assert corrected.fingerprint()["files"] == {
        "train.jsonl": "f9440481d3033983f7ca91485af05e2bcec4352d4509415d217948f517649a1c",
        "validation.jsonl": "7b2a046e45ad5e822eb5093ec6486d0fc133ae14ee5a4415f6d195d93fe18c94",
        "test.jsonl": "2a7e90fadfe7e3b185d1de4b403b830554fdaa1e09a149e48a1fc475c70ccdf0",
    }
    indices = json.loads((data_root / "gsm8k/paper_splits/split_indices.json").read_bytes())
    assert json.loads(gsm8k.SPLIT.read_bytes()) == {"train": indices["train"], "validation": indices["val"]}
    names = {"train": "train_t_clean", "validation": "val_t_clean", "test": "test_clean"}
    for split, name in names.items():
        with gzip.open(data_root / f"gsm8k/paper_splits/{name}.jsonl.gz") as stream:
            expected = stream.read()
        rows = list(original.rows(split))
        written = [json.dumps({"question": row["question"], "answer": row["answer"]}) + "\n" for row in rows]
        assert "".join(written).encode() == expected
        better = list(corrected.rows(split))
        for row in better:
            assert re.fullmatch("-?[0-9]+", scored(row["answer"]))
            assert "<<" not in row["answer"]
        assert all(scored(old["answer"]) == scored(new["answer"]) for old, new in zip(rows, better, strict=True))
    # None of the official rows is used twice, and no test question is a training question.
    train = {row["question"] for split in ("train", "validation") for row in corrected.rows(split)}
    assert len(train) == 7473
    assert not train & {row["question"] for row in corrected.rows("test")}
    assert sum("\u2028" in row["question"] + row["answer"] for row in corrected.rows("train")) <= 1
