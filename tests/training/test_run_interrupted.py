"""Runs that are interrupted, killed or started twice give the record of an uninterrupted run."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ntl.config import Config, compose, run_id
from ntl.config.folders import CONFIG_DIR
from ntl.results import RunRecord
from ntl.runs.folder import latest_complete
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

STEPS = 14
# Every epoch of 96 rows has 4 batches, the last of them smaller; the log lines do not end where evaluations do.
SHARED = ["model.dropout=0.1", "trainer.batch_size=30", f"trainer.max_steps={STEPS}", "trainer.logging_steps=3"]
SCHEDULES = {
    # Patience 1 halves the rate several times in so few steps.
    "plateau": [
        *("trainer.schedule=plateau", "trainer.warmup_steps=0", "trainer.patience=1"),
        *("trainer.eval_steps=1", "trainer.lr=0.3"),
    ],
    "cosine": ["trainer.schedule=cosine", "trainer.length_bucketing=true", "trainer.accumulation_steps=2"],
}
Outcome = tuple[RunRecord, list[dict[str, float]], bytes]


@pytest.fixture
def outcome(without_times: Callable[[Path], RunRecord]) -> Callable[[Config], Outcome]:
    """A run's record less its times, its metrics.jsonl, and its last weights."""

    def make(config: Config) -> Outcome:
        path = train(config)
        weights = path.parent / "checkpoints" / f"checkpoint-{config.trainer.max_steps}" / "model.safetensors"
        return without_times(path), read_metrics(path.parent / METRICS), weights.read_bytes()

    return make


@pytest.fixture
def straight(small, outcome) -> Callable[[str], Outcome]:
    """What the run with this schedule gives that nothing interrupts."""
    return cache(lambda schedule: outcome(small(*SHARED, *SCHEDULES[schedule])))


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["plateau", pytest.param("cosine", marks=pytest.mark.soak)])
def test_the_same_config_and_seed_give_the_same_record(schedule: str, small, outcome, straight, tmp_path: Path) -> None:
    """With any number of data workers."""
    workers = ["trainer.num_workers=2", f"output_dir={tmp_path / 'again'}"]
    record, *again = outcome(small(*SHARED, *SCHEDULES[schedule], *workers))
    expected, *rest = straight(schedule)
    assert record.config["trainer"]["num_workers"] == 2
    assert replace(record, id=expected.id, config=expected.config) == expected
    assert again == rest
    rates = {line["learning_rate"] for line in again[0] if "learning_rate" in line}
    assert len(rates) > 1  # the schedule is at work
    other = outcome(small(*SHARED, *SCHEDULES[schedule], "seed=2"))
    assert other[0].metrics != record.metrics


@pytest.mark.slow
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.sets(st.integers(1, STEPS), min_size=1, max_size=2), schedule=st.sampled_from(list(SCHEDULES)))
def test_a_resume_at_any_step_gives_the_same_bits(steps, schedule, small, outcome, straight, run_interrupted) -> None:
    """The same bits after an interruption in each of these steps, the last ones of which come while it is resumed."""
    outputs = Path(mkdtemp(dir=Path(small().output_dir).parent))
    config = small(*SHARED, *SCHEDULES[schedule], f"output_dir={outputs}")
    for step in sorted(steps):
        run_interrupted(config, step)
        checkpoint, damaged = latest_complete(outputs / run_id(config) / "checkpoints")
        assert (checkpoint and checkpoint.name, damaged) == (f"checkpoint-{step}", [])
        assert not (outputs / run_id(config) / "record.json").exists()
    assert outcome(config) == straight(schedule)
    shutil.rmtree(outputs)


TRAIN = str(CONFIG_DIR.parent / "train.py")
# Long enough to be met in its middle; the decoding is short.
SETTINGS = ["trainer.max_steps=150", "trainer.save_steps=30", "trainer.logging_steps=7", "model.dropout=0.1"]


class Command:
    """train.py with these overrides, and the folder of its run."""

    def __init__(self, make: Callable[..., list[str]], outputs: Path, *overrides: str) -> None:
        words = make(*overrides, f"output_dir={outputs / 'stopped'}")
        self.words = [sys.executable, TRAIN, *words]
        self.folder = outputs / "stopped" / run_id(compose(words))
        self.uninterrupted = compose(make(*overrides, f"output_dir={outputs / 'straight'}"))

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_a_checkpoint(self, process: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 200
        while process.poll() is None and latest_complete(self.folder / "checkpoints")[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def finish(self) -> str:
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        assert "Continuing from" in done.stdout
        return done.stdout

    def check(self, without_times: Callable[[Path], RunRecord], *, files: bool = False) -> None:
        """The run ended as the same run that nothing stops; ``files``: no part of a file is left behind either."""
        straight = train(self.uninterrupted).parent
        assert without_times(self.folder / "record.json") == without_times(straight / "record.json")
        assert read_metrics(self.folder / METRICS) == read_metrics(straight / METRICS)
        if files:
            left = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (self.folder, straight)]
            assert left[0] == left[1]


@pytest.fixture
def command(settings: Callable[..., list[str]], tmp_path: Path) -> Command:
    return Command(settings, tmp_path, *SETTINGS)


def check_interrupted(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the same command continues from the last checkpoint."
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [*(pytest.param(each, marks=pytest.mark.soak) for each in (signal.SIGINT, signal.SIGTERM)), signal.SIGUSR2],
)
def test_one_signal_leaves_a_checkpoint_of_the_step_under_way(number: int, command: Command, without_times) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(number)
        check_interrupted(process)
    checkpoint, damaged = latest_complete(command.folder / "checkpoints")
    assert (checkpoint is not None, damaged) == (True, [])
    command.finish()
    command.check(without_times)


@pytest.mark.soak
def test_two_commands_at_one_run(command: Command, without_times) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the other has come
        second = subprocess.run(command.words, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2, second.stderr
        assert second.stderr == f"error: {command.folder}: another process is working on this run; wait for it.\n"
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    command.check(without_times)


# In the order in which one run meets them: each start goes on from the checkpoint before.
PLACES = [
    ("open", "config.json", 2),  # the second checkpoint has just begun
    ("open", "trainer_state.json", 1),  # its weights and optimizer are written
    ("open", ".manifest.json.*.part", 1),  # everything but the manifest
    ("os.rename", "manifest.json", 1),  # the manifest has another name yet
    ("open", METRICS, 2),
    ("open", ".predictions.jsonl.*.part", 1),
    ("os.rename", "predictions.jsonl", 1),
    ("open", ".record.json.*.part", 1),
    ("os.rename", "record.json", 1),
]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_run_killed_while_it_writes_a_checkpoint_predictions_or_the_record(
    settings, without_times, tmp_path: Path
) -> None:
    command = Command(settings, tmp_path, "trainer.save_steps=4", "trainer.logging_steps=1")
    killed_at = str(Path(__file__).with_name("killed_at.py"))
    for event, name, nth in PLACES:
        strike = [sys.executable, killed_at, event, name, str(nth), *command.words[1:]]
        done = subprocess.run(strike, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, (event, name, done.stderr)
        assert not (command.folder / "record.json").exists()
        assert latest_complete(command.folder / "checkpoints")[0] is not None
    command.finish()
    command.check(without_times, files=True)
