"""Questions of a user's own: to a run, and to the same model without its run."""

import io
import json
import sys
from pathlib import Path

import pytest

from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.system.errors import UserError
from ntl.training.predictor import main, predict


def questions(data: Path, count: int = 30) -> list[str]:
    return [json.loads(line)["question"] for line in (data / "test.jsonl").read_text().splitlines()[:count]]


@pytest.fixture
def asked(trained_once: Path, prepared, small, capsys: pytest.CaptureFixture[str]):
    """``asked(*words)``: the objects that the run prints as JSON lines."""

    def ask(*words: str, model: Path = trained_once) -> list[dict]:
        capsys.readouterr()
        assert main([str(model), *words, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    ask.run, ask.data = trained_once, prepared(small())
    return ask


def test_answers_are_those_of_the_test_split_in_order(asked, tmp_path: Path) -> None:
    expected = [row["prediction"] for row in read_predictions(asked.run / "predictions.jsonl")[1]]
    texts = questions(asked.data)
    (tmp_path / "q.txt").write_text("\n\n".join(texts) + "\n")
    before = {path: path.stat().st_mtime_ns for path in asked.run.rglob("*")}
    found = asked("--file", str(tmp_path / "q.txt"), "decoding.batch_size=4")
    assert [line["question"] for line in found] == texts
    assert [line["answer"] for line in found] == expected
    assert found == asked(*texts)
    assert {path: path.stat().st_mtime_ns for path in asked.run.rglob("*")} == before


def test_standard_input_and_json_lines(asked, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = questions(asked.data, 3)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    piped = asked("--file", "-")
    lines = tmp_path / "q.jsonl"
    lines.write_text("".join(json.dumps({"question": text, "other": 1}) + "\n" for text in texts))
    assert piped == asked("--file", str(lines)) == asked(*texts)


@pytest.mark.parametrize("more", [(), ("decoding=expectation", "decoding.num_beams=20")])
def test_a_checkpoint_alone_answers_as_its_run(asked, more: tuple[str, ...]) -> None:
    texts, length = questions(asked.data, 5), "decoding.max_new_tokens=6"
    (checkpoint,) = asked.run.glob("checkpoints/checkpoint-12")
    found = asked(*texts, *more, length, model=checkpoint)
    assert found == asked(*texts, *more, length)
    for line in found if more else []:
        low, high = line["interval"]
        assert low <= high
        assert float(line["answer"]) == pytest.approx(line["mean"], abs=0.005)


def test_text_has_the_question_and_the_interval(asked, capsys: pytest.CaptureFixture[str]) -> None:
    question, settings = questions(asked.data, 1)[0], ["decoding=expectation", "decoding.num_beams=20"]
    (line,) = asked(question, *settings)
    assert main([str(asked.run), question, *settings]) == 0
    low, high = line["interval"]
    assert capsys.readouterr().out == f"{question}\n  {line['answer']} [{low:.12g}, {high:.12g}]\n"


def test_no_data_is_needed(asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(asked.run), "house 1 2 3 =", f"data_dir={tmp_path / 'none'}"]) == 0
    assert "at most 32 tokens" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


WRONG = {
    ("",): "question 1 is empty",
    ("what 1 2", "dataset=gsm8k"): "give one of them",
    ("1 " * 200,): r"question 1 is too long: \d+ tokens, and questions have at most 128",
    ("1 2", "decoding.max_new_tokens=127"): "too long: .* lower decoding.max_new_tokens",
    ("--file", "none.txt"): "--file none.txt: No such file",
    ("what?", "loss=ce"): "only decoding",
    ("x=3",): "x=3: only decoding",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_line(asked, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=WRONG[words]) as caught:
        asked(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "line"),
    [(b"", "no question in it"), (b"{}\n", r":1: not an object"), (b'{"question": "a"}\n[', r":2: not a line of JSON")],
)
def test_a_file_that_has_no_questions(asked, tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "q.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=line):
        asked("--file", str(tmp_path / "q.jsonl"))


def test_a_question_may_have_an_equals_sign(asked) -> None:
    (line,) = asked("x=3 and y=4: what is x+y?")
    assert line["question"] == "x=3 and y=4: what is x+y?"


OTHER = [
    "dataset=multiplication",
    "dataset.train_rows=96",
    "dataset.validation_rows=20",
    "dataset.test_rows_per_cell=2",
]


def test_another_data_set_has_a_file_of_its_own(finished: Path) -> None:
    before = (finished / "predictions.jsonl").read_bytes(), (finished / "record.json").read_bytes()
    path = predict(finished, [*OTHER, "decoding.max_new_tokens=6"], say=[].append)
    header, rows = read_predictions(path)
    assert path.name.startswith("predictions-greedy-1-multiplication-")
    assert (header["dataset"], {row["split"] for row in rows}) == ("multiplication", {"interpolate", "extrapolate"})
    assert ((finished / "predictions.jsonl").read_bytes(), (finished / "record.json").read_bytes()) == before
    assert read_record(finished / "record.json").config["dataset"]["name"] == "noisy_numbers"


def test_a_stored_model_decodes_a_data_set(
    finished: Path, settings, prepared, small, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same answers as its run gave to the same data."""
    outputs, checkpoint = finished.parent / "scored", finished / "checkpoints" / "checkpoint-12"
    words = [word for word in settings() if word.startswith(("dataset", "data_dir", "device"))]
    assert main([str(checkpoint), *words, "--outputs", str(outputs)]) == 0
    (path,) = outputs.glob(f"predictions-greedy-1-checkpoint-12-*-{prepared(small()).name}.jsonl")
    assert read_predictions(path)[1] == read_predictions(finished / "predictions.jsonl")[1]
    with pytest.raises(UserError, match="ask it a question, or name a data set"):
        main([str(checkpoint)])
