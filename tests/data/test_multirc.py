import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ntl.config.data import MultiRCConfig
from ntl.data.prepared import Prepared
from ntl.data.raw import Log
from ntl.data.sets import multirc
from ntl.data.sets.multirc import MultiRC, parse


def passage(text: str, *questions: tuple[int, str, list[tuple[str, int | None]]]) -> dict[str, Any]:
    asked = [
        {
            "idx": index,
            "question": question,
            "answers": [
                {"text": answer, "idx": place} | ({} if label is None else {"label": label})
                for place, (answer, label) in enumerate(answers)
            ],
        }
        for index, question, answers in questions
    ]
    return {"idx": 0, "version": 1.1, "passage": {"text": text, "questions": asked}}


PASSAGES = [
    passage(
        " The mill stood for 99 years.\u2028It fell in 1873. ",
        (0, " When? ", [("1873", 1), (" in 1873 ", 1), ("99", 0), ("", 0)]),
        (1, "Who?", [("nobody", 0)]),
    ),
    passage("Trees.", (2, "What?", [("trees", 1)])),
]


def jsonl(*passages: Any, ascii_only: bool = False) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=ascii_only).encode() + b"\n" for row in passages or PASSAGES)


def made(folder: Path, log: Log = print, **settings: Any) -> Prepared:
    prepared = Prepared(MultiRC(MultiRCConfig(**settings)), folder)
    prepared.prepare(log, download=False)
    return prepared


def test_one_example_a_question(release: Any, data_dir: Path, silent: list[str]) -> None:
    release(MultiRC, train=jsonl(), validation=jsonl(PASSAGES[1]))
    prepared = made(data_dir, log=silent.append)
    assert list(prepared.rows("train")) == [
        {
            "id": "train/00000",
            "question": "The mill stood for 99 years.\u2028It fell in 1873.\n\nQuestion: When?",
            "answer": "1873 | in 1873",
        },
        {"id": "train/00001", "question": "Trees.\n\nQuestion: What?", "answer": "trees"},
    ]
    assert "multirc: 1 of 3 train questions have no right option: left out" in silent
    fingerprint = prepared.fingerprint()
    assert (fingerprint["dropped"], fingerprint["rows"]) == ({"train": 1}, {"train": 2, "validation": 1})
    assert "no redistribution" in fingerprint["licence"]
    assert (prepared.dataset.metrics, prepared.dataset.test_splits) == ("text", ("validation",))


def test_paper_compat_keeps_questions_without_an_answer(release: Any, data_dir: Path, silent: list[str]) -> None:
    release(MultiRC, train=jsonl(), validation=jsonl(PASSAGES[1]))
    prepared = made(data_dir, paper_compat=True, log=silent.append)
    assert [row["answer"] for row in prepared.rows("train")] == ["1873 |  in 1873 ", "", "trees"]
    assert prepared.fingerprint()["dropped"] == {}


def test_an_empty_option_is_no_answer() -> None:
    data = jsonl(passage("p", (0, "q", [("a", 1), (" ", 1), ("", 1), ("b ", 1), ("c", 0)]), (1, "r", [(" ", 1)])))
    asked = ["p\n\nQuestion: q", "p\n\nQuestion: r"]
    assert list(parse(data, strip=True)) == list(zip(asked, ["a | b", ""], strict=True))
    assert list(parse(data, strip=False)) == list(zip(asked, ["a |   |  | b ", " "], strict=True))


@pytest.mark.data
def test_the_real_files(data_root: Path, tmp_path: Path, silent: list[str]) -> None:
    prepared = made(tmp_path, log=silent.append)
    fingerprint = prepared.fingerprint()
    assert fingerprint["rows"] == {"train": 5_108, "validation": 950}
    assert fingerprint["dropped"] == {"train": 23, "validation": 3}
    assert "multirc: 23 of 5131 train questions have no right option: left out" in silent
    passages = {
        split: {row["question"].rpartition("\n\nQuestion: ")[0] for row in prepared.rows(split)}
        for split in prepared.dataset.splits
    }
    assert not passages["train"] & passages["validation"]
    options = [len(row["answer"].split(multirc.SEPARATOR)) for row in prepared.rows("train")]
    assert [options.count(count) for count in range(1, 11)] == [1382, 1730, 1199, 533, 183, 52, 14, 8, 5, 2]


@pytest.mark.data
def test_paper_compat_gives_the_papers_files(data_root: Path, tmp_path: Path) -> None:
    prepared = made(tmp_path, paper_compat=True)
    assert prepared.fingerprint()["rows"] == {"train": 5_131, "validation": 953}
    sizes = {}
    for split in prepared.dataset.splits:
        rows = [{"question": row["question"], "answer": row["answer"]} for row in prepared.rows(split)]
        content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
        sizes[split] = (len(content), hashlib.sha256(content).hexdigest()[:8])
    assert sizes == {"train": (8_961_590, "4fd219f8"), "validation": (1_588_822, "2c48691c")}
