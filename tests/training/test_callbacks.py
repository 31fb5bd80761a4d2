"""Signals and probes of a training, and the arguments of the Trainer."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerControl

from ntl.config import compose
from ntl.decoding.batches import Answer
from ntl.training import callbacks
from ntl.training.callbacks import Probe, StopOnSignal, training_arguments
from ntl.training.record import METRICS

ARGUMENTS = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[Callable[[int, Any], None]]:
    """Puts back the handlers that a test sets; what it then finds is what ``StopOnSignal`` left."""
    before = {number: signal.getsignal(number) for number in callbacks.SIGNALS}
    own: dict[int, Any] = {}

    def listen(number: int, handler: Any) -> None:
        own[number] = handler
        signal.signal(number, handler)

    yield listen
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == {**before, **own}


def _after_a_step(stop: StopOnSignal) -> tuple[bool, bool]:
    control = TrainerControl()
    stop.on_step_end(ARGUMENTS, None, control)  # pyright: ignore[reportArgumentType]
    return control.should_save, control.should_training_stop


@pytest.mark.parametrize("number", callbacks.SIGNALS)
def test_the_step_is_finished_saved_and_the_last_and_a_second_signal_acts_at_once(number: signal.Signals) -> None:
    with StopOnSignal() as stop:
        assert _after_a_step(stop) == (False, False)
        signal.raise_signal(number)
        assert (stop.received, _after_a_step(stop)) == (number, (True, True))
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_who_listened_before_is_told_at_the_end(handlers) -> None:
    told: list[int] = []
    handlers(signal.SIGUSR2, lambda number, frame: told.append(number))
    with StopOnSignal() as stop:
        signal.raise_signal(signal.SIGUSR2)
        assert (told, _after_a_step(stop)) == ([], (True, True))
    stop.call_previous_handler()
    assert told == [signal.SIGUSR2]
    signal.raise_signal(signal.SIGUSR2)
    assert len(told) == 2
    with StopOnSignal() as stop:
        stop.call_previous_handler()  # nothing came
        signal.raise_signal(signal.SIGTERM)
    stop.call_previous_handler()  # nobody listened
    assert len(told) == 2


def test_a_job_that_is_about_to_be_killed_saves_and_goes_on(handlers) -> None:
    """submitit lets SIGTERM pass: Slurm kills the job and requeues it, which it would not had the job ended itself."""
    handlers(signal.SIGTERM, lambda number, frame: None)
    with StopOnSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert _after_a_step(stop) == (True, False)
        assert _after_a_step(stop) == (False, False)
        assert not stop.requested(ARGUMENTS.device)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR2)  # the two may come together
        assert _after_a_step(stop) == (True, True)


def test_twenty_examples_of_each_group_and_their_error(parts, tmp_path: Path, monkeypatch) -> None:
    sizes = ["dataset.test_rows_per_cell=25", "dataset.max_digits=2", "dataset.extrapolate_digits=3"]
    made = Probe(parts(*sizes, dataset="multiplication"), 4, tmp_path / METRICS)
    assert {group: len(rows) for group, rows in made.in_group.items()} == {"1x1": 16, "1x2": 20, "2x1": 20, "2x2": 20}
    # Answers of which every second is 10 % too large, and no number at all in one group.
    answers = [made.rows[index]["answer"] for indices in made.in_group.values() for index in indices]
    written = [str(1.1 * int(answer)) if place % 2 else answer for place, answer in enumerate(answers[:-20])]
    texts = [Answer(text, []) for text in [*written, *["none"] * 20]]
    monkeypatch.setattr("ntl.training.callbacks.decode_in_training", lambda *args, **kwargs: texts)
    assert made.mape() == pytest.approx({"1x1": 5.0, "1x2": 5.0, "2x1": 5.0})


def test_a_constant_rate_has_a_warmup() -> None:
    config = compose(["device=cpu", "dataset=noisy_numbers", "trainer.schedule=constant"])
    assert training_arguments(config, Path("checkpoints")).lr_scheduler_type == "constant_with_warmup"
