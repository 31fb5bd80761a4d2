"""Several ways to read one model: which one a run takes, and what it is told of all."""

from pathlib import Path
from typing import Any

import pytest

from ntl.evaluation.scores import Scores
from ntl.results import read_record
from ntl.results.readings import compare_readings
from ntl.training import readings
from ntl.training.predictor import run_config
from ntl.training.readings import choose_reading
from ntl.training.train import train


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        (
            {"greedy": (2.0, 0.0), "digit_median": (1.5, 0.0), "median": (1.25, 0.0), "expectation": (1.5, 0.0)},
            "median",
        ),
        ({"greedy": (1.5, 0.0), "digit_median": (1.5, 0.0), "median": (2.0, 0.0), "expectation": (1.5, 0.0)}, "greedy"),
        # Half of its answers are no numbers, and count as the median of training, 8: 0.5 · 1 + 0.5 · 8 = 4.5.
        (
            {"greedy": (1.0, 0.5), "digit_median": (4.0, 0.0), "median": (5.0, 0.0), "expectation": (9.0, 0.0)},
            "digit_median",
        ),
        (
            {
                "greedy": (float("nan"), 1.0),
                "digit_median": (7.0, 0.0),
                "median": (9.0, 0.0),
                "expectation": (9.0, 0.0),
            },
            "digit_median",
        ),
    ],
)
def test_the_least_error_of_validation_is_taken(
    parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: dict[str, tuple[float, float]], best: str
) -> None:
    made = parts("decoding=auto", "beside=readings")

    def scored(parts: Any, splits: list[str], path: Path, decoding: Any, searches: Any) -> Scores:
        error, unparsable = errors[decoding.name]
        assert splits == ["validation"]
        known = {"mae": error, "mae:median": 8.0, "unparsable": unparsable}
        return Scores({f"validation/{name}": value for name, value in known.items()})

    monkeypatch.setattr(readings, "decode_splits", scored)
    choose_reading(made, tmp_path, {})
    assert made.config.decoding.name == best
    assert made.readings["digit_median"] == errors["digit_median"][0]
    assert ("greedy" in made.config.beside) == (best != "greedy")


def test_a_run_is_scored_by_what_it_chose(small, capsys: pytest.CaptureFixture[str]) -> None:
    """The record has all readings, and predict.py reads as the run did."""
    path = train(small("decoding=auto", "beside=readings", "trainer.max_steps=40"))
    record, printed = read_record(path), capsys.readouterr().out
    found = record.model["readings"]
    best = min(found, key=found.__getitem__)
    assert list(found) == ["greedy", "digit_median", "median", "expectation"]
    assert (record.config["decoding"]["name"], run_config(path.parent).decoding.name) == (best, best)
    others = {"digit_median", "median", "expectation", *(["greedy"] if best != "greedy" else [])}
    assert {*record.config["beside"]} == others
    assert {key for key in record.errors if key.startswith("test")} == {"test", *(f"test@{name}" for name in others)}
    assert f"decoding=auto: {best.replace('_', ' ')}, by the MAE of validation: greedy " in printed
    table = compare_readings(["loss=ntl_was"], [record])
    assert "\n".join(table) in printed
    greedy, median = record.metrics[f"test/mae{'@greedy' * (best != 'greedy')}"], record.metrics["test/mae@median"]
    assert table[2].split() == ["greedy", "digit", "median", "median", "expectation"]
    assert greedy is not None
    assert median is not None
    assert [float(word) for word in table[3].split()[1:4:2]] == pytest.approx([greedy, median], abs=0.0006)
