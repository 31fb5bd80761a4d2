"""Intervals of a run's answers, and answers that its tokens or decoding cannot write."""

import json
import math
import runpy
from pathlib import Path

import pytest

from ntl.config import compose
from ntl.evaluation import read_predictions, score_predictions
from ntl.evaluation.interval import conformal_quantile
from ntl.results import read_record
from ntl.system.errors import UserError
from ntl.training.predictor import predict
from ntl.training.train import train

main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "predict.py"))["main"]
TRAINED = ["dataset.noise_sd=0", "trainer.max_steps=200", "trainer.lr=1e-2"]
BESIDE = ["beside=expectation", "beside.expectation.num_beams=20", "beside.expectation.interval_rows=12"]


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]):
    """``asked(folder, *words)``: the objects that are printed as JSON lines."""

    def ask(folder: Path, *words: str) -> list[dict]:
        capsys.readouterr()
        main([str(folder), *words, "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return ask


def test_a_run_scores_its_intervals_and_leaves_all_else_as_it_is(small, finished: Path, tmp_path: Path) -> None:
    folder = train(small("decoding.interval_rows=15", *BESIDE, f"output_dir={tmp_path / 'with'}")).parent
    assert folder.name == finished.name
    record, plain = (read_record(each / "record.json") for each in (folder, finished))
    assert {name: record.metrics[name] for name in plain.metrics} == plain.metrics
    added = record.metrics.keys() - plain.metrics.keys()
    assert {"test/coverage_90", "test/width_90", "test/coverage_90@expectation"} <= added
    assert all("90" in name or name.endswith("@expectation") for name in added)
    header, rows = read_predictions(folder / "predictions.jsonl")
    assert (len(header["calibration"]["scores"]), {row["split"] for row in rows}) == (15, {"test"})
    assert "interval_rows" not in read_predictions(finished / "predictions.jsonl")[0]["decoding"]


def held(folder: Path, name: str, level: float) -> tuple[float, float, float]:
    """Coverage and width of the intervals of a predictions file, and the quantile of its validation scores."""
    header, rows = read_predictions(folder / name)
    scores = [math.inf if score is None else score for score in header["calibration"]["scores"]]
    quantile, least = conformal_quantile(scores, level), header["calibration"]["least_spread"]
    half = [quantile * (max(row["sd"], least) if least else 1) for row in rows]
    errors = [abs(float(row["prediction"]) - float(row["answer"])) for row in rows]
    covered = [error <= each * (1 + 1e-12) for error, each in zip(errors, half, strict=True)]
    return sum(covered) / len(covered), 2 * sum(half) / len(half), quantile


def test_intervals_of_answers_are_those_that_are_scored(
    copy_of, small, prepared, asked, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(*TRAINED)
    by_number = ["decoding=expectation", "decoding.num_beams=20"]
    # Calibrated once, and kept.
    data = prepared(small(TRAINED[0])) / "test.jsonl"
    question = json.loads(data.read_text().partition("\n")[0])["question"]
    first = asked(folder, question, "--interval", "0.8")
    kept = folder / "predictions-greedy-1-calibration.jsonl"
    header, rows = read_predictions(kept)
    assert (len(header["calibration"]["scores"]), rows) == (20, [])
    stamp = kept.stat().st_mtime_ns
    assert asked(folder, question, "--interval", "0.8") == first
    assert kept.stat().st_mtime_ns == stamp
    main([str(folder), question, "--interval", "0.8"])
    low, high = first[0]["interval"]
    assert f"{first[0]['answer']} [{low:.12g}, {high:.12g}]" in capsys.readouterr().out
    # With the scores of a predictions file, which has those of its own decoding.
    for words, name in (([], "predictions-greedy-1.jsonl"), (by_number, "predictions-expectation-20.jsonl")):
        path = predict(folder, [*words, "decoding.interval_rows=15"], say=[].append)
        assert path.name == name
        metrics, expected = score_predictions(path).metrics, held(folder, name, 0.9)
        assert [metrics["test/coverage_90"], metrics["test/width_90"]] == pytest.approx(expected[:2])
        (line,) = asked(folder, question, "--interval", "0.8", *words)
        low, high = line["interval"]
        unit = max(line["sd"], 0.01) if words else 1
        assert line["level"] == 0.8
        assert (low + high) / 2 == pytest.approx(float(line["answer"]))
        assert high - low == pytest.approx(2 * held(folder, name, 0.8)[2] * unit)
    assert (
        read_predictions(folder / "predictions-greedy-1.jsonl")[1] == read_predictions(folder / "predictions.jsonl")[1]
    )


def test_an_interval_that_cannot_be_had_is_one_line(finished: Path, asked) -> None:
    with pytest.raises(UserError, match=r"--interval 0\.99: an interval of level 0\.99 needs 99 validation answers or"):
        asked(finished, "what?", "--interval", "0.99")
    with pytest.raises(UserError, match=r"--interval 0\.9: too many validation answers have no number"):
        asked(finished, "what?", "--interval", "0.9")
    with pytest.raises(UserError, match="it is for questions"):
        main([str(finished), "--interval", "0.9"])
    with pytest.raises(UserError, match="without validation answers"):
        asked(finished / "checkpoints" / "checkpoint-12", "what?", "--interval", "0.9")


def test_too_few_validation_rows_are_told_before_training(small) -> None:
    with pytest.raises(UserError, match=r"decoding\.interval_rows=8: intervals of 90% need 9 validation answers"):
        train(small("decoding.interval_rows=8"))
    with pytest.raises(UserError, match=r"decoding\.interval_rows=10 dataset=multirc: only numbers have intervals"):
        compose(["dataset=multirc", "decoding.interval_rows=10"])


@pytest.mark.parametrize(
    ("words", "answer", "line"),
    [
        (["model=rt_tiny"], "0.0000000000004", "tokenizer=rt: the answer '0.0000000000004' of "),
        (["model=rt_tiny"], "1e-5", "tokenizer=rt: the answer '1e-5' of "),
        (["decoding=expectation"], "-1,234.50", "decoding=expectation: the answer '-1,234.50' of "),
        (["beside=median"], "1E+05", "beside.median=median: the answer '1E+05' of "),
    ],
)
def test_answers_that_would_be_read_as_others_are_refused(
    words: list[str], answer: str, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question;answer\n" + "".join(f"what is {n};{answer if n % 2 else n}\n" for n in range(40)))
    places = [f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / 'outputs'}", "device=cpu", "tracking=none"]
    short = ["trainer.max_steps=1", "trainer.warmup_steps=0", "trainer.save_steps=0", "decoding.max_new_tokens=4"]
    family = [] if words[0].startswith("model") else ["model=gpt2_tiny", "model.n_embd=16", "model.n_layer=1"]
    command = ["dataset=file", f"dataset.path={path}", *places, *short, *family, *words]
    with pytest.raises(UserError) as caught:
        train(compose(command))
    assert str(caught.value).startswith(line)
    remedies = ("number_format=auto writes it as digits and a point.", "round it to 12 decimals in the file.")
    assert str(caught.value).endswith(remedies["e" not in answer.lower() and "," not in answer])
