"""The list of runs and the data behind it."""

import re
from collections.abc import Callable

from ntl.results import RunRecord
from ntl.results.report.runs import COLUMNS, details, section, values


def test_the_values_of_a_run(arithmetic_record: Callable[..., RunRecord]) -> None:
    metrics = {"validation/accuracy": 0.9, "interpolate/accuracy": 0.5, "interpolate/mae": None, "extrapolate/mae": 2.0}
    record = arithmetic_record("ntl_was", 3, metrics, steps=900, wall_time_s=12.5)
    shown = dict(zip(COLUMNS, values(record), strict=True))
    assert shown == {
        "dataset": "arithmetic",
        "model": "gpt2_tiny",
        "tokenizer": "digit",
        "loss": "ntl_was",
        "weight": 0.3,
        "scale": "tiny",
        "seed": 3,
        "steps": 900,
        "time (s)": 12.5,
        "accuracy": 0.5,
        "MAE": None,
    }


def test_a_loss_without_number_term_has_no_weight(arithmetic_record: Callable[..., RunRecord]) -> None:
    assert values(arithmetic_record("ce", 1, {}))[4] is None


def test_details_leave_the_packed_answers_out(arithmetic_record: Callable[..., RunRecord]) -> None:
    curves = {"ce": [[1, 2.0]]}
    record = arithmetic_record("ce", 1, {"test/mae": float("nan")}, correct={"test": "z:1"}, curves=curves)
    found = details(record)
    assert set(found) == {"overrides", "metrics", "curves", "config", "about"}
    assert found["metrics"] == {"test/mae": None}
    assert found["curves"] == curves
    assert found["config"]["loss.name"] == "ce"
    assert found["about"]["git.commit"] == "0123456789"


def test_the_list_sorts_by_values_and_searches_words(some_records: list[RunRecord]) -> None:
    text = section(some_records)
    assert text.count('<tbody class="run"') == len(some_records)
    assert re.findall(r'<th scope="col" aria-sort="none"[^>]*><button type="button">([^<]+)<', text) == list(COLUMNS)
    assert 'data-text="arithmetic-ce-s1 loss=ce seed=1"' in text
    assert '<td class="number" data-value="0.31">0.31</td>' in text
    assert '<td class="number" data-value="">-</td>' in text
    assert "<script" not in text
