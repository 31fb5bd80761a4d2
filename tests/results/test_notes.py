from dataclasses import replace
from pathlib import Path
from typing import Any

from rows import ACCURACY, MAE, make_row, values
from rows import record as record_of

from ntl.config.folders import CONFIG_DIR
from ntl.results import RunRecord, pack_bits, pack_errors
from ntl.results.notes import MODELS, control_note, example_notes, notes, warnings
from ntl.results.spec import BlockSpec, Role, ScaleSpec
from ntl.results.statistics import bootstrap_difference
from ntl.results.table import Row, Seeds


def test_every_model_has_a_name() -> None:
    files = {path.stem.removesuffix("_regression") for path in (Path(CONFIG_DIR) / "model").glob("*.yaml")}
    assert set(MODELS) == files - {"hf"}  # whose name is made of the weights


def record(loss: str, seed: int, **changes: Any) -> RunRecord:
    config = {"loss": {"name": loss, "weight": 0.3}, "trainer": {"lr": 0.1}, "seed": seed, "device": f"d{seed}"}
    about = {"id": f"{loss}{seed}", "config": config, "git": {"commit": "0123456789", "dirty": False}, "device": "cpu"}
    return record_of(seed, **{**about, **changes})


def remarks(*records: RunRecord, part: ScaleSpec | None = None, note: str = "") -> list[str]:
    """Warnings and notes on CE's and NTL-WAS' records, told apart by the first letter of their id."""
    rows = [
        make_row(label, None, role, group, {"loss": label.lower()}, {r.seed: r for r in records if r.id[0] == letter})
        for letter, label, role, group in (("c", "CE", Role.baseline, ""), ("w", "WAS", Role.ntl, "T5"))
    ]
    columns = [replace(MAE, metric=f"{split}/mae") for split in ("test", "far")]
    scales = {"tiny": part or ScaleSpec(seeds=[1, 2])}
    block = BlockSpec("t", "noisy_numbers", columns, [row.spec for row in rows], scales, note=note)
    return [*warnings(block, "tiny", rows), *notes(block, "tiny", rows)]


ORIGIN = "From 2 run records, commit 0123456, device cpu."


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


def test_different_data_are_named() -> None:
    def reading(loss: str, digest: str, **shares: float) -> RunRecord:
        return record(loss, 1, data={"files": {"train": digest}, "longer_than_train": shares})

    text = "Not a fair comparison: the runs read 2 different versions of the data."
    assert remarks(reading("ce", "a"), reading("was", "b")) == [text, ORIGIN]
    # A record that names no data says nothing of it, and what was measured on the data makes no other data.
    assert remarks(reading("ce", "a"), record("was", 1)) == [ORIGIN]
    longer = "Test examples with more tokens than any that was trained on: far 25% to 50%."
    assert remarks(reading("ce", "a", near=0.0, far=0.5), reading("was", "a", far=0.25)) == [longer, ORIGIN]


ROLES = {"ce": Role.baseline, "ce_digits": Role.control, "ntl_was": Role.ntl, "ntl_mse": Role.ntl}
LEAD = "What the control, which has no distance, gives alone: "


def scored(*scores: Seeds, learnt: list[bool] | None = None) -> list[Row]:
    """The rows of ROLES with these MAE; the accuracy is what is left of 1."""
    found = zip(ROLES.items(), scores, learnt or [None] * len(scores), strict=False)
    return [
        make_row(
            name, {"test/mae": each, "test/accuracy": {s: 1 - (v or 0) for s, v in each.items()}}, role, learnt=known
        )
        for (name, role), each, known in found
    ]


# CE 5, control 4.5, WAS 3, MSE 4 on average; every difference is the same at each seed but for a little.
GAINS = (values(4, 5, 6), values(3.5, 4.5, 5.5), values(2.0, 3.0, 4.1), values(3.0, 4.0, 5.0))


def test_the_share_of_the_control_in_the_largest_gain() -> None:
    assert control_note([MAE], scored(*GAINS)) == [
        f"{LEAD}of the largest gain over ce, MAE: -0.50 of -1.97 (ntl_was), 25%."
    ]
    # A row that has not learnt has no gain to share, and a gain within the spread of the seeds is none.
    assert control_note([MAE], scored(*GAINS, learnt=[False, False, False, True])) == [
        f"{LEAD}of the largest gain over ce, MAE: -0.50 of -1.00 (ntl_mse), 50%."
    ]
    none = f"{LEAD}no NTL row beats a constant answer, so there is no gain to share."
    assert control_note([MAE], scored(*GAINS, learnt=[False] * 4)) == [none]
    within = f"{LEAD}no NTL row gains more over ce than its seeds vary in MAE."
    assert control_note([MAE], scored(*GAINS[:2], values(1, 6, 5), values(5, 6, 7))) == [within]
    assert control_note([MAE], scored(*[values(4, 5)] * 4)) == []  # too few seeds say nothing


def gain_record(seed: int, correct: list[bool], errors: list[float | None], data: str = "a") -> RunRecord:
    packed = {"correct": {"test": pack_bits(correct)}, "errors": {"test": pack_errors(errors)}}
    about = {"metrics": {"test/count": len(correct)}, "data": {"files": {"x": data}}, "ids_sha256": {"test": "0"}}
    return record_of(seed, **packed, **about)


def answered(*records: dict[int, RunRecord]) -> list[Row]:
    """The rows of ROLES with these records by seed."""
    return [
        make_row(name, None, role, records=each) for (name, role), each in zip(ROLES.items(), records, strict=False)
    ]


def test_examples_are_averaged_over_the_seeds_before_they_are_drawn() -> None:
    n = 40
    base, same = ({seed: gain_record(seed, [False] * n, [4.0] * n) for seed in (1, 2)} for _ in range(2))
    # Right in half of the examples at seed 1, in all at seed 2: 0.5 or 1 an example.
    first, second = (
        gain_record(1, [True, False] * (n // 2), [2.0, 4.0] * (n // 2)),
        gain_record(2, [True] * n, [2.0] * n),
    )
    mean, low, high = bootstrap_difference([0.0] * n, [1.0, 0.5] * (n // 2))
    assert mean == 0.75
    right, error = example_notes([ACCURACY, MAE], answered(base, same, {1: first, 2: second}))
    tail = "paired bootstrap of the seeds' mean, which says nothing of other seeds. "
    assert right.startswith(
        f"All 40 test answers: accuracy minus ce, {tail}ntl_was +0.75 [{low:+.2f}, {high:+.2f}]; 1 "
    )
    assert right.endswith("1 row with 0 in the interval.")
    assert error.startswith(f"All 40 test answers: MAE minus ce, {tail}ntl_was -1.50 [")
