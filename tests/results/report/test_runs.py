"""The list of runs and the data behind it."""

import re
from collections.abc import Callable

import pytest
from pages import chapter

from ntl.results import RunRecord, load_records
from ntl.results.report.make_report import RESULTS
from ntl.results.report.runs import COLUMNS, details, listed, other_settings, page_data


def test_the_values_of_a_run(arithmetic_record: Callable[..., RunRecord]) -> None:
    metrics = {"validation/accuracy": 0.9, "interpolate/accuracy": 0.5, "interpolate/mae": None, "extrapolate/mae": 2.0}
    record = arithmetic_record("ntl_was", 3, metrics, steps=900, wall_time_s=12.5)
    shown = dict(zip(COLUMNS, listed(record, "σ = 2").values, strict=True))
    assert shown == {
        "dataset": "arithmetic",
        "model": "llama_tiny",
        "tokenizer": "digit",
        "loss": "ntl_was",
        "λ": 0.3,
        "other settings": "σ = 2",
        "scale": "tiny",
        "seed": 3,
        "steps": 900,
        "time (s)": 12.5,
        "accuracy": 0.5,
        "MAE": None,
    }


def test_a_loss_without_number_term_has_no_weight(arithmetic_record: Callable[..., RunRecord]) -> None:
    assert listed(arithmetic_record("ce", 1, {})).values[4] is None


def configured(make: Callable[..., RunRecord], loss: str, seed: int, name: str, **settings: object) -> RunRecord:
    """A run whose resolved config has these settings, ``__`` for a dot."""
    record = make(loss, seed, {}, id=name)
    for key, value in settings.items():
        node = record.config
        *groups, last = key.split("__")
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return record


def test_settings_that_differ_are_told(arithmetic_record: Callable[..., RunRecord]) -> None:
    records = [
        configured(
            arithmetic_record,
            "gce_ntl_was",
            seed,
            f"{sigma}-{seed}",
            loss__weight=0.3 if seed == 1 else 0.8,
            loss__base__options__sigma=sigma,
            loss__number__options__sigma=sigma,
            trainer__lr=1e-4,
            dataset__seed=seed,
        )
        for sigma in (1.0, 0.5)
        for seed in (1, 2)
    ]
    # λ has its column, a data set that the run's seed draws is no setting, what all share is none either.
    expected = {"1.0-1": "σ = 1", "1.0-2": "σ = 1", "0.5-1": "σ = 0.5", "0.5-2": "σ = 0.5"}
    assert other_settings(records) == expected
    apart = configured(
        arithmetic_record, "gce_ntl_was", 3, "apart", loss__base__options__sigma=1.0, loss__number__options__sigma=2.0
    )
    found = other_settings([*records, apart])
    assert found["apart"] == "loss.base.options.sigma = 1, loss.number.options.sigma = 2"
    assert listed(records[0], "σ = 1").searched == "1.0-1 loss=gce_ntl_was seed=1 σ = 1"


def test_runs_of_other_losses_or_scales_are_not_compared(arithmetic_record: Callable[..., RunRecord]) -> None:
    records = [
        configured(arithmetic_record, "ce", 1, "a", trainer__lr=1e-4),
        configured(arithmetic_record, "ntl_was", 1, "b", trainer__lr=2e-4),
        configured(arithmetic_record, "ce", 1, "c", trainer__lr=2e-4, scale__name="small"),
    ]
    assert other_settings(records) == {"a": "", "b": "", "c": ""}


def test_two_lines_never_look_the_same(arithmetic_record: Callable[..., RunRecord]) -> None:
    old = configured(arithmetic_record, "ce", 1, "old")
    new = configured(arithmetic_record, "ce", 1, "new", trainer__smoothing=0.1)
    other = configured(arithmetic_record, "ce", 2, "other", trainer__smoothing=0.1)
    # A setting that a record lacks is younger than it; it is told only where seeds do not tell the runs apart.
    assert other_settings([old, other]) == {"old": "", "other": ""}
    assert other_settings([old, new]) == {"old": "", "new": "smoothing = 0.1"}
    unused = [configured(arithmetic_record, "ce", 1, f"{weight}", loss__weight=weight) for weight in (0.3, 0.8)]
    assert other_settings(unused) == {"0.3": "weight = 0.3", "0.8": "weight = 0.8"}


@pytest.mark.slow
def test_no_two_published_runs_look_the_same() -> None:
    records = load_records([RESULTS / "runs"])
    settings = other_settings(records)
    about = len(COLUMNS) - 3  # without what was measured: time, accuracy, MAE
    lines = [tuple(listed(record, settings[record.id]).values[:about]) for record in records]
    assert len(set(lines)) == len(records)


def test_no_folder_of_a_machine(arithmetic_record: Callable[..., RunRecord]) -> None:
    record = arithmetic_record(
        "ce",
        1,
        {"test/mae": 1.0},
        overrides=["model.path=/data/weights/t5", "seed=1"],
        data={"files": ["C:\\Users\\me\\train.csv", "google/t5"]},
    )
    record.config["model"]["path"] = "/data/weights/t5"
    found = details(record)
    assert found["overrides"] == ["model.path=…/t5", "seed=1"]
    assert found["config"]["model.path"] == "…/t5"
    assert found["about"]["data.files"] == ["…/train.csv", "google/t5"]
    assert found["metrics"] == {"test/mae": 1.0}
    assert "/data" not in chapter("runs", [record])


def test_details_have_steps_and_values_of_curves_in_four_digits(arithmetic_record: Callable[..., RunRecord]) -> None:
    curves = {"ce": [[100000, 1.23456], [100001, None], [100002, 0.000123456]]}
    found = details(arithmetic_record("ce", 1, {}, curves=curves))
    assert found["curves"] == {"ce": {"steps": [100000, 100001, 100002], "values": [1.235, None, 0.0001235]}}


def test_details_leave_the_packed_answers_out(arithmetic_record: Callable[..., RunRecord]) -> None:
    curves = {"ce": [[1, 2.0]]}
    record = arithmetic_record("ce", 1, {"test/mae": float("nan")}, correct={"test": "z:1"}, curves=curves)
    found = details(record)
    assert set(found) == {"overrides", "metrics", "curves", "config", "about"}
    assert found["metrics"] == {"test/mae": None}
    assert found["curves"] == {"ce": {"steps": [1], "values": [2.0]}}
    assert found["config"]["loss.name"] == "ce"
    assert found["about"]["git.commit"] == "0123456789"


def test_settings_that_most_runs_have_are_in_the_page_once(arithmetic_record: Callable[..., RunRecord]) -> None:
    runs = [configured(arithmetic_record, "ce", seed, f"run{seed}", trainer__lr=1e-4) for seed in (1, 2, 3)]
    runs.append(configured(arithmetic_record, "ntl_was", 1, "other", trainer__lr=2e-4, trainer__smoothing=0.1))
    del runs[1].config["loss"]["weight"]
    data = page_data(runs)
    assert data["config"]["trainer.lr"] == 1e-4
    assert data["runs"]["run1"]["config"].keys() & data["config"].keys() == set()
    assert data["runs"]["run2"]["lacks"] == ["loss.weight"]
    for run in runs:
        found = data["runs"][run.id]
        whole = data["config"] | found["config"]
        assert {key: whole[key] for key in whole if key not in found["lacks"]} == details(run)["config"]


def test_the_list_sorts_by_values_and_searches_words(some_records: list[RunRecord]) -> None:
    text = chapter("runs", some_records)
    assert text.count('<tbody class="run"') == len(some_records)
    assert re.findall(r'<th scope="col" aria-sort="none"[^>]*><button type="button">([^<]+)<', text) == list(COLUMNS)
    assert 'data-text="arithmetic-ce-s1 loss=ce seed=1"' in text
    assert '<td class="number" data-value="0.31">0.31</td>' in text
    assert '<td class="number" data-value="">-</td>' in text
    assert "<script" not in text
