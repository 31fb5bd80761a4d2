"""Lengths in epochs, and the settings of a training that exclude each other."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntl.config import Config, TrainerConfig, UserError, compose, run_id
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
    assert steps(96, max_steps=50, eval_steps=7, warmup_steps=3) == (50, 7, 3)
    assert steps(96, max_steps=50, warmup_ratio=0.5) == (50, 0, 25)


@given(rows=st.integers(1, 10**6), batch=st.integers(1, 64), more=st.integers(1, 8), epochs=st.integers(1, 9))
def test_whole_epochs_read_every_row_that_often(rows: int, batch: int, more: int, epochs: int) -> None:
    one, _, _ = steps(rows, batch_size=batch, accumulation_steps=more, epochs=1.0)
    assert (one - 1) * batch * more < rows <= one * batch * more
    assert steps(rows, batch_size=batch, accumulation_steps=more, epochs=float(epochs))[0] == epochs * one


def test_steps_that_follow_from_epochs_are_not_part_of_the_id(composed: Callable[..., Config]) -> None:
    long = composed("trainer.epochs=2", "trainer.eval_epochs=1", "trainer.warmup_ratio=0.1")
    name = run_id(long)
    long.trainer = in_steps(long.trainer, 10_000)
    assert (
        run_id(long)
        == name
        == run_id(composed("trainer.epochs=2.0", "trainer.eval_epochs=1", *["trainer.warmup_ratio=0.10"]))
    )
    assert name != run_id(composed("trainer.epochs=3", "trainer.eval_epochs=1", "trainer.warmup_ratio=0.1"))
    for later in ("trainer.epochs=0", "trainer.best=", "trainer.bf16=false", "trainer.optim=adamw"):
        assert run_id(composed(later)) == run_id(composed())


def test_a_number_of_steps_that_is_typed_wins_over_the_epochs_of_a_scale(composed: Callable[..., Config]) -> None:
    words = ["dataset=noisy_numbers", "scale=finetune"]
    assert (composed(*words).trainer.epochs, composed(*words).trainer.warmup_ratio) == (3, 0.1)
    chosen = compose([*words, "trainer.max_steps=0"]).trainer
    assert (chosen.epochs, chosen.max_steps, chosen.eval_epochs) == (0, 0, 1)
    assert compose(["trainer.epochs=2"]).trainer.epochs == 2  # although scale=tiny has a number of steps
    for pair in ("trainer.epochs=2 trainer.max_steps=7", "trainer.eval_epochs=1 trainer.eval_steps=7"):
        with pytest.raises(UserError, match=r"follows from trainer\.\w+; leave one of them out"):
            compose(pair.split())


def test_a_decoding_that_chooses_the_checkpoint_is_part_of_the_id(composed: Callable[..., Config]) -> None:
    def name(*overrides: str) -> str:
        return run_id(composed("trainer.eval_steps=5", *overrides))

    assert name("trainer.best=accuracy") != name("trainer.best=accuracy", "decoding=beam")
    assert name("trainer.best=loss") == name("trainer.best=loss", "decoding=beam")
    assert name("trainer.best=loss") != name()
    assert is_decoded(composed("trainer.eval_steps=5", "trainer.best=mae").trainer)
    assert not is_decoded(composed("trainer.eval_steps=5", "trainer.best=loss").trainer)


FSDP = "trainer=fsdp"
MISFITS = {
    "trainer.bf16=maybe": "trainer.bf16=maybe: choose true, false, or auto",
    "trainer.optim=xyz": "choose one of adamw, adamw_torch,",
    "trainer.best=accuracy": "trainer.best=accuracy trainer.eval_steps=0: only evaluations say",
    "trainer.best=maee trainer.eval_steps=5": "Did you mean 'mae'?",
    "trainer.best=accuracy trainer.eval_steps=5 dataset=multirc": "choose one of loss, bleu, rouge1",
    "trainer.early_stopping=2": "set trainer.best=loss, or another validation metric",
    "trainer.max_steps=0 keep_steps=[0]": "choose steps of 1 to trainer.max_steps=0",
    f"{FSDP} trainer.optim=adafactor": "sharded weights need an optimizer of torch",
    f"{FSDP} trainer.max_steps=0": "nothing is trained; use trainer=ddp",
    f"{FSDP} scale=finetune": "set trainer.eval_decoded=false trainer.best=loss, or trainer=ddp",
    "trainer.max_steps=-1": "trainer.max_steps=-1: must be at least 0",
    "trainer.epochs=-1": "trainer.epochs=-1.0: must be at least 0",
    "trainer.warmup_ratio=2": "trainer.warmup_ratio=2.0: must be at most 1",
}


@pytest.mark.parametrize("overrides", MISFITS)
def test_one_line_for_what_does_not_fit(overrides: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(overrides.split())
    assert MISFITS[overrides] in str(caught.value)
    assert "\n" not in str(caught.value)
