from dataclasses import replace
from pathlib import Path
from typing import Any

from rows import MAE, make_row
from rows import record as record_of

from ntl.config.folders import CONFIG_DIR
from ntl.results import RunRecord
from ntl.results.spec import BlockSpec, Role, ScaleSpec
from ntl.results.table import MODELS, warnings


def test_every_model_has_a_name() -> None:
    files = {path.stem.removesuffix("_regression") for path in (Path(CONFIG_DIR) / "model").glob("*.yaml")}
    assert set(MODELS) == files - {"hf"}  # whose name is made of the weights


def record(loss: str, seed: int, **changes: Any) -> RunRecord:
    config = {"loss": {"name": loss, "weight": 0.3}, "trainer": {"lr": 0.1}, "seed": seed, "device": f"d{seed}"}
    about = {"id": f"{loss}{seed}", "config": config, "git": {"commit": "0123456789", "dirty": False}, "device": "cpu"}
    return record_of(seed, **{**about, **changes})


def remarks(*records: RunRecord) -> list[str]:
    """Warnings on CE's and NTL-WAS' records, told apart by the first letter of their id."""
    rows = [
        make_row(label, None, role, group, {"loss": label.lower()}, {r.seed: r for r in records if r.id[0] == letter})
        for letter, label, role, group in (("c", "CE", Role.baseline, ""), ("w", "WAS", Role.ntl, "T5"))
    ]
    columns = [replace(MAE, metric=f"{split}/mae") for split in ("test", "far")]
    block = BlockSpec("t", "noisy_numbers", columns, [row.spec for row in rows], {"tiny": ScaleSpec(seeds=[1, 2])})
    return [*warnings(block, "tiny", rows)]


def config(record: RunRecord, group: str, **values: Any) -> RunRecord:
    record.config[group] = {**record.config.get(group, {}), **values}
    return record


UNFAIR = "Not a fair comparison: the runs also differ in {}."


def test_rows_may_differ_in_what_they_pin_and_any_other_difference_is_named() -> None:
    # The whole group `loss` is what the rows vary.
    assert remarks(record("ce", 1), config(record("was", 1), "loss", weight=0.5)) == []
    more = config(record("was", 1), "trainer", lr=0.2, bf16=True)
    assert remarks(config(record("ce", 1), "trainer", bf16=False), more)[0] == UNFAIR.format("trainer.bf16, trainer.lr")


def test_a_tokenizer_that_differs_from_seed_to_seed_is_compared_within_a_seed() -> None:
    runs = [record(loss, seed) for loss in ("ce", "was") for seed in (1, 2)]
    runs = [config(run, "tokenizer", path=f"sha256:{run.seed}") for run in runs]
    assert remarks(*runs) == []
    assert remarks(*runs[:-1], config(runs[-1], "tokenizer", path="sha256:1"))[0] == UNFAIR.format("tokenizer.path")


def test_an_objective_that_a_loss_brings_is_compared_among_runs_of_that_loss() -> None:
    own = {"name": "expected_error", "families": "number"}
    brought = config(config(record("was", 1), "objective", **own), "loss", name="expected_error")
    plain = config(record("ce", 1), "objective", name="ntp", families="all")
    assert remarks(plain, brought) == []
    other = config(record("was", 1), "objective", **own)
    assert remarks(plain, other)[0] == UNFAIR.format("objective.families, objective.name")


def test_a_seed_whose_rows_ran_on_two_processors_is_named() -> None:
    runs = [{1: record("ce", 1), 2: record("ce", 2)}, {1: record("was", 1, device="gpu"), 2: record("was", 2)}]
    rows = [make_row(label, group="T5", records=each) for label, each in zip(("CE", "WAS"), runs, strict=True)]
    block = BlockSpec("t", "noisy_numbers", [MAE], [row.spec for row in rows], {"tiny": ScaleSpec(seeds=[1, 2])})
    assert "Not all rows of seed 1 ran on the same kind of processor." in warnings(block, "tiny", rows)


def test_different_rules_of_answers_are_named() -> None:
    one, two, three, four = ({"default": version, "paper": 1} for version in (1, 2, 3, 4))
    assert remarks(record("ce", 1, rules=two), record("was", 1, rules=three)) == []
    line = "Not a fair comparison: 2 versions of the rules read the answers."
    assert remarks(record("ce", 1, rules=one), record("was", 1, rules=four)) == [line]
    alike = "Two versions of the rules read the answers: numerals alike, fractions and other notations not."
    assert remarks(record("ce", 1, rules=three), record("was", 1, rules=four)) == [alike]


def test_different_data_are_named() -> None:
    def reading(loss: str, digest: str, **shares: float) -> RunRecord:
        return record(loss, 1, data={"files": {"train": digest}, "longer_than_train": shares})

    text = "Not a fair comparison: the runs read 2 different versions of the data."
    assert remarks(reading("ce", "a"), reading("was", "b")) == [text]
    # A record that names no data says nothing of it, and what was measured on the data makes no other data.
    assert remarks(reading("ce", "a"), record("was", 1)) == []
    longer = "Test examples with more tokens than any that was trained on: far 25% to 50%."
    assert remarks(reading("ce", "a", near=0.0, far=0.5), reading("was", "a", far=0.25)) == [longer]
