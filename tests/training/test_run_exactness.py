"""The same config and seed give the same record, whatever happens in between."""

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ntl.config import Config
from ntl.results import RunRecord
from ntl.training import run
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
        for _ in steps:
            with pytest.raises(KeyboardInterrupt):
                run(config)
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
