"""Runs that are interrupted, killed or started twice give the record of an uninterrupted run."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ntl.config import Config, compose, run_id
from ntl.config.folders import CONFIG_DIR
from ntl.results import RunRecord, read_record
from ntl.training import run
from ntl.training.checkpoints import newest_whole
from ntl.training.tracking import METRICS, read_metrics

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
        path = run(config)
        weights = path.parent / "checkpoints" / f"checkpoint-{config.trainer.max_steps}" / "model.safetensors"
        return without_times(path), read_metrics(path.parent / METRICS), weights.read_bytes()

    return make


@pytest.fixture(scope="module")
def made() -> dict[str, Outcome]:
    """Outcomes by schedule, for ``straight`` to fill."""
    return {}


@pytest.fixture
def straight(made: dict[str, Outcome], small, outcome) -> Callable[[str], Outcome]:
    """What the run with this schedule gives that nothing interrupts, made once."""

    def get(schedule: str) -> Outcome:
        if schedule not in made:
            made[schedule] = outcome(small(*SHARED, *SCHEDULES[schedule]))
        return made[schedule]

    return get


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_same_config_and_seed_give_the_same_record(schedule: str, small, outcome, straight, tmp_path: Path) -> None:
    again = outcome(small(*SHARED, *SCHEDULES[schedule], f"output_dir={tmp_path / 'again'}"))
    assert again == straight(schedule)
    rates = {line["learning_rate"] for line in again[1] if "learning_rate" in line}
    assert len(rates) > 1  # the schedule is at work
    other = outcome(small(*SHARED, *SCHEDULES[schedule], "seed=2"))
    assert other[0].metrics != again[0].metrics


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_number_of_data_workers_does_not_matter(schedule: str, small, outcome, straight, tmp_path: Path) -> None:
    workers = ["trainer.num_workers=2", f"output_dir={tmp_path / 'workers'}"]
    expected, expected_lines, expected_weights = straight(schedule)
    record, lines, weights = outcome(small(*SHARED, *SCHEDULES[schedule], *workers))
    assert record.config["trainer"]["num_workers"] == 2
    assert replace(record, id=expected.id, config=expected.config) == expected
    assert (lines, weights) == (expected_lines, expected_weights)


def check_interrupted(steps: set[int], schedule: str, small, outcome, straight, run_interrupted) -> None:
    """The same bits after an interruption in each of these steps, the last ones of which come while it is resumed."""
    outputs = Path(mkdtemp(dir=Path(small().output_dir).parent))
    config = small(*SHARED, *SCHEDULES[schedule], f"output_dir={outputs}")
    for step in sorted(steps):
        run_interrupted(config, step)
        checkpoint, damaged = newest_whole(outputs / run_id(config) / "checkpoints")
        assert (checkpoint and checkpoint.name, damaged) == (f"checkpoint-{step}", [])
        assert not (outputs / run_id(config) / "record.json").exists()
    assert outcome(config) == straight(schedule)
    shutil.rmtree(outputs)


FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=2, suppress_health_check=FIXTURES, derandomize=True)
@given(steps=st.sets(st.integers(1, STEPS), min_size=1, max_size=2), schedule=st.sampled_from(list(SCHEDULES)))
def test_a_resume_at_any_step_gives_the_same_bits(steps, schedule, small, outcome, straight, run_interrupted) -> None:
    check_interrupted(steps, schedule, small, outcome, straight, run_interrupted)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=FIXTURES)
@given(steps=st.sets(st.integers(1, STEPS), min_size=1, max_size=3), schedule=st.sampled_from(list(SCHEDULES)))
def test_a_resume_at_any_step_gives_the_same_bits_often(
    steps, schedule, small, outcome, straight, run_interrupted
) -> None:
    check_interrupted(steps, schedule, small, outcome, straight, run_interrupted)


TRAIN = str(CONFIG_DIR.parent / "train.py")
# Long enough to be met in its middle; the decoding is short.
SETTINGS = ["trainer.max_steps=250", "trainer.save_steps=50", "trainer.logging_steps=7", "model.dropout=0.1"]


class Command:
    """train.py with these overrides, the folder of its run, and that of the same run that nothing stops."""

    def __init__(self, make: Callable[..., list[str]], outputs: Path, *overrides: str) -> None:
        words = make(*overrides, f"output_dir={outputs / 'stopped'}")
        self.words = [sys.executable, TRAIN, *words]
        self.folder = outputs / "stopped" / run_id(compose(words))
        self.straight = make(*overrides, f"output_dir={outputs / 'straight'}")

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_a_checkpoint(self, process: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 200
        while process.poll() is None and newest_whole(self.folder / "checkpoints")[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def finish(self) -> str:
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        assert "Continuing from" in done.stdout
        return done.stdout


@pytest.fixture
def command(settings: Callable[..., list[str]], tmp_path: Path) -> Command:
    return Command(settings, tmp_path, *SETTINGS)


@pytest.fixture(scope="module")
def expected() -> list[tuple[RunRecord, list[dict[str, float]]]]:
    """The record of the run that nothing stops, and its metrics.jsonl, made by the first test that needs them."""
    return []


def check_interrupted_command(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the same command continues from the last checkpoint."
    assert "Traceback" not in errors


@pytest.fixture
def check(expected: list, without_times) -> Callable[[Command], None]:
    """The run ended as the one that nothing stops."""

    def compare(command: Command) -> None:
        if not expected:
            path = run(compose(command.straight))
            expected.append((without_times(path), read_metrics(path.parent / METRICS)))
        found = without_times(command.folder / "record.json"), read_metrics(command.folder / METRICS)
        assert found == expected[0]

    return compare


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_one_signal_leaves_a_checkpoint_of_the_step_under_way(number: int, command: Command, check) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(number)
        check_interrupted_command(process)
    checkpoint, damaged = newest_whole(command.folder / "checkpoints")
    assert (checkpoint is not None, damaged) == (True, [])
    command.finish()
    check(command)


@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once(command: Command, check) -> None:
    """What was saved before stays, and the run ends as it would have."""
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)  # two that are pending at once are one
        process.send_signal(signal.SIGINT)
        check_interrupted_command(process)
    assert newest_whole(command.folder / "checkpoints")[0] is not None
    assert not (command.folder / "record.json").exists()
    command.finish()
    check(command)


@pytest.mark.slow
def test_two_commands_at_one_run(command: Command, check) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the other has come
        second = subprocess.run(command.words, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2, second.stderr
        assert second.stderr == f"error: {command.folder}: another process is working on this run; wait for it.\n"
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    check(command)


@pytest.mark.slow
def test_a_loss_that_diverges_is_exit_code_3_and_one_line(settings, tmp_path: Path) -> None:
    diverging = Command(settings, tmp_path, "trainer.lr=1e30", "trainer.save_steps=1", "trainer.logging_steps=2")
    done = subprocess.run(diverging.words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    told = r"diverged: the training loss is nan at step 3; its examples: (train/\d{5}, ){15}train/\d{5}; the last good "
    assert re.match(rf"{told}checkpoint is \S+/checkpoint-2; a lower trainer.lr", done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.data
def test_a_killed_run_ends_as_one_that_was_not(data_root: Path, without_times, tmp_path: Path, monkeypatch) -> None:
    """On the real arithmetic data."""
    monkeypatch.setenv("NTL_DATA_DIR", str(data_root))
    words = ["dataset=arithmetic", "loss=ntl_was", "trainer.max_steps=200", "trainer.save_steps=50", "tracking=none"]
    words += ["device=cpu", f"data_dir={tmp_path / 'data'}"]
    killed = Command(lambda *more: [*words, *more], tmp_path)
    straight = run(compose(killed.straight)).parent
    rows = read_record(straight / "record.json").data["rows"]
    assert rows == {"train": 99_999, "validation": 3_000, "interpolate": 1_000, "extrapolate": 1_000}
    with killed.start() as process:
        killed.wait_for_a_checkpoint(process)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed.folder / "record.json").exists()
    assert 0 < len(read_metrics(killed.folder / METRICS)) < len(read_metrics(straight / METRICS))
    killed.finish()
    check_snapshot(killed, straight, without_times)


# A log line every 5 steps, and a decoding of some seconds; NTL at two heads on masked input.
LONG = ["trainer.max_steps=300", "trainer.save_steps=20", "trainer.logging_steps=5", "dataset.test_rows=3000"]
LONG += ["trainer.eval_steps=50", "model.dropout=0.1", "objective=mtp", "objective.heads=2"]
LONG += ["objective.mask.fraction=0.3"]
KILLS_IN_TRAINING, KILLS_IN_DECODING = 8, 2


def check_snapshot(command: Command, straight: Path, without_times) -> None:
    """The run ended as the one in the folder ``straight``, and no part of a file is left behind."""
    assert without_times(command.folder / "record.json") == without_times(straight / "record.json")
    assert read_metrics(command.folder / METRICS) == read_metrics(straight / METRICS)
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (command.folder, straight)]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.timeout(900)  # twelve starts, each with its imports
def test_a_run_killed_at_ten_random_moments_ends_as_one_that_was_not(settings, without_times, tmp_path: Path) -> None:
    command, draw = Command(settings, tmp_path, *LONG), random.Random(0)
    straight, folder = run(compose(command.straight)).parent, command.folder

    def logged_since(moment_ns: int) -> int:
        path = folder / METRICS
        return len(read_metrics(path)) if path.is_file() and path.stat().st_mtime_ns > moment_ns else 0

    def last_is_whole(moment_ns: int) -> bool:
        found, _ = newest_whole(folder / "checkpoints")
        return found is not None and found.name == "checkpoint-300" and logged_since(moment_ns) > 0

    lines = len(read_metrics(straight / METRICS))
    moments = sorted(draw.sample(range(1, lines - 4), KILLS_IN_TRAINING))
    for moment in [*moments, *[None] * KILLS_IN_DECODING]:
        began = time.time_ns()
        with command.start() as process:
            while process.poll() is None and not (
                last_is_whole(began) if moment is None else logged_since(began) >= moment
            ):
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.2))
            process.kill()
            said = process.communicate()
        assert process.returncode == -signal.SIGKILL, said
        assert not (folder / "record.json").exists()
    assert f"Continuing from {folder / 'checkpoints' / 'checkpoint-300'}." in command.finish()
    check_snapshot(command, straight, without_times)


# In the order in which one run meets them: each start goes on from the checkpoint before.
PLACES = [
    ("open", "config.json", 2),  # the second checkpoint has just begun
    ("open", "trainer_state.json", 1),  # its weights and optimizer are written
    ("os.rename", "meters.json", 1),
    ("open", ".manifest.json.*.part", 1),  # everything but the manifest
    ("os.rename", "manifest.json", 1),  # the manifest has another name yet
    ("open", METRICS, 2),
    ("open", ".predictions.jsonl.*.part", 1),
    ("os.rename", "predictions.jsonl", 1),
    ("open", ".record.json.*.part", 1),
    ("os.rename", "record.json", 1),
]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_while_it_writes_a_checkpoint_predictions_or_the_record(
    settings, without_times, tmp_path: Path
) -> None:
    command = Command(settings, tmp_path, "trainer.save_steps=4", "trainer.logging_steps=1")
    straight = run(compose(command.straight)).parent
    killed_at = str(Path(__file__).with_name("killed_at.py"))
    for event, name, nth in PLACES:
        strike = [sys.executable, killed_at, event, name, str(nth), *command.words[1:]]
        done = subprocess.run(strike, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, (event, name, done.stderr)
        assert not (command.folder / "record.json").exists()
        assert newest_whole(command.folder / "checkpoints")[0] is not None
    command.finish()
    check_snapshot(command, straight, without_times)
