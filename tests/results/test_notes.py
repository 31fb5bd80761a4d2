"""What stands under a table."""

from typing import Any

import pytest

from ntl.results import RunRecord
from ntl.results.match import RowPlan
from ntl.results.notes import notes, warnings
from ntl.results.spec import Better, BlockSpec, ColumnSpec, Role, RowSpec, ScaleSpec

COLUMNS = [ColumnSpec(metric=f"{split}/mae", header="MAE", better=Better.lower) for split in ("test", "far")]
CE = RowPlan(RowSpec(label="CE", role=Role.baseline), ("loss=ce",), {"loss": "ce"}, (1, 2))
WAS = RowPlan(RowSpec(label="WAS", role=Role.ntl, group="T5"), ("loss=was",), {"loss": "was"}, (1, 2))


def block(part: ScaleSpec | None = None, note: str = "") -> BlockSpec:
    scales = {"tiny": part or ScaleSpec(seeds=[1, 2])}
    rows = [CE.row, WAS.row]
    return BlockSpec(title="t", dataset="noisy_numbers", scales=scales, columns=COLUMNS, rows=rows, note=note)


def record(loss: str, seed: int, **changes: Any) -> RunRecord:
    given: dict[str, Any] = {
        "id": f"{loss}{seed}",
        "overrides": [],
        "config": {"loss": {"name": loss, "weight": 0.3}, "trainer": {"lr": 0.1}, "seed": seed, "device": f"d{seed}"},
        "seed": seed,
        "metrics": {},
        "git": {"commit": "0123456789", "dirty": False},
        "device": "cpu",
    }
    return RunRecord(**{**given, **changes})


def remarks(*records: RunRecord, part: ScaleSpec | None = None, note: str = "") -> list[str]:
    """Warnings and notes on CE's and NTL-WAS' records, told apart by the first letter of their id."""
    have = [{r.seed: r for r in records if r.id[0] == letter} for letter in "cw"]
    spec = block(part, note)
    return [*warnings(spec, "tiny", [CE, WAS], have), *notes(spec, "tiny", [CE, WAS], have)]


def test_a_table_without_records_has_only_its_own_notes() -> None:
    assert remarks() == []
    part = ScaleSpec(seeds=[1], note="Of the\n  scale.")
    assert remarks(note="Of the block.", part=part) == ["Of the scale.", "Of the block."]


def test_stand_ins_are_named() -> None:
    part = ScaleSpec(seeds=[1], replace={"model=t5_base": "model=t5_tiny", "loss=a": "loss=b"})
    told = "At scale=tiny t5_tiny stands in for t5_base{}. The paper's numbers are those of the published models."
    assert remarks(part=part) == [told.format("")]
    part.groups = ["T5"]
    assert remarks(part=part) == [told.format("; the other models are left out")]


ORIGIN = "From 2 run records, commit 0123456, device cpu."


def test_origin() -> None:
    assert remarks(record("ce", 1)) == ["From 1 run record, commit 0123456, device cpu."]
    assert remarks(record("ce", 1), record("was", 1)) == [ORIGIN]
    changed = record("was", 1, git={"commit": "abcdef0123", "dirty": True}, device="NVIDIA H200")
    assert remarks(record("ce", 1), changed) == [
        "1 of the 2 records are of a source with uncommitted changes.",
        "From 2 run records, commit 0123456, abcdef0, device NVIDIA H200, cpu.",
    ]
    assert remarks(record("ce", 1, git={}, device="")) == ["From 1 run record, commit unknown, device unknown."]


def unparsable(*shares: tuple[float | None, float | None], loss: str = "ce", split: str = "test") -> list[RunRecord]:
    found = []
    for seed, (share, count) in enumerate(shares, start=1):
        metrics = {f"{split}/unparsable": share, f"{split}/count": count}
        found.append(record(loss, seed, metrics={name: value for name, value in metrics.items() if value is not None}))
    return found


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (unparsable((0.0, 100)), "test: none"),
        (unparsable((0.01, 200), (0.0, 100)), "test: CE 2 of 300"),
        (unparsable((0.1, 10), loss="was"), "test: T5: WAS 1 of 10"),
        (unparsable((0.1, 10)) + unparsable((0.2, 10), loss="was"), "test: CE 1 of 10, T5: WAS 2 of 10"),
        (unparsable((0.1, 10), split="far"), "far: CE 1 of 10"),
        (unparsable((0.29, 100)), "test: CE 29 of 100"),  # 0.29 x 100 is 28.999999999999996
        (unparsable((0.25, None), (0.0, 100)), "test: CE 12.50%"),
    ],
)
def test_unparsable_outputs_are_counted_over_seeds(records: list[RunRecord], expected: str) -> None:
    assert remarks(*records)[0] == f"Unparsable outputs over all seeds: {expected}."


def test_an_unknown_share_is_not_none() -> None:
    assert not remarks(*unparsable((None, 100)))[0].startswith("Unparsable")


def config(record: RunRecord, group: str, **values: Any) -> RunRecord:
    record.config[group] = {**record.config[group], **values}
    return record


UNFAIR = "Not a fair comparison: the runs also differ in {}."


def test_rows_may_differ_in_what_they_pin_and_where_they_ran() -> None:
    assert remarks(record("ce", 1), record("ce", 2), record("was", 1), record("was", 2))[:-1] == []
    # The whole group `loss` is what the rows vary.
    assert remarks(record("ce", 1), config(record("was", 1), "loss", weight=0.5)) == [ORIGIN]


def test_any_other_difference_is_named() -> None:
    faster = config(record("was", 1), "trainer", lr=0.2)
    assert remarks(record("ce", 1), faster) == [UNFAIR.format("trainer.lr"), ORIGIN]
    more = config(config(record("was", 1), "trainer", lr=0.2), "trainer", bf16=True)
    assert remarks(config(record("ce", 1), "trainer", bf16=False), more)[0] == UNFAIR.format("trainer.bf16, trainer.lr")


def test_what_a_head_brings_along_may_differ_between_heads_alone() -> None:
    greedy, beam = record("ce", 1), record("was", 1)
    greedy.config["decoding"], beam.config["decoding"] = {"num_beams": 1}, {"num_beams": 4}
    assert remarks(greedy, beam)[0] == UNFAIR.format("decoding.num_beams")
    greedy.config["model"], beam.config["model"] = {"head": "lm"}, {"head": "regression"}
    assert remarks(greedy, beam)[0] == UNFAIR.format("model.head")


def test_seeds_of_one_row_differ_in_nothing_not_even_in_what_rows_vary() -> None:
    assert remarks(record("ce", 1), config(record("ce", 2), "loss", weight=0.5))[0] == UNFAIR.format("loss.weight")


def test_different_data_are_named() -> None:
    data = [{"files": {"train": digest}, "rows": {"train": 5}} for digest in "ab"]
    told = "Not a fair comparison: the runs read 2 different versions of the data."
    assert remarks(record("ce", 1, data=data[0]), record("was", 1, data=data[1])) == [told, ORIGIN]
    assert remarks(record("ce", 1, data=data[0]), record("was", 1, data=data[0])) == [ORIGIN]
    # Not the order of keys; and a record that names no data says nothing of it.
    turned = dict(reversed(data[0].items()))
    assert remarks(record("ce", 1, data=data[0]), record("was", 1, data=turned)) == [ORIGIN]
    assert remarks(record("ce", 1, data=data[0]), record("was", 1)) == [ORIGIN]


def test_a_seed_may_draw_the_data_too_as_long_as_all_rows_draw_the_same() -> None:
    def drawn(loss: str, seed: int, dataset_seed: int, digest: str) -> RunRecord:
        made = record(loss, seed, data={"files": {"train": digest}, "rows": {"train": 5}})
        made.config["dataset"] = {"name": "noisy_numbers", "seed": dataset_seed}
        return made

    alike = [drawn(loss, seed, seed, f"draw {seed}") for loss in ("ce", "was") for seed in (1, 2)]
    assert remarks(*alike)[:-1] == []
    apart = [drawn("ce", 1, 1, "draw 1"), drawn("was", 1, 2, "draw 2")]
    assert remarks(*apart)[0] == UNFAIR.format("dataset.seed")
    changed = [drawn("ce", 1, 1, "draw 1"), drawn("was", 1, 1, "another")]
    assert remarks(*changed)[0] == "Not a fair comparison: the runs read 2 different versions of the data."


def test_examples_longer_than_any_that_was_trained_on_are_counted_where_records_say_so() -> None:
    def measured(loss: str, **shares: float) -> RunRecord:
        return record(loss, 1, data={"files": {"train": "a"}, "longer_than_train": shares})

    told = "Test examples with more tokens than any that was trained on: "
    assert remarks(measured("ce", near=0.0, far=0.873)) == [f"{told}far 87%.", remarks(record("ce", 1))[0]]
    assert remarks(measured("ce", near=0.01, far=0.5), measured("was", near=0.01, far=0.25)) == [
        f"{told}near 1%, far 25% to 50%.",
        ORIGIN,
    ]
    assert remarks(measured("ce", near=0.0)) == remarks(record("ce", 1))
    # It was measured on the data: no other data than those of a record that lacks it.
    assert remarks(measured("ce", far=0.5), record("was", 1, data={"files": {"train": "a"}})) == [
        f"{told}far 50%.",
        ORIGIN,
    ]
