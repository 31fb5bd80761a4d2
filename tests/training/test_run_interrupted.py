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
from ntl.config.composition import CONFIG_DIR
from ntl.results import RunRecord, read_record
from ntl.training import run
from ntl.training.checkpoints import newest_whole
from ntl.training.tracking import METRICS, read_metrics
from ntl.training.trainer import ObjectiveTrainer

STEPS = 14
# Every epoch of 96 rows has 4 batches, the last of them smaller; the log lines do not end where evaluations do.
SHARED = ["model.dropout=0.1", "trainer.batch_size=30", f"trainer.max_steps={STEPS}", "trainer.logging_steps=3"]
SCHEDULES = {
    # Patience 1 halves the rate several times in so few steps.
    "plateau": ["trainer.schedule=plateau", "trainer.patience=1", "trainer.eval_steps=1", "trainer.lr=0.3"],
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


def check_interrupted(steps: set[int], schedule: str, small, outcome, straight) -> None:
    """The same bits after an interruption in each of these steps, the last ones of which come while it is resumed."""
    outputs = Path(mkdtemp(dir=Path(small().output_dir).parent))
    original, pending = ObjectiveTrainer.training_step, set(steps)

    def interrupted(self: ObjectiveTrainer, *args: object, **kwargs: object) -> object:
        if self.state.global_step + 1 in pending:
            pending.discard(self.state.global_step + 1)
            signal.raise_signal(signal.SIGINT)
        return original(self, *args, **kwargs)

    config = small(*SHARED, *SCHEDULES[schedule], f"output_dir={outputs}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectiveTrainer, "training_step", interrupted)
        for step in sorted(steps):
            with pytest.raises(KeyboardInterrupt):
                run(config)
            checkpoint, damaged = newest_whole(outputs / run_id(config) / "checkpoints")
            assert (checkpoint and checkpoint.name, damaged) == (f"checkpoint-{step}", [])
            assert not (outputs / run_id(config) / "record.json").exists()
        assert not pending
        assert outcome(config) == straight(schedule)
    shutil.rmtree(outputs)


def step_sets(most: int) -> st.SearchStrategy[set[int]]:
    """The steps in which a run is interrupted."""
    return st.sets(st.integers(1, STEPS), min_size=1, max_size=most)


FIXTURES = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=2, suppress_health_check=FIXTURES, derandomize=True)
@given(steps=step_sets(2), schedule=st.sampled_from(list(SCHEDULES)))
def test_a_resume_at_any_step_gives_the_same_bits(steps: set[int], schedule: str, small, outcome, straight) -> None:
    check_interrupted(steps, schedule, small, outcome, straight)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=FIXTURES)
@given(steps=step_sets(3), schedule=st.sampled_from(list(SCHEDULES)))
def test_a_resume_at_any_step_gives_the_same_bits_often(
    steps: set[int], schedule: str, small, outcome, straight
) -> None:
    check_interrupted(steps, schedule, small, outcome, straight)


TRAIN = str(CONFIG_DIR.parent / "train.py")
# Long enough to be met in its middle; the decoding is short.
SETTINGS = ["trainer.max_steps=250", "trainer.save_steps=50", "trainer.logging_steps=7", "model.dropout=0.1"]


class Command:
    """train.py with these overrides, and the folder of its run."""

    def __init__(self, overrides: list[str]) -> None:
        config = compose(overrides)
        self.words = [sys.executable, TRAIN, *overrides]
        self.folder = Path(config.output_dir) / run_id(config)

    def start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_a_checkpoint(self, process: "subprocess.Popen[str]") -> None:
        deadline = time.monotonic() + 200
        while process.poll() is None and newest_whole(self.folder / "checkpoints")[0] is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def finish(self, *, resumes: bool = True) -> None:
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        assert ("Continuing from" in done.stdout) is resumes


@pytest.fixture
def command(settings: Callable[..., list[str]], tmp_path: Path) -> Command:
    return Command(settings(*SETTINGS, f"output_dir={tmp_path / 'stopped'}"))


@pytest.fixture(scope="module")
def expected() -> dict[str, object]:
    """The record of the run that nothing stops, made by the first test that needs it."""
    return {}


def check_interrupted_command(process: "subprocess.Popen[str]", errors: str) -> None:
    assert process.returncode == 130, errors
    assert errors.splitlines()[-1] == "interrupted; the same command continues from the last checkpoint."
    assert "Traceback" not in errors


def check(command: Command, expected: dict[str, object], without_times, settings, folder: Path) -> None:
    if not expected:
        path = run(compose(settings(*SETTINGS, f"output_dir={folder / 'straight'}")))
        expected.update(record=without_times(path), lines=read_metrics(path.parent / METRICS))
    assert without_times(command.folder / "record.json") == expected["record"]
    assert read_metrics(command.folder / METRICS) == expected["lines"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR2])
def test_one_signal_leaves_a_checkpoint_of_the_step_under_way(
    number: signal.Signals, command: Command, expected, without_times, settings, tmp_path: Path
) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    check_interrupted_command(process, errors)
    checkpoint, damaged = newest_whole(command.folder / "checkpoints")
    assert (checkpoint is not None, damaged) == (True, [])
    command.finish()
    check(command, expected, without_times, settings, tmp_path)


@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once(command: Command, expected, without_times, settings, tmp_path: Path) -> None:
    """What was saved before stays, and the run ends as it would have."""
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.005)  # two that are pending at once are one
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    check_interrupted_command(process, errors)
    assert newest_whole(command.folder / "checkpoints")[0] is not None
    assert not (command.folder / "record.json").exists()
    command.finish()
    check(command, expected, without_times, settings, tmp_path)


@pytest.mark.slow
def test_two_commands_at_one_run(command: Command, expected, without_times, settings, tmp_path: Path) -> None:
    with command.start() as process:
        command.wait_for_a_checkpoint(process)
        process.send_signal(signal.SIGSTOP)  # so that it does not end before the other has come
        second = subprocess.run(command.words, capture_output=True, text=True, timeout=120)
        assert second.returncode == 2, second.stderr
        assert second.stderr == f"error: {command.folder}: another process is working on this run; wait for it.\n"
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    check(command, expected, without_times, settings, tmp_path)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.data
def test_a_killed_run_ends_as_one_that_was_not(
    data_root: Path, without_times, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the real arithmetic data."""
    monkeypatch.setenv("NTL_DATA_DIR", str(data_root))
    shared = ["dataset=arithmetic", "loss=ntl_was", "trainer.max_steps=200", "trainer.save_steps=50", "tracking=none"]
    shared += ["device=cpu", f"data_dir={tmp_path / 'data'}"]
    straight, killed = (Command([*shared, f"output_dir={tmp_path / name}"]) for name in ("straight", "killed"))
    straight.finish(resumes=False)
    rows = read_record(straight.folder / "record.json").data["rows"]
    assert rows == {"train": 99_999, "validation": 3_000, "interpolate": 1_000, "extrapolate": 1_000}
    with killed.start() as process:
        killed.wait_for_a_checkpoint(process)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed.folder / "record.json").exists()
    lines = read_metrics(straight.folder / METRICS)
    assert 0 < len(read_metrics(killed.folder / METRICS)) < len(lines)
    killed.finish()
    assert read_metrics(killed.folder / METRICS) == lines
    assert without_times(killed.folder / "record.json") == without_times(straight.folder / "record.json")


# A log line every 5 steps, and a decoding of some seconds.
LONG = ["trainer.max_steps=300", "trainer.save_steps=20", "trainer.logging_steps=5", "dataset.test_rows=3000"]
LONG += ["trainer.eval_steps=50", "model.dropout=0.1"]
KILLS_IN_TRAINING, KILLS_IN_DECODING = 8, 2


def _snapshot(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.slow
@pytest.mark.timeout(900)  # twelve starts, each with its imports
def test_a_run_killed_at_ten_random_moments_ends_as_one_that_was_not(settings, without_times, tmp_path: Path) -> None:
    straight = run(compose(settings(*LONG, f"output_dir={tmp_path / 'straight'}"))).parent
    command = [sys.executable, TRAIN, *settings(*LONG, f"output_dir={tmp_path / 'killed'}")]
    folder, draw = tmp_path / "killed" / straight.name, random.Random(0)

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
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            while process.poll() is None and not (
                last_is_whole(began) if moment is None else logged_since(began) >= moment
            ):
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.2))
            process.kill()
            said, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL, said
        assert not (folder / "record.json").exists()

    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert f"Continuing from {folder / 'checkpoints' / 'checkpoint-300'}." in done.stdout
    assert without_times(folder / "record.json") == without_times(straight / "record.json")
    assert read_metrics(folder / METRICS) == read_metrics(straight / METRICS)
    assert _snapshot(folder) == _snapshot(straight)


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
    shared = ["trainer.save_steps=4", "trainer.logging_steps=1"]
    straight = run(compose(settings(*shared, f"output_dir={tmp_path / 'straight'}"))).parent
    command = [TRAIN, *settings(*shared, f"output_dir={tmp_path / 'killed'}")]
    killed_at, folder = str(Path(__file__).with_name("killed_at.py")), tmp_path / "killed" / straight.name
    for event, name, nth in PLACES:
        strike = [sys.executable, killed_at, event, name, str(nth), *command]
        done = subprocess.run(strike, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, (event, name, done.stderr)
        assert not (folder / "record.json").exists()
        assert newest_whole(folder / "checkpoints")[0] is not None
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert without_times(folder / "record.json") == without_times(straight / "record.json")
    assert read_metrics(folder / METRICS) == read_metrics(straight / METRICS)
    # No part of a file is left behind.
    assert _snapshot(folder) == _snapshot(straight)
