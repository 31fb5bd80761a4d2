"""The control's share of a gain, and the bootstrap over test examples, on values made by hand."""

from typing import Any

import pytest

from ntl.results import RunRecord, bootstrap_difference, pack_bits, pack_errors
from ntl.results.match import RowPlan
from ntl.results.notes import control_note, example_notes
from ntl.results.spec import Better, ColumnSpec, Role, RowSpec

MAE = ColumnSpec(metric="test/mae", header="MAE", better=Better.lower, format=".2f")
ACCURACY = ColumnSpec(metric="test/accuracy", header="accuracy", better=Better.higher, format=".2f")
ROLES = {"ce": Role.baseline, "ce_digits": Role.control, "ntl_was": Role.ntl, "ntl_mse": Role.ntl}
PLANS = [RowPlan(RowSpec(label=name, role=role), (f"loss={name}",), {}, (1, 2, 3)) for name, role in ROLES.items()]


def line(*values: float | None) -> dict[str, dict[int, float | None]]:
    return {"test/mae": dict(enumerate(values, 1)), "test/accuracy": dict(enumerate([1 - (v or 0) for v in values], 1))}


LEAD = "What the control, which has no distance, gives alone: "


def test_the_control_gives_a_quarter_of_the_largest_gain() -> None:
    """CE 5, control 4.5, WAS 3, MSE 4 on average; every difference is the same at each seed but for a little."""
    grid = [line(4, 5, 6), line(3.5, 4.5, 5.5), line(2.0, 3.0, 4.1), line(3.0, 4.0, 5.0)]
    note = control_note([MAE], PLANS, grid)
    assert note == f"{LEAD}of the largest gain over ce, MAE: -0.50 of -1.97 (ntl_was), 25%."
    assert "accuracy: +0.50 of +1.97 (ntl_was), 25%" in control_note([ACCURACY], PLANS, grid)


def test_a_row_that_has_not_learnt_has_no_gain_to_share() -> None:
    grid = [line(4, 5, 6), line(3.5, 4.5, 5.5), line(2.0, 3.0, 4.1), line(3.0, 4.0, 5.0)]
    part = control_note([MAE], PLANS, grid, [False, False, False, True])
    assert part == f"{LEAD}of the largest gain over ce, MAE: -0.50 of -1.00 (ntl_mse), 50%."
    none = control_note([MAE], PLANS, grid, [False] * 4)
    assert none == f"{LEAD}no NTL row beats a constant answer, so there is no gain to share."


def test_a_gain_is_over_the_row_of_the_same_tokenizer() -> None:
    """Stock CE 9, digit CE 5, control 4.5, digit WAS 3: over stock CE the control would have 75%."""
    roles = [Role.baseline, Role.other, Role.control, Role.ntl]
    labels = ["stock CE", "digit CE", "control", "digit WAS"]
    pins = [{"tokenizer": name.split()[0], "loss": name} for name in ("default a", "digit b", "digit c", "digit d")]
    plans = [
        RowPlan(RowSpec(label=label, role=role), ("x",), pin, (1, 2, 3))
        for label, role, pin in zip(labels, roles, pins, strict=True)
    ]
    grid = [line(8, 9, 10), line(4, 5, 6), line(3.5, 4.5, 5.5), line(2.0, 3.0, 4.1)]
    note = control_note([MAE], plans, grid)
    assert note == f"{LEAD}of the largest gain over digit CE, MAE: -0.50 of -1.97 (digit WAS), 25%."


def test_a_gain_within_the_spread_of_the_seeds_is_none() -> None:
    grid = [line(4, 5, 6), line(3.5, 4.5, 5.5), line(1, 6, 5), line(5, 6, 7)]
    assert control_note([MAE], PLANS, grid) == f"{LEAD}no NTL row gains more over ce than its seeds vary in MAE."


@pytest.mark.parametrize("grid", [[line(4, 5)] * 4, [line()] * 4])
def test_too_few_seeds_say_nothing(grid: Any) -> None:
    assert control_note([MAE], PLANS, grid) == ""
    assert control_note([MAE], PLANS[:1], grid[:1]) == ""


def record(seed: int, correct: list[bool], errors: list[float | None], data: str = "a") -> RunRecord:
    metrics: dict[str, float | None] = {"test/count": len(correct)}
    return RunRecord(
        id=f"r{seed}",
        overrides=[],
        config={},
        seed=seed,
        metrics=metrics,
        data={"files": {"x": data}},
        correct={"test": pack_bits(correct)},
        errors={"test": pack_errors(errors)},
        ids_sha256={"test": "0"},
    )


def test_examples_are_averaged_over_the_seeds_before_they_are_drawn() -> None:
    n = 40
    base = {seed: record(seed, [False] * n, [4.0] * n) for seed in (1, 2)}
    # Right in half of the examples at seed 1, in all at seed 2: 0.5 or 1 an example.
    better = {
        1: record(1, [True, False] * (n // 2), [2.0, 4.0] * (n // 2)),
        2: record(2, [True] * n, [2.0] * n),
    }
    same = {seed: record(seed, [False] * n, [4.0] * n) for seed in (1, 2)}
    mean, low, high = bootstrap_difference([0.0] * n, [1.0, 0.5] * (n // 2))
    assert mean == 0.75
    right, error = example_notes([ACCURACY, MAE], PLANS[:3], [base, same, better])
    tail = "paired bootstrap of the seeds' mean, which says nothing of other seeds. "
    assert right.startswith(
        f"All 40 test answers: accuracy minus ce, {tail}ntl_was +0.75 [{low:+.2f}, {high:+.2f}]; 1 "
    )
    assert right.endswith("1 row with 0 in the interval.")
    assert error.startswith(f"All 40 test answers: MAE minus ce, {tail}ntl_was -1.50 [")


def test_a_note_on_a_sample_of_the_answers_says_so_in_its_first_words() -> None:
    sampled = [{1: record(1, [True] * 8, [error] * 4)} for error in (4.0, 2.0)]
    right, error = example_notes([ACCURACY, MAE], PLANS[:2], sampled)
    assert right.startswith("All 8 test answers: accuracy")
    assert error.startswith("Only 4 of the 8 test answers, as the records keep the errors of no more; ")


def test_an_unanswered_example_is_left_out_on_both_sides() -> None:
    base = {1: record(1, [False] * 4, [4.0, 4.0, None, 4.0])}
    other = {1: record(1, [False] * 4, [2.0, 2.0, 2.0, None])}
    (note,) = example_notes([MAE], PLANS[:2], [base, other])
    assert "ce_digits -2.00 [-2.00, -2.00]" in note


def test_other_data_at_another_seed_is_no_comparison() -> None:
    base = {seed: record(seed, [False] * 4, [4.0] * 4, str(seed)) for seed in (1, 2)}
    other = {seed: record(seed, [True] * 4, [2.0] * 4, str(seed)) for seed in (1, 2)}
    assert example_notes([MAE, ACCURACY], PLANS[:2], [base, other]) == []
    assert example_notes([MAE], PLANS[:2], [base, {}]) == []
    same = [{seed: record(seed, [True] * 4, [error] * 4) for seed in (1, 2)} for error in (4.0, 2.0)]
    same[1][2].data["longer_than_train"] = {"test": 0.5}  # measured on the data, and no other data
    assert len(example_notes([MAE], PLANS[:2], same)) == 1
