"""``dataset=file``: questions and answers of one's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets import Dataset

from ntl.config import DatasetConfig, UserError, compose, run_id
from ntl.config.composition import from_values
from ntl.config.identity import plain, read_contents, recorded
from ntl.data import Prepared, dataset_named
from ntl.evaluation import extract_answer
from ntl.numbers import parse_number

ROWS = [(f"What is {n} plus 1?", str(n + 1)) for n in range(40)]
Row = dict[str, Any]


def jsonl(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_rows(pairs: Sequence[tuple[Any, Any]]) -> list[Row]:
    return [{"question": question, "answer": answer} for question, answer in pairs]


def prepared(data_dir: Path, path: Path, **values: Any) -> Prepared:
    found = Prepared(dataset_named("file", data_dir, path=str(path), **values), data_dir)
    found.prepare()
    return found


def pairs_of(found: Prepared, split: str) -> list[tuple[str, str]]:
    return [(row["question"], row["answer"]) for row in found.rows(split)]


ANSWERS = {
    "number": {"1e-7": "0.0000001", "1.0": "1", "-0.50": "-0.5", "0.1": "0.1", "1E+3": "1000", '" 1.0 "': "1.0"},
    # What JSON holds as a list or an object becomes text.
    "numbers": {'" 1 2  3"': " 1 2  3", '"1,234"': "1,234", '[1, 2.50, "1.0"]': "[1, 2.5, 1.0]"}
    | {'{"a": 1e-7, "ü": 2}': '{"a": 0.0000001, "ü": 2}'},
}


@pytest.mark.parametrize("answers", ANSWERS)
def test_numbers_of_json_are_written_out_and_text_is_kept(answers: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [f'{{"question": "q{n}", "answer": {answer}}}\n' for n, answer in enumerate(ANSWERS[answers])]
    path.write_text("".join(lines))
    values = {"answers": answers, "validation_path": str(path), "test_path": str(path)}
    found = prepared(tmp_path / "data", path, **values)
    assert [answer for _, answer in pairs_of(found, "train")] == [*ANSWERS[answers].values()]
    line = f"{path}: 3 answers such as 1,234 are read as several numbers; write 1234 for one."
    assert (line in found.manifest["remarks"].get("warnings", [])) == (answers == "numbers")


def spreadsheet(path: Path, answers: Sequence[str]) -> Path:
    rows = "".join(f"q{n};{answer}\n" for n, answer in enumerate(answers))
    path.write_text(f"question;answer\n{rows};\n")  # and an empty line
    return path


def test_numbers_as_people_write_them_are_rewritten_and_counted(tmp_path: Path) -> None:
    """One column has one decimal mark in all files: the test alone tells it."""
    path = spreadsheet(tmp_path / "a.csv", ["1.234 €", "12 €", "(5.000 €)"] * 10)
    test = spreadsheet(tmp_path / "test.csv", ["2.345,50 €"])
    found = prepared(tmp_path / "data", path, number_format="auto", test_path=str(test))
    assert {answer for _, answer in pairs_of(found, "train")} == {"1234", "12", "-5000"}
    assert pairs_of(found, "test") == [("q0", "2345.50")]
    line = f"{path}: 31 of 31 answers rewritten, the first 1.234 € -> 1234; the unit '€' is left out."
    assert found.fingerprint()["warnings"][0] == line
    spreadsheet(test, ["2,345.50 €", "2.345,50 €"])
    with pytest.raises(
        UserError, match=rf"'2,345\.50 €' \({test}:2\) has a decimal point, and '2\.345,50 €' \({test}:3\) a"
    ):
        prepared(tmp_path / "data", path, number_format="auto", test_path=str(test))


def test_numbers_are_kept_as_they_stand_unless_asked(tmp_path: Path, caplog) -> None:
    path = spreadsheet(tmp_path / "a.csv", ["1,234.50", "007", "1.10"] * 10)
    found = prepared(tmp_path / "data", path)
    assert {answer for _, answer in pairs_of(found, "train")} == {"1,234.50", "007", "1.10"}
    assert [line for line in caplog.messages if "10 answers have thousands separators" in line]
    asked = dataset_named("file", path=str(path), number_format="auto")
    # The names of folders that were made before there was such a setting.
    assert "number_format" not in found.dataset.values
    assert asked.values["number_format"] == "auto"


def test_a_template_makes_the_question(tmp_path: Path) -> None:
    rows = [{"value": n, "the unit": "km", "metres": 1000 * n} for n in range(5)]
    template = "Convert {value} {the unit} to {{m}}, {value}! ${value} $b } {} {"
    found = prepared(tmp_path / "data", jsonl(tmp_path / "a.jsonl", rows), template=template, answer="metres")
    every = {pair for split in ("train", "validation", "test") for pair in pairs_of(found, split)}
    assert every == {(f"Convert {n} km to {{m}}, {n}! ${n} $b }} {{}} {{", str(1000 * n)) for n in range(5)}
    path = jsonl(tmp_path / "b.jsonl", [{"text": "a", "answer": 1}, {"text": "", "answer": 2}])
    with pytest.raises(UserError, match=rf"^{path}:2: empty question"):
        prepared(tmp_path / "data", path, template="{text}")


def test_equal_questions_share_a_split_and_shares_are_of_different_ones(tmp_path: Path) -> None:
    rows = as_rows([pair for pair in ROWS for _ in range(1 + int(pair[1]) % 3)])
    path = jsonl(tmp_path / "a.jsonl", rows)
    found = prepared(tmp_path / "data", path)
    parts = {split: pairs_of(found, split) for split in ("train", "validation", "test")}
    assert {split: len(set(part)) for split, part in parts.items()} == {"train": 34, "validation": 2, "test": 4}
    assert len(set().union(*parts.values())) == len(ROWS)
    order = [(row["question"], row["answer"]) for row in rows]
    assert all(part == [pair for pair in order if pair in part] for part in parts.values())
    assert parts["test"] != pairs_of(prepared(tmp_path / "data", path, seed=1), "test")


def test_few_rows_and_a_limit_are_said(tmp_path: Path, caplog) -> None:
    prepared(tmp_path / "data", spreadsheet(tmp_path / "a.csv", ["1", "2", "3"]))
    assert any("training rows: 1, validation: 1, test: 1" in line for line in caplog.messages)
    path = jsonl(tmp_path / "a.jsonl", as_rows(ROWS))
    found = prepared(tmp_path / "data", path, train_rows=5, test_rows=2)
    assert [len(found.rows(split)) for split in ("train", "validation", "test")] == [5, 2, 2]
    everything = pairs_of(prepared(tmp_path / "data", path), "test")
    assert [pair for pair in everything if pair in pairs_of(found, "test")] == pairs_of(found, "test")
    assert "test: 2 of 4 rows are used (dataset.test_rows=2)." in caplog.messages


@pytest.mark.parametrize("answer", ["null", "NaN", "true", '""', '"NA"', '"about 5"'])
@pytest.mark.parametrize("number_format", ["plain", "auto"])
def test_of_a_missing_number_the_place_and_a_remedy_are_told(answer: str, number_format: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"question": "q", "answer": "1"}}\n{{"question": "r", "answer": {answer}}}\n')
    with pytest.raises(UserError, match=rf"^{path}:2: .*; (fill it in|write [a-z ]+), or leave the row"):
        prepared(tmp_path / "data", path, number_format=number_format)


def test_questions_in_train_and_test_are_counted_in_every_run(tmp_path: Path, caplog) -> None:
    path = jsonl(tmp_path / "a.jsonl", as_rows(ROWS))
    test = jsonl(tmp_path / "test.jsonl", as_rows([*ROWS[:3], ROWS[0], ("new", "1")]))
    line = "4 of 5 test questions are also in train: scores on them are no scores on new questions."
    for _ in range(2):
        caplog.clear()
        found = prepared(tmp_path / "data", path, test_path=str(test))
        assert line in caplog.messages
    assert line in found.fingerprint()["warnings"]
    caplog.clear()
    prepared(tmp_path / "data", path, test_path=str(test), validation_path=str(test))
    assert "test is the file of validation: its scores are those of validation." in caplog.messages
    assert not [line for line in caplog.messages if "test questions are also in validation" in line]
    assert not set(pairs_of(found, "validation")) & set(pairs_of(found, "train"))


def test_splits_of_a_saved_folder_are_used_and_missing_ones_made(tmp_path: Path, caplog) -> None:
    one = Dataset.from_list(as_rows([("q", "1"), ("r", "2")]))
    datasets.DatasetDict({"train": Dataset.from_list(as_rows(ROWS)), "test": one, "more": one}).save_to_disk(
        str(tmp_path / "a")
    )
    found = prepared(tmp_path / "data", tmp_path / "a")
    assert [len(found.rows(split)) for split in ("train", "validation", "test")] == [38, 2, 2]
    assert pairs_of(found, "test") == [("q", "1"), ("r", "2")]
    assert not found.dataset.publishable, "its licence is unknown"
    assert any("its splits more are not read" in line for line in caplog.messages)


def test_a_data_set_of_the_hub_and_offline_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(*words: Any) -> Any:
        asked.append(words)
        return datasets.DatasetDict({"train": Dataset.from_list(as_rows(ROWS))})

    with monkeypatch.context() as patch:
        patch.setattr(datasets, "load_dataset", load)
        found = prepared(tmp_path / "data", Path("owner/name"), config_name="main")
    assert (asked, len(found.rows("train"))) == ([("owner/name", "main")], 34)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"other/name: no such file here, and as a data set of the hub: .* Either") as e:
        prepared(tmp_path / "data", Path("other/name"))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("answers", "mark", "good", "bad", "metrics"),
    [
        ("number", "####", "-1,234.5", "about 5", "number"),
        ("reasoning", "####", "3 and 4 are 7\n#### 7", "seven\n#### seven", "number"),
        ("reasoning", "####", "so\n#### 1.0e+03", "so\n#### 1.e+03", "number"),
        ("reasoning", "Answer:", "3 and 4. Answer: 7", r"\boxed{3} and 4. Answer: 7", "number"),
        ("reasoning", r"\boxed", r"3 and 4 are $\boxed{7}$. 2 steps", "3 and 4 are 7", "number"),
        ("reasoning", r"\boxed", r"so \boxed{-1,234.5}", r"\boxed{7} or \boxed{8}", "number"),
        ("sentence", "####", "3 and 4 are 7 dollars.", "three and four are seven", "number"),
        ("sentence", "####", r"so 3 + 4 = \boxed{7}.", r"\boxed{7}, and 2 steps", "number"),
        ("sentence", "####", "in 2 h it is $-1,234.50.", "on the 2nd at 12:30", "number"),
        ("sentence", "####", "7", "one cup and ½", "number"),
        ("numbers", "####", "128, 0, 4096", "128, none", "numbers"),
        ("numbers", "####", '{"a": -1.50, "b": 2}', "[]", "numbers"),
        ("text", "####", "seven", "  ", "text"),
    ],
)
def test_answers_are_what_the_config_says(answers: str, mark: str, good: str, bad: str, metrics: str, tmp_path) -> None:
    path = jsonl(tmp_path / "a.jsonl", as_rows([(question, good) for question, _ in ROWS]))
    found = prepared(tmp_path / "data", path, answers=answers, mark=mark)
    assert found.dataset.metrics == metrics
    assert pairs_of(found, "test")[0][1] == good
    jsonl(path, [*as_rows([(question, good) for question, _ in ROWS]), *as_rows([("q", bad)])])
    if metrics == "number" and answers != "sentence":
        assert parse_number(found.dataset.scored(good)) == extract_answer(good) is not None
    with pytest.raises(UserError, match=rf"{path}:41: "):
        prepared(tmp_path / "data", path, answers=answers, mark=mark)
    assert len(list((tmp_path / "data").glob("file-*"))) == 1


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    path, device = jsonl(tmp_path / "a.jsonl", as_rows(ROWS)), tmp_path / "device.jsonl"
    device.symlink_to("/dev/null")  # one that ends
    for words in ({"path": device}, {"path": path, "test_path": device}, {"path": path, "validation_path": device}):
        with pytest.raises(UserError, match=rf"^cannot read {device}: a pipe, socket or device, where a file is "):
            compose(["dataset=file", *(f"dataset.{name}={value}" for name, value in words.items())])


def test_the_content_of_a_file_is_the_identity_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["dataset=file", "dataset.path=a.jsonl"]
    path = jsonl(tmp_path / "a.jsonl", as_rows(ROWS))
    first = compose(words)
    path.rename(tmp_path / "b.jsonl")
    moved = compose([*words[:1], "dataset.path=b.jsonl"])
    jsonl(path, as_rows(ROWS[1:]))
    edited = compose(words)
    assert run_id(first) == run_id(moved) != run_id(edited)
    assert recorded(first)["dataset"]["path"] == first.dataset.contents["path"] == moved.dataset.contents["path"]
    assert "contents" not in recorded(first)["dataset"]
    assert run_id(from_values(plain(first), "config.yaml")) == run_id(first)
    assert from_values(plain(first), "config.yaml").dataset == first.dataset


def test_a_config_read_back_keeps_to_what_it_was_made_of(tmp_path: Path) -> None:
    data_dir, path = tmp_path / "data", jsonl(tmp_path / "a.jsonl", as_rows(ROWS))
    before = prepared(data_dir, path)
    digests, content = before.digests(), before.dataset.contents["path"]
    for change in (lambda: jsonl(path, as_rows(ROWS[1:])), path.unlink):
        change()
        again = Prepared(before.dataset, data_dir)
        again.prepare()
        assert again.digests() == digests
        with pytest.raises(UserError, match=rf"{path}: gone, or changed since .* {content}, .* put it back, or"):
            Prepared(before.dataset, tmp_path / "elsewhere").prepare()
        assert not (tmp_path / "elsewhere").exists()


def test_a_setting_that_names_a_file_counts_in_any_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Own(DatasetConfig):
        source: str = "numbers.txt"
        kind: str = "train"
        folder: str = "train"
        lists: tuple[str, ...] = ("a/1.txt", "a/2.txt")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "numbers.txt").write_text("1")
    for name in ("train", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.txt").write_text("2")
    seen = set()
    for edit in ("data/numbers.txt", "train/1.txt", "train/2.txt", "a/2.txt"):
        config = Own()
        read_contents(config, "data")
        seen.add(tuple(config.contents.items()))
        (tmp_path / edit).write_text("9")
    assert len(seen) == 4
