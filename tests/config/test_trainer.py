"""Lengths in epochs, and what of the training is part of a run's id."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from ntl.config import Config, TrainerConfig, compose, run_id
from ntl.config.trainer import in_steps, is_decoded


def steps(rows: int, processes: int = 1, **settings: float) -> tuple[int, int, int]:
    found = in_steps(TrainerConfig(**settings), rows, processes)  # pyright: ignore[reportArgumentType]
    return found.max_steps, found.eval_steps, found.warmup_steps


def test_epochs_in_steps_by_hand() -> None:
    # 96 rows in batches of 30 are 4 steps, the last of 6 rows; three epochs are three times that.
    assert steps(96, batch_size=30, epochs=3.0, eval_epochs=0.5, warmup_ratio=0.1) == (12, 2, 2)
    assert steps(96, batch_size=16, accumulation_steps=2, epochs=2.5, eval_epochs=1.0) == (8, 3, 0)
    assert steps(96, 2, batch_size=16, epochs=1.0) == (3, 0, 0)
    assert steps(960, batch_size=32, epochs=0.1) == (3, 0, 0)  # 0.1 * 30 is more than 3 in floats
    assert steps(10**7, batch_size=1, epochs=1e-7) == (1, 0, 0)
    assert steps(96, max_steps=50, warmup_ratio=0.5, eval_steps=7) == (50, 7, 25)


@given(rows=st.integers(1, 10**6), batch=st.integers(1, 64), more=st.integers(1, 8), epochs=st.integers(1, 9))
def test_whole_epochs_read_every_row_that_often(rows: int, batch: int, more: int, epochs: int) -> None:
    one, _, _ = steps(rows, batch_size=batch, accumulation_steps=more, epochs=1.0)
    assert (one - 1) * batch * more < rows <= one * batch * more
    assert steps(rows, batch_size=batch, accumulation_steps=more, epochs=float(epochs))[0] == epochs * one


def test_steps_that_follow_from_epochs_are_not_part_of_the_id(composed: Callable[..., Config]) -> None:
    long = composed("trainer.epochs=2", "trainer.eval_epochs=1", "trainer.warmup_ratio=0.1")
    name = run_id(long)
    long.trainer = in_steps(long.trainer, 10_000)
    assert run_id(long) == name != run_id(composed())
    assert name != run_id(composed("trainer.epochs=3", "trainer.eval_epochs=1", "trainer.warmup_ratio=0.1"))


def test_a_number_of_steps_that_is_typed_wins_over_the_epochs_of_a_scale(composed: Callable[..., Config]) -> None:
    words = ["dataset=noisy_numbers", "scale=finetune"]
    assert (composed(*words).trainer.epochs, composed(*words).trainer.warmup_ratio) == (3, 0.1)
    chosen = compose([*words, "trainer.max_steps=0"]).trainer
    assert (chosen.epochs, chosen.max_steps, chosen.eval_epochs) == (0, 0, 1)
    assert compose(["trainer.epochs=2"]).trainer.epochs == 2  # although scale=tiny has a number of steps


def test_a_decoding_that_chooses_the_checkpoint_is_part_of_the_id(composed: Callable[..., Config]) -> None:
    def name(*overrides: str) -> str:
        return run_id(composed("trainer.eval_steps=5", *overrides))

    assert name("trainer.best=accuracy") != name("trainer.best=accuracy", "decoding=beam")
    intervals = "decoding.interval_rows=9", "decoding.interval_scale=log"  # they choose none
    assert name("trainer.best=accuracy") == name("trainer.best=accuracy", *intervals)
    assert name("trainer.best=loss") == name("trainer.best=loss", "decoding=beam") != name()
    assert is_decoded(composed("trainer.eval_steps=5", "trainer.best=mae").trainer)
    assert not is_decoded(composed("trainer.eval_steps=5", "trainer.best=loss").trainer)
