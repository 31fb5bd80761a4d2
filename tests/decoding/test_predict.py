"""scripts/predict.py: questions, and test splits decoded again."""

import json
import math
import runpy
from pathlib import Path

import pytest

from ntl.decoding import predictions
from ntl.decoding.predictor import predict
from ntl.evaluation import read_predictions, score_predictions
from ntl.evaluation.interval import conformal_quantile
from ntl.results import read_record
from ntl.runs.folder import is_taken, only_one
from ntl.system.errors import Busy, UserError

script = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "predict.py"))
main = script["main"]
TRAINED = ["dataset.noise_sd=0", "trainer.max_steps=200", "trainer.lr=1e-2"]


def questions(data: Path, count: int = 30) -> list[str]:
    return [json.loads(line)["question"] for line in (data / "test.jsonl").read_text().splitlines()[:count]]


@pytest.fixture
def asked(trained_once: Path, prepared, small, capsys: pytest.CaptureFixture[str]):
    """``asked(*words)``: the objects that are printed as JSON lines, by default of ``asked.run``."""

    def ask(*words: str, model: Path = trained_once) -> list[dict]:
        capsys.readouterr()
        main([str(model), *words, "--json"])
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


def test_a_question_keeps_the_spaces_around_it(tmp_path: Path) -> None:
    for end in (b"\r\n", b"\n", b"\r"):
        (tmp_path / "q.txt").write_bytes(b"2 + 2 = " + 2 * end + b" 3 + 1 =")
        assert script["read_questions"](str(tmp_path / "q.txt")) == ["2 + 2 = ", " 3 + 1 ="]


def test_an_answer_that_is_cut_off_is_told(asked, caplog: pytest.LogCaptureFixture) -> None:
    asked(*questions(asked.data), "decoding.max_new_tokens=1")
    assert "of 30 answers are cut off after 1 tokens, and so may be their numbers; raise decoding" in caplog.text


@pytest.mark.parametrize("more", [(), ("decoding=expectation", "decoding.num_beams=20")])
@pytest.mark.slow
def test_a_checkpoint_alone_answers_as_its_run(asked, more: tuple[str, ...]) -> None:
    """A folder that ``save_pretrained`` wrote; it has no test splits."""
    texts, length = questions(asked.data, 5), "decoding.max_new_tokens=6"
    (checkpoint,) = asked.run.glob("checkpoints/checkpoint-12")
    found = asked(*texts, *more, length, model=checkpoint)
    assert found == asked(*texts, *more, length)
    for line in found if more else []:
        low, high = line["interval"]
        assert low <= high
        assert float(line["answer"]) == pytest.approx(line["mean"], abs=0.005)
    with pytest.raises(UserError, match="ask it a question"):
        main([str(checkpoint)])


@pytest.mark.slow
def test_no_data_is_needed_and_a_question_may_have_an_equals_sign(asked, tmp_path: Path, capsys, caplog) -> None:
    question = "x=3 and y=4: what is x+y?"
    words = [question, "decoding=expectation", "decoding.num_beams=20", f"data_dir={tmp_path / 'none'}"]
    (line,) = asked(*words)
    main([str(asked.run), *words])
    printed = capsys.readouterr()
    low, high = line["interval"]
    first, answer, part = printed.out.splitlines()
    assert (first, answer) == (question, f"  {line['answer']}, central 95% in [{low:.12g}, {high:.12g}]")
    assert part.startswith(f"  Numbers hold {line['represented']:.2f} of the probability")
    assert "at most 32 tokens" in caplog.text
    assert not (tmp_path / "none").exists()


WRONG = {
    ("",): "question 1 is empty",
    ("-",): "^-: no question; --file - reads questions from standard input",
    ("1", "2\udcff"): "question 2 is no UTF-8 text",
    ("what 1 2", "dataset=gsm8k"): "give one of them",
    ("1", "1 " * 200): r"question 2 has 400 tokens, and the model reads 115 beside an answer of 14",
    ("--file", "none.txt"): "--file none.txt: No such file",
    ("--file", "/dev/null"): "--file /dev/null: a pipe, socket or device, .* or - for standard input",
    ("what?", "loss=ce"): "only decoding",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_mistake_is_one_line(asked, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=WRONG[words]) as caught:
        asked(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_the_runs_own_decoding_gives_its_file_byte_for_byte(copy_of, capsys, caplog) -> None:
    finished = copy_of(*TRAINED)
    path = finished / "predictions.jsonl"
    before = path.read_bytes()
    assert len({row["prediction"] for row in read_predictions(path)[1]}) > 3
    path.unlink()
    capsys.readouterr()
    main([str(finished), "device=cpu", "--json"])
    assert path.read_bytes() == before
    printed = capsys.readouterr()
    metrics = json.loads(printed.out)
    record = read_record(finished / "record.json").metrics
    of_model = {"test/bits", "test/probability"}  # not of the answers
    assert metrics.keys() == {name for name in record if not name.startswith("validation")} - of_model
    for name, value in metrics.items():
        assert (value is None) == (record[name] is None)
        assert value is None or value == pytest.approx(record[name], rel=1e-6)
    assert "decoded test by greedy: 30 examples" in caplog.text


OTHER = ["dataset=multiplication", "dataset.train_rows=96", "dataset.validation_rows=20"]
OTHER += ["dataset.test_rows_per_cell=2", "decoding.max_new_tokens=6"]


@pytest.mark.slow
def test_another_decoding_or_data_set_has_a_file_of_its_own(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def decoded(*words: str) -> Path:
        return predict(finished, words)

    before = {path: path.read_bytes() for path in (finished / "predictions.jsonl", finished / "record.json")}
    assert decoded("decoding.num_beams=1", "decoding=greedy").name == "predictions.jsonl"
    main([finished.name, "decoding=beam", "decoding.num_beams=2", "--outputs", str(finished.parent)])
    header, rows = read_predictions(finished / "predictions-beam-2.jsonl")
    assert (header["decoding"]["name"], header["decoding"]["num_beams"], len(rows)) == ("beam", 2, 30)
    assert "unparsable" in capsys.readouterr().out
    shorter = decoded("decoding=beam", "decoding.num_beams=2", "decoding.max_new_tokens=1")
    assert shorter.name == "predictions-beam-2-max_new_tokens=1.jsonl"
    assert read_predictions(finished / "predictions-beam-2.jsonl") == (header, rows)
    other = decoded(*OTHER)
    header, rows = read_predictions(other)
    assert other.name.startswith("predictions-greedy-1-max_new_tokens=6-multiplication-")
    assert (header["dataset"], {row["split"] for row in rows}) == ("multiplication", {"interpolate", "extrapolate"})
    assert {path: path.read_bytes() for path in before} == before


def test_an_unfinished_training_never_takes_the_finished_runs_name(finished: Path, caplog) -> None:
    before = (finished / "predictions.jsonl").read_bytes()
    (finished / "checkpoints" / "checkpoint-12" / "manifest.json").unlink()
    assert predict(finished).name == "predictions-greedy-1-checkpoint-6.jsonl"
    assert (finished / "predictions.jsonl").read_bytes() == before
    assert any("checkpoint-6: not the last of the 12 steps" in line for line in caplog.messages)


def test_it_has_the_run_for_itself_as_long_as_it_decodes(finished: Path, tmp_path: Path, monkeypatch) -> None:
    """Under whatever name the folder is given."""
    link = tmp_path / "link"
    link.symlink_to(finished)
    with only_one(finished), pytest.raises(Busy, match="another process is working on this run"):
        predict(link)
    write, taken = predictions.write_predictions, []
    monkeypatch.setattr(
        predictions, "write_predictions", lambda *file: (taken.append(is_taken(finished)), write(*file))
    )
    predict(link)
    assert taken == [True]
    assert not is_taken(finished)


# ---- intervals


def test_an_interval_is_printed_with_its_level() -> None:
    answer = {"question": "what?", "answer": "40", "interval": [0, 465061.2]}
    assert script["as_text"]({**answer, "level": 0.9}) == "what?\n  40, 90% in [0, 465061]"
    assert script["as_text"](answer) == "what?\n  40, central 95% in [0, 465061]"


def held(folder: Path, name: str, level: float) -> tuple[float, float, float]:
    """Coverage and width of the intervals of a predictions file, and the quantile of its validation scores."""
    header, rows = read_predictions(folder / name)
    scores = [math.inf if score is None else score for score in header["calibration"]["scores"]]
    quantile, least = conformal_quantile(scores, level), header["calibration"]["least_spread"]
    half = [quantile * (max(row["sd"], least) if least else 1) for row in rows]
    errors = [abs(float(row["prediction"]) - float(row["answer"])) for row in rows]
    covered = [error <= each * (1 + 1e-12) for error, each in zip(errors, half, strict=True)]
    return sum(covered) / len(covered), 2 * sum(half) / len(half), quantile


@pytest.mark.slow
def test_intervals_of_answers_are_those_that_are_scored(
    copy_of, small, prepared, asked, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(*TRAINED)
    by_number = ["decoding=expectation", "decoding.num_beams=20"]
    # Calibrated once, and kept.
    data = prepared(small(TRAINED[0])) / "test.jsonl"
    question = json.loads(data.read_text().partition("\n")[0])["question"]
    first = asked(question, "--interval", "0.8", model=folder)
    kept = folder / "predictions-greedy-1-calibration.jsonl"
    header, rows = read_predictions(kept)
    assert (len(header["calibration"]["scores"]), rows) == (20, [])
    stamp = kept.stat().st_mtime_ns
    assert asked(question, "--interval", "0.8", model=folder) == first
    assert kept.stat().st_mtime_ns == stamp
    main([str(folder), question, "--interval", "0.8"])
    low, high = first[0]["interval"]
    assert f"{first[0]['answer']}, 80% in [{low:.12g}, {high:.12g}]" in capsys.readouterr().out
    # With the scores of a predictions file, which has those of its own decoding.
    for words, name in (([], "predictions-greedy-1.jsonl"), (by_number, "predictions-expectation-20.jsonl")):
        path = predict(folder, [*words, "decoding.interval_rows=15"])
        assert path.name == name
        metrics, expected = score_predictions(path).metrics, held(folder, name, 0.9)
        assert [metrics["test/coverage_90"], metrics["test/width_90"]] == pytest.approx(expected[:2])
        (line,) = asked(question, "--interval", "0.8", *words, model=folder)
        low, high = line["interval"]
        unit = max(line["sd"], 0.01) if words else 1
        assert line["level"] == 0.8
        assert (low + high) / 2 == pytest.approx(float(line["answer"]))
        assert high - low == pytest.approx(2 * held(folder, name, 0.8)[2] * unit)
    assert (
        read_predictions(folder / "predictions-greedy-1.jsonl")[1] == read_predictions(folder / "predictions.jsonl")[1]
    )


def test_an_interval_that_cannot_be_had_is_one_line(finished: Path, asked) -> None:
    files = sorted(finished.iterdir())
    for level in ("nan", "inf", "0", "1", "-0.5"):
        with pytest.raises(UserError, match=rf"^--interval {float(level)}: the level is above 0 and below 1, such as"):
            asked("what?", "--interval", level, model=finished)
    assert sorted(finished.iterdir()) == files  # no validation answer was decoded for it
    with pytest.raises(UserError, match=r"--interval 0\.99: an interval of level 0\.99 needs 99 validation answers or"):
        asked("what?", "--interval", "0.99", model=finished)
    with pytest.raises(UserError, match=r"--interval 0\.9: too many validation answers have no number"):
        asked("what?", "--interval", "0.9", model=finished)
    with pytest.raises(UserError, match="it is for questions"):
        main([str(finished), "--interval", "0.9"])
    with pytest.raises(UserError, match="without validation answers"):
        asked("what?", "--interval", "0.9", model=finished / "checkpoints" / "checkpoint-12")
