"""Ctrl-C once: finish the step and save. Twice: stop at once."""

import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerControl

from ntl.training import callbacks
from ntl.training.callbacks import StopOnSignal

ARGUMENTS = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in callbacks.SIGNALS}
    yield
    after = {number: signal.getsignal(number) for number in before}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == before


def _after_a_step(stop: StopOnSignal) -> tuple[bool, bool]:
    control = TrainerControl()
    stop.on_step_end(ARGUMENTS, None, control)  # pyright: ignore[reportArgumentType]
    return control.should_save, control.should_training_stop


@pytest.mark.parametrize("number", callbacks.SIGNALS)
def test_the_step_is_finished_saved_and_the_last(number: signal.Signals) -> None:
    with StopOnSignal() as stop:
        assert _after_a_step(stop) == (False, False)
        signal.raise_signal(number)
        assert stop.received == number
        assert _after_a_step(stop) == (True, True)


def test_a_second_signal_acts_at_once() -> None:
    with StopOnSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_afterwards_signals_mean_what_they_did() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, before := lambda number, frame: seen.append(number))
    with StopOnSignal() as stop:
        assert signal.getsignal(signal.SIGTERM) is not before
    signal.raise_signal(signal.SIGTERM)
    assert (seen, stop.received) == ([signal.SIGTERM], None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_in_another_thread_it_catches_nothing_and_does_no_harm() -> None:
    failures: list[BaseException] = []

    def enter() -> None:
        try:
            with StopOnSignal() as stop:
                assert _after_a_step(stop) == (False, False)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert failures == []


def test_a_signal_to_another_rank_stops_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(flag: torch.Tensor, operation: object) -> None:
        assert operation == torch.distributed.ReduceOp.MAX
        flag.fill_(callbacks.STOP)

    stand_in = SimpleNamespace(is_initialized=lambda: True, all_reduce=all_reduce, ReduceOp=torch.distributed.ReduceOp)
    monkeypatch.setattr(callbacks, "distributed", stand_in)
    assert _after_a_step(StopOnSignal()) == (True, True)


def test_who_listened_before_is_told_at_the_end() -> None:
    told: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, frame: told.append(number))
    try:
        with StopOnSignal() as stop:
            signal.raise_signal(signal.SIGUSR2)
            assert (told, _after_a_step(stop)) == ([], (True, True))
        stop.hand_on()
        assert told == [signal.SIGUSR2]
        signal.raise_signal(signal.SIGUSR2)
        assert len(told) == 2
    finally:
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    with StopOnSignal() as stop:
        stop.hand_on()  # nothing came
        signal.raise_signal(signal.SIGTERM)
    stop.hand_on()  # nobody listened


def test_a_job_that_is_about_to_be_killed_saves_and_goes_on() -> None:
    """submitit lets SIGTERM pass: Slurm kills the job and requeues it, which it would not had the job ended itself."""
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with StopOnSignal() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert _after_a_step(stop) == (True, False)
            assert _after_a_step(stop) == (False, False)
            assert not stop.requested(ARGUMENTS.device)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR2)  # the two may come together
            assert _after_a_step(stop) == (True, True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
