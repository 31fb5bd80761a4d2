"""What a data set refuses, in one line that names the place in the file or the setting, and leaves no folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from ntl.config import UserError
from ntl.data import Prepared, dataset_named
from ntl.data.sets import file
from ntl.data.sets.own import SharesConfig


def asked(*messages: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages], **more}


def weighed(*weights: Any) -> list[dict[str, Any]]:
    return [{"question": f"q{n}", "answer": str(n), "w": weights[n % len(weights)]} for n in range(12)]


CHAT, WEIGHT, TEXT = {"format": "chat"}, {"weight": "w", "answers": "text", "format": "chat"}, {"dataset": "text"}
TURNS, ASK = [("user", "Hi"), ("assistant", "1")], ("user", "How much?")
EARLIER = asked(*TURNS, ASK, ("assistant", "7"))
EARLIER["messages"][1]["w"] = 1
FILES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("a.jsonl", '{"question": "a", "answer": 1}\n{"question":\n', {}, "a.jsonl:2: "),
    ("a.jsonl", '{"question": "a", "answer": 1, "answer": 99}', {}, "a.jsonl:1: "),
    ("a.jsonl", '{"problem": "a", "answer": 1}', {}, "a.jsonl:1: no column 'question'"),
    ("a.jsonl", '{"question": "a", "answer": null}', {}, "a.jsonl:1: 'answer'"),
    ("a.jsonl", '{"question": "a", "answer": [1, null]}', {"answers": "numbers"}, "a.jsonl:1: 'answer'"),
    ("a.jsonl", '{"question": "a", "answer": NaN}', {}, "a.jsonl:1: 'answer'"),
    ("a.csv", 'question,answer\na,"1,5"\n', {}, "dataset.number_format=auto"),
    ("a.csv", f"question,answer\na,1\nb,{'9' * 400}\n", {}, "a.csv:3: the answer '999"),
    ("a.csv", "question;answer\na;1, 0, 4\n", {}, "dataset.answers=numbers"),
    ("a.csv", "question;answer\na;It is 3.\n", {}, "dataset.answers=sentence"),
    ("a.csv", "question;answer\na;No.\n", {}, "dataset.answers=text"),
    ("a.csv", "question,answer\na,1\nb,2,3\n", {}, "a.csv:3: "),
    ("a.csv", '\nquestion,answer\n"a\nb",1\n\nb\n', {}, "a.csv:6: "),
    ("a.csv", 'question,answer\na,1\n"b,2\nc,3\n', {}, "a.csv:3: "),
    ("a.csv", "question,question,answer\na,b,1\n", {}, "a.csv:1: "),
    ("a.csv", "question,answer\n", {}, "a.csv:1: "),
    ("a.tsv", 'question\tanswer\n"a" b\t1\n', {}, "dataset.cells=plain"),
    ("a.parquet", "PAR1", {}, "a.parquet: "),
    ("a.jsonl", [asked(*TURNS), asked(*TURNS, ASK, ("assistant", "7"))], {}, "dataset.format=chat"),
    ("a.jsonl", [asked(*TURNS), asked(ASK)], CHAT, "a.jsonl:2: "),
    ("a.jsonl", [asked(*TURNS), asked(("user", [{"text": "a"}]), TURNS[1])], CHAT, "a.jsonl:2: "),
    ("a.jsonl", [asked(*TURNS), {"messages": "What?"}], CHAT, "a.jsonl:2: 'messages'"),
    ("a.jsonl", weighed(1, -1), WEIGHT, "a.jsonl:2: 'w'"),
    ("a.jsonl", weighed("much"), WEIGHT, "a.jsonl:1: 'w'"),
    ("a.jsonl", weighed(1, None), WEIGHT, "a.jsonl:2: 'w'"),
    ("a.jsonl", weighed(0), WEIGHT, "dataset.weight=w"),
    ("a.jsonl", [{"question": "a", "answer": "b"}], WEIGHT, "no column 'w'"),
    ("a.jsonl", [asked(("user", f"{n}?"), ("assistant", "7")) for n in range(12)], WEIGHT, "dataset.weight=w"),
    ("a.jsonl", [EARLIER], WEIGHT, "'w' of an earlier message"),
    ("a.jsonl", [asked(*TURNS, ASK, ("assistant", ["7"]))], WEIGHT, "{text, w}"),
    ("a.txt", "PK\x00\x01", TEXT, "a.txt:1: a zero byte"),
    ("a.txt", "1234567\n" * 3, TEXT, "a.txt:1: a document of more than 16 characters"),
    ("a.jsonl", '{"body": "a"}', TEXT, "a.jsonl:1: no column 'text'"),
    ("a.docx", "a", TEXT, "a.docx: "),
    ("a.txt", "a", {**TEXT, "column": "body"}, "dataset.column=body"),
    ("a.csv", "text", {**TEXT, "documents": "line"}, "dataset.documents=line"),
    ("a.jsonl", "1", {"splits": {"validation": 0.8, "test": 0.2}}, "dataset.splits.validation=0.8 dataset.splits.test"),
    ("a.jsonl", "1", {"splits": {"validation": "half"}}, "splits.validation: Value 'half'"),
    ("a.jsonl", "1", {"train_row": 5}, "data set 'file': train_row: Key 'train_row' not in"),
]


@pytest.mark.parametrize(("name", "content", "values", "named"), FILES)
def test_a_wrong_file_is_one_line(
    name: str, content: Any, values: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LONGEST", 16)
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else "".join(json.dumps(row) + "\n" for row in content))
    values = {"dataset": "file", "path": str(path), **values}
    with pytest.raises(UserError) as caught:
        Prepared(dataset_named(values.pop("dataset"), tmp_path, **values), tmp_path / "data").prepare()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "data").glob("[!.]*"))


SMALL = {"train_rows": 400, "validation_rows": 40, "test_rows": 20}
SETTINGS: list[tuple[str, dict[str, Any], str]] = [
    ("noisy_number", {}, "Did you mean 'noisy_numbers'"),
    ("arithmetic", {"rows": 1}, "'rows'"),
    ("file", {}, "dataset.path="),
    ("file", {"path": "a.jsnl"}, "Did you mean 'a.jsonl'?"),
    ("file", {"path": "a.jsonl", "answers": "sentense"}, "dataset.answers=sentense: "),
    ("file", {"path": "a.jsonl", "splits": SharesConfig(0.5, 0.5)}, "dataset.splits.validation=0.5 "),
    ("file", {"path": "a.jsonl", "template": "Say {a"}, "dataset.template=Say {a: "),
    ("file", {"path": "a.jsonl", "template": "{a}", "question": "b"}, "dataset.template={a} dataset.question=b"),
    ("file", {"path": "a.jsonl", "number_format": "auto", "answers": "text"}, "dataset.number_format=auto "),
    ("file", {"path": "a.jsonl", "number_format": "point", "answers": "sentence"}, "dataset.number_format=point"),
    ("polynomial", {**SMALL, "extrapolate_operations": 5}, "dataset.extrapolate_operations=5: "),
    ("star_graph", {"_target_": "ntl.data.sets.generated.Needle"}, "write ntl.data.sets.generated.StarGraph"),
    ("star_graph", {**SMALL, "nodes": 8}, "dataset.nodes=8: 2 paths of 5 nodes need 9 labels"),
    ("needle", {**SMALL, "keys": 6, "lengths": [48]}, "dataset.lengths=[48] dataset.keys=6: 48 words are 6 sentences"),
    ("needle", {**SMALL, "depths": [0, 101]}, "dataset.depths=[0,101]: "),
    ("key_values", {**SMALL, "extrapolate_keys": [65]}, "dataset.extrapolate_keys=[65]: "),
    (
        "noisy_numbers",
        {"test_rows": 18_000, "validation_rows": 1},
        "dataset.test_rows=18000 dataset.validation_rows=1: there are 36000 questions",
    ),
    ("multiplication", {"extrapolate_digits": 5}, "dataset.extrapolate_digits=5: "),
    (
        "multiplication",
        {"max_digits": 1, "validation_rows": 9},
        "dataset.validation_rows=9: these cells hold at most 8",
    ),
    (
        "multiplication",
        {"exhaustive_digits": 1, "train_rows": 60, "validation_rows": 10, "test_rows_per_cell": 12},
        "dataset.exhaustive_digits=1: there are 81 pairs",
    ),
    ("mathematics", {"rows_per_file": 10, "train_share": 1.0}, "leaves no row for validation"),
    ("mathematics", {"rows_per_file": 10, "train_share": 0.01}, "leaves no row for training"),
]


@pytest.mark.parametrize(("name", "values", "named"), SETTINGS)
def test_a_wrong_setting_is_one_line(name: str, values: dict[str, Any], named: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text("".join(f'{{"question": "{n}", "answer": {n}}}\n' for n in range(40)))
    with pytest.raises(UserError) as caught:
        Prepared(dataset_named(name, tmp_path, **values), tmp_path / "data").prepare()
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "data").glob("[!.]*"))
