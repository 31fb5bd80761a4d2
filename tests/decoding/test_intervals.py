"""Intervals of a run's answers, and answers that its tokens or decoding cannot write."""

import json
import math
import runpy
from pathlib import Path

import pytest
import torch

from ntl.config import compose
from ntl.decoding.calibration import COLUMNS, calibration, digit_probabilities
from ntl.decoding.predictor import of_run
from ntl.evaluation import read_predictions, write_predictions
from ntl.losses.rows import number_rows
from ntl.numbers import NumberVocabulary
from ntl.results import read_record
from ntl.system.errors import UserError
from ntl.training.train import train

EXTRA = [
    "extra_decodings=expectation",
    "extra_decodings.expectation.num_beams=20",
    "extra_decodings.expectation.interval_rows=12",
]


def test_a_second_reading_and_intervals_leave_all_else_as_it_is(small, finished: Path, tmp_path: Path, caplog) -> None:
    folder = train(small("decoding.interval_rows=15", *EXTRA, f"output_dir={tmp_path / 'with'}")).parent
    assert folder.name == finished.name
    record, plain = (read_record(each / "record.json") for each in (folder, finished))
    assert {name: record.metrics[name] for name in plain.metrics} == plain.metrics
    added = record.metrics.keys() - plain.metrics.keys()
    assert {"test/coverage_90", "test/width_90", "test/coverage_90@expectation", "test/rmse_truth@expectation"} <= added
    # Where a run is read in two ways, validation rows are decoded, too.
    assert all("90" in name or name.endswith("@expectation") or name.startswith("validation/") for name in added)
    assert record.metrics["test/mae@expectation"] != record.metrics["test/mae"]
    covered, represented = (record.metrics[f"test/{name}@expectation"] for name in ("covered", "represented"))
    assert covered is not None
    assert represented is not None
    assert covered < represented < 0.9
    assert f"numbers hold {represented:.3f} of the probability" in caplog.text
    assert list(record.config["extra_decodings"]) == ["expectation"]
    header, rows = read_predictions(folder / "predictions.jsonl")
    assert (len(header["calibration"]["scores"]), {row["split"] for row in rows}) == (15, {"test"})
    assert "interval_rows" not in read_predictions(finished / "predictions.jsonl")[0]["decoding"]


def test_too_few_validation_rows_are_told_before_a_finished_run_is_decoded_again(small, finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(
        UserError, match=r"extra_decodings\.expectation\.interval_rows=8: intervals of 90% need 9 validation"
    ):
        train(small("extra_decodings=expectation", "extra_decodings.expectation.interval_rows=8"))
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path in before} == before


def test_where_questions_repeat_one_row_of_each_calibrates(tmp_path: Path, caplog) -> None:
    given = f"dataset.validation_path={tmp_path / 'v.csv'}", "decoding.interval_rows=30", "trainer.save_steps=1"
    words = told(tmp_path, "1", *given)
    for different in (8, 10):
        rows = "".join(f"is it {n % different};{n}\n" for n in range(5 * different))
        (tmp_path / "v.csv").write_text(f"question;answer\n{rows}")
        if different == 8:
            line = (
                "=30: intervals of 90% need 9 validation answers or more, to different questions, and file has 8; raise"
            )
            with pytest.raises(UserError, match=line):
                train(compose(words))
    folder = train(compose(words)).parent
    said = "validation: 50 rows are of 10 different questions; intervals are from one row of each."
    assert caplog.messages.count(said) == 1
    caplog.clear()
    path = folder / "predictions.jsonl"
    (header, rows) = read_predictions(path)
    assert len(header["calibration"]["scores"]) == 10
    # predict.py does not take scores of all rows, as an older version has left them.
    old = header | {"calibration": {"scores": [0.0] * 50, "least_spread": None}}
    write_predictions(path, old, rows)
    assert len(of_run(folder, intervals=True).calibration.scores) == 10
    assert said not in caplog.messages


@pytest.mark.slow
def test_intervals_by_factors_are_of_answers_above_0_and_advised_once(tmp_path: Path, caplog) -> None:
    given = f"dataset.validation_path={tmp_path / 'v.csv'}", "decoding.interval_rows=30", "extra_decodings=expectation"
    given = (
        *given,
        "extra_decodings.expectation.interval_rows=30",
        "extra_decodings.expectation.num_beams=2",
        "trainer.save_steps=1",
    )
    advice = (
        "validation: answers are from 0.001 to 9; decoding.interval_scale=log "
        "extra_decodings.expectation.interval_scale=log makes intervals relative to the answer.\n"
    )

    def validated(first: str) -> None:
        rows = [first, *map(str, range(1, 10))]
        (tmp_path / "v.csv").write_text("question;answer\n" + "".join(f"is it {row};{row}\n" for row in rows))

    for first, group in (("0", "decoding"), ("-0.5", "extra_decodings.expectation")):
        validated(first)
        line = rf"^{group}\.interval_scale=log: the answer {first} of validation/00000 is not above 0, .*; take"
        with pytest.raises(UserError, match=line):
            train(compose(told(tmp_path, "1", *given, f"{group}.interval_scale=log")))
    assert not [*tmp_path.glob("outputs/**/checkpoint-*")]
    assert "interval_scale" not in caplog.text  # not where answers are not above 0
    validated("0.001")
    folder = train(compose(told(tmp_path, "1", *given))).parent
    assert caplog.text.count(advice) == 1
    header, _ = read_predictions(folder / "predictions.jsonl")
    assert "scale" not in header["calibration"]
    assert "interval_scale" not in header["decoding"]
    # Scores of the other scale are not taken, and both stay.
    kept = folder / "predictions-greedy-1-interval_scale=log-calibration.jsonl"
    for times in (1, 0):
        for scale, decoded in (("log", times), ("linear", 0)):
            loaded = of_run(folder, [f"decoding.interval_scale={scale}"], intervals=True)
            assert loaded.calibration.scale == scale
            assert caplog.text.count("Calibrating") == decoded
            caplog.clear()
    assert read_predictions(kept)[0]["calibration"]["scale"] == "log"
    (folder / "predictions.jsonl").unlink()
    of_run(folder, intervals=True)
    line = advice.replace(" extra_decodings.expectation.interval_scale=log", "")
    assert caplog.text.count(line) == 1


def told(folder: Path, answer: str, *words: str) -> list[str]:
    """A run of one step on a file in which this is every second answer."""
    path = folder / "a.csv"
    path.write_text("question;answer\n" + "".join(f"what is {n};{answer if n % 2 else n}\n" for n in range(40)))
    places = [f"data_dir={folder / 'data'}", f"output_dir={folder / 'outputs'}", "device=cpu", "tracking=none"]
    short = ["trainer.max_steps=1", "trainer.warmup_steps=0", "trainer.save_steps=0", "decoding.max_new_tokens=4"]
    family = [] if words[0].startswith("model") else ["model=gpt2_tiny", "model.n_embd=16", "model.n_layer=1"]
    return ["dataset=file", f"dataset.path={path}", *places, *short, *family, *words]


@pytest.mark.slow
def test_a_decoding_that_rounds_the_answers_is_said(tmp_path: Path, caplog) -> None:
    train(compose(told(tmp_path, "0.0011", "extra_decodings=points")))
    line = "extra_decodings.expectation.decimals=2: it rounds, and answers have up to 4 decimals; raise it."
    assert line in caplog.messages
    assert "median.decimals" not in caplog.text
    train(compose(told(tmp_path, "0.0000000000011", "decoding=expectation", "decoding.decimals=12")))
    line = "decoding.decimals=12: it rounds, and answers have up to 13 decimals; round them in the file, or"
    assert any(line in each for each in caplog.messages)  # it can not be raised


@pytest.mark.parametrize(
    ("words", "answer", "line"),
    [
        (["model=rt_tiny"], "0.0000000000004", "tokenizer=rt: the answer '0.0000000000004' of "),
        (["model=rt_tiny"], "1e-5", "tokenizer=rt: the answer '1e-5' of "),
        (["decoding=expectation"], "-1,234.50", "decoding=expectation: the answer '-1,234.50' of "),
        (["extra_decodings=median"], "1E+05", "extra_decodings.median=median: the answer '1E+05' of "),
    ],
)
@pytest.mark.slow
def test_answers_that_would_be_read_as_others_are_refused(
    words: list[str], answer: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        train(compose(told(tmp_path, answer, *words)))
    assert str(caught.value).startswith(line)
    remedies = ("number_format=auto writes it as digits and a point.", "round it to 12 decimals in the file.")
    assert str(caught.value).endswith(remedies["e" not in answer.lower() and "," not in answer])


# How far the digit distribution is to be believed: hand-computed, and of a trained run.


main = runpy.run_path(str(Path(__file__).resolve().parents[2] / "scripts" / "calibrate.py"))["main"]
DIGITS = NumberVocabulary.from_values([math.nan, *range(10)])


def test_the_calibration_of_digits_by_hand() -> None:
    """Half on 4 and half on 8 where 4 is right; four fifths on 1, a fifth on 2 where 2 is right; text is not read."""
    logits = torch.full((3, 11), -torch.inf)
    logits[0, [5, 9]] = torch.tensor([1.0 + 1e-6, 1.0])
    logits[1, [2, 3]] = torch.tensor([0.8, 0.2]).log()
    logits[:, 0] = 7.0
    found = calibration(number_rows(logits, torch.tensor([5, 3, 0]), DIGITS, -100))
    assert found == pytest.approx(
        {
            "labels": 2,
            "accuracy": 0.5,
            "confidence": (0.5 + 0.8) / 2,
            "ece": (abs(1 - 0.5) + abs(0 - 0.8)) / 2,
            "nll": -(math.log(0.5) + math.log(0.2)) / 2,
            "brier": ((0.25 + 0.25) + (0.64 + 0.64)) / 2,
            "crps": (4 * 0.25 + 0.64) / 2,
        },
        rel=1e-5,
    )


def test_mean_probabilities_by_target_digit() -> None:
    """Twice a 4, once a 2: the rows of the other digits are unknown; whole numbers have no such table."""
    logits = torch.full((4, 11), -torch.inf)
    logits[0, [5, 9]] = torch.tensor([0.5, 0.5]).log()  # the token of digit d is d + 1
    logits[1, [5, 1]] = torch.tensor([0.9, 0.1]).log()
    logits[2, [2, 3]] = torch.tensor([0.8, 0.2]).log()
    logits[:, 0] = 7.0
    found = digit_probabilities(number_rows(logits, torch.tensor([5, 5, 3, 0]), DIGITS, -100))
    assert found is not None
    assert found[4] == pytest.approx([0.05, 0, 0, 0, 0.7, 0, 0, 0, 0.25, 0], abs=1e-5)
    assert found[2] == pytest.approx([0, 0.8, 0.2, *[0] * 7], abs=1e-5)
    assert [row for digit, row in enumerate(found) if digit not in (2, 4)] == [None] * 8
    whole = NumberVocabulary.from_values([math.nan, *range(0, 100, 10)])
    assert digit_probabilities(number_rows(logits, torch.tensor([5, 5, 3, 0]), whole, -100)) is None


def test_the_calibration_of_a_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over all number labels of the test set, whatever the batches."""
    assert main([finished.name, "--outputs", str(finished.parent), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)[finished.name]["test"]
    assert tuple(scores) == (*COLUMNS, "digits")
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in scores["digits"] if row)
    assert 30 <= scores["labels"] <= 60  # thirty answers of one or two digits
    assert 0 <= scores["ece"] <= 1 < scores["nll"] < 4
    assert main([str(finished)]) == 0
    line = capsys.readouterr().out
    assert f"test  labels {scores['labels']}  accuracy {scores['accuracy']:.5g}  " in line
