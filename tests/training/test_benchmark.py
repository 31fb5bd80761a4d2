"""The comparison runs, compares like with like, and divides the right way round."""

from types import SimpleNamespace
from typing import Any

import pytest

from ntl.config import UserError
from ntl.training import benchmark
from ntl.training.benchmark import Clock, bare, compare, measure, ours


def test_measure_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0])
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: next(times))

    def make(clock: Clock) -> Any:
        # Steps of 5 (warming up), then 1, 2 and 4 seconds.
        return SimpleNamespace(train=lambda: clock.ends.extend([13.0, 18.0, 19.0, 21.0, 25.0]))

    assert measure(make, warm_up=1) == {"first_step_s": 3.0, "step_s": 2.0}


def test_both_sides_train_the_same_batches_to_the_same_loss(small, tmp_path) -> None:
    config = small("loss=ce", "trainer.max_steps=3", "trainer.save_steps=0")
    losses = []
    for side in (ours, bare):
        trainer = side(config, tmp_path)(Clock())
        trainer.train()
        losses.append(trainer.state.log_history[-1]["train_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_compare_reports_what_it_measured() -> None:
    result = compare(
        ["dataset=noisy_numbers", "dataset.train_rows=64", "trainer.batch_size=8", "model.n_embd=8", "device=cpu"],
        steps=6,
        rounds=2,
    )
    assert (result["model"], result["loss"], result["steps"], result["rounds"]) == ("gpt2_tiny", "ntl_was", 6, 2)
    assert all(value > 0 for side in ("examples_per_s", "first_step_s") for value in result[side].values())
    assert 0.05 < result["speed_ratio"] < 20


@pytest.mark.parametrize("option", [["--steps", "2"], ["--rounds", "0"]])
def test_too_little_to_be_measured_is_one_line(option: list[str]) -> None:
    with pytest.raises(UserError, match=f"{' '.join(option)}.*at least 3 steps and 1 round"):
        benchmark.main(option)
