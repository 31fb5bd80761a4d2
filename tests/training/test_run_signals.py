"""The real command, told to stop, started twice, and where it has to give up."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import compose, run_id
from ntl.config.composition import CONFIG_DIR
from ntl.training import run
from ntl.training.checkpoints import newest_whole
from ntl.training.tracking import METRICS, read_metrics

TRAIN = str(CONFIG_DIR.parent / "train.py")
pytestmark = pytest.mark.slow
# Long enough to be met in its middle; the decoding is short.
SETTINGS = ["trainer.max_steps=250", "trainer.save_steps=50", "trainer.logging_steps=7", "model.dropout=0.1"]


class Command:
    """train.py on these settings in a folder of the test."""

    def __init__(self, settings: Callable[..., list[str]], outputs: Path) -> None:
        chosen = settings(*SETTINGS, f"output_dir={outputs}")
        self.words = [sys.executable, TRAIN, *chosen]
        self.config = compose(chosen)
        self.folder = outputs / run_id(self.config)

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_a_checkpoint(self, process: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 200
        while process.poll() is None and newest_whole(self.folder / "checkpoints")[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def finish(self) -> None:
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "Continuing from" in done.stdout


@pytest.fixture
def command(settings: Callable[..., list[str]], tmp_path: Path) -> Command:
    return Command(settings, tmp_path / "stopped")


@pytest.fixture(scope="module")
def expected() -> dict[str, object]:
    """The record of the run that nothing stops, made by the first test that needs it."""
    return {}


def check(command: Command, expected: dict[str, object], without_times, settings, folder: Path) -> None:
    if not expected:
        path = run(compose(settings(*SETTINGS, f"output_dir={folder / 'straight'}")))
        expected.update(record=without_times(path), lines=read_metrics(path.parent / METRICS))
    assert without_times(command.folder / "record.json") == expected["record"]
    assert read_metrics(command.folder / METRICS) == expected["lines"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_one_signal_leaves_a_checkpoint_of_the_step_under_way(
    number: signal.Signals, command: Command, expected, without_times, settings, tmp_path: Path
) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the same command continues from the last checkpoint."
    assert "Traceback" not in errors
    checkpoint, damaged = newest_whole(command.folder / "checkpoints")
    assert (checkpoint is not None, damaged) == (True, [])
    command.finish()
    check(command, expected, without_times, settings, tmp_path)


def test_ctrl_c_twice_ends_at_once(command: Command, expected, without_times, settings, tmp_path: Path) -> None:
    """What was saved before stays, and the run ends as it would have."""
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)  # two that are pending at once are one
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the same command continues from the last checkpoint."
    assert "Traceback" not in errors
    assert newest_whole(command.folder / "checkpoints")[0] is not None
    assert not (command.folder / "record.json").exists()
    command.finish()
    check(command, expected, without_times, settings, tmp_path)


def test_two_commands_at_one_run(command: Command, expected, without_times, settings, tmp_path: Path) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the other has come
        second = subprocess.run(command.words, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2, second.stderr
        assert second.stderr == f"error: {command.folder}: another process is at this run; wait for it.\n"
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    check(command, expected, without_times, settings, tmp_path)


def test_a_loss_that_diverges_is_exit_code_3_and_one_line(settings: Callable[..., list[str]]) -> None:
    words = [*settings("trainer.lr=1e30", "trainer.save_steps=1", "trainer.logging_steps=2")]
    done = subprocess.run([sys.executable, TRAIN, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    last = done.stderr.splitlines()[-1]
    pattern = (
        r"diverged: the training loss is nan at step 3; its examples: (train/\d{5}, ){15}train/\d{5}; the last good "
    )
    assert re.match(rf"{pattern}checkpoint is \S+/checkpoint-2; a lower trainer.lr", last)
    assert "Traceback" not in done.stderr
