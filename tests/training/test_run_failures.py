"""Runs that meet a full disk, a signal at a bad moment, or a checkpoint that is none."""

import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ntl.config import Diverged, UserError, run_id
from ntl.results import read_record
from ntl.training import decode, run
from ntl.training.checkpoints import newest_whole, write_manifest
from ntl.training.tracking import METRICS, read_metrics
from ntl.training.trainer import ObjectiveTrainer

FULL = Path("/dev/full")


def test_a_kill_while_decoding_costs_the_decoding_alone(finished: Path, small, monkeypatch) -> None:
    """The checkpoint is there, so the same command decodes again: same metrics, same lines, no step repeated."""
    record = read_record(finished / "record.json")
    lines = read_metrics(finished / METRICS)
    for name in ("record.json", "predictions.jsonl"):
        (finished / name).unlink()
    steps: list[int] = []
    original = ObjectiveTrainer.training_step
    monkeypatch.setattr(
        ObjectiveTrainer, "training_step", lambda self, *a, **k: steps.append(1) or original(self, *a, **k)
    )
    again = read_record(run(small()))
    assert steps == []
    assert again.metrics == record.metrics
    assert again.predictions_sha256 == record.predictions_sha256
    assert again.curves == record.curves
    assert [line["step"] for line in read_metrics(finished / METRICS)] == [4, 8, 12, 12]
    assert read_metrics(finished / METRICS)[:3] == lines[:3]


@pytest.mark.parametrize("steps", [pytest.param(6, marks=pytest.mark.slow), 11])
def test_a_kill_while_decoding_repeats_no_step_in_the_middle_of_an_epoch_either(steps: int, small) -> None:
    """An epoch has 6 steps. transformers itself would take one more of an epoch that was begun."""
    path = run(small(f"trainer.max_steps={steps}"))
    record = read_record(path)
    path.unlink()
    again = read_record(run(small(f"trainer.max_steps={steps}")))
    assert (again.steps, again.examples_seen, again.tokens_seen) == (steps, steps * 16, record.tokens_seen)
    assert again.metrics == record.metrics
    assert again.curves == record.curves


def test_digits_alone_of_a_tokenizer_that_writes_longer_tokens(small) -> None:
    """Its number labels would not be counted: plain cross entropy, by the name of a number loss."""
    with pytest.raises(UserError, match=r"tokenizer=default: the tokenizer writes .*digits_only=False"):
        run(small("tokenizer=default", "tokenizer.digits_only=true"))


def test_an_evaluation_at_the_last_step_is_not_made_twice(small) -> None:
    path = run(small("trainer.eval_steps=6"))
    evaluated = [line["step"] for line in read_metrics(path.parent / METRICS) if "eval_ce" in line]
    assert evaluated == [6, 12]
    last = read_metrics(path.parent / METRICS)[-1]["eval_ce"]
    assert read_record(path).metrics["validation/ce"] == pytest.approx(last, rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("file", ["optimizer.pt", "trainer_state.json"])
def test_a_disk_that_is_full_while_saving(file: str, small, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small("trainer.max_steps=8", "trainer.save_steps=4")
    folder = Path(config.output_dir) / run_id(config)
    unfinished = folder / "checkpoints" / "checkpoint-8"
    original = ObjectiveTrainer._save_checkpoint

    def save(self: ObjectiveTrainer, *args: Any) -> None:
        if self.state.global_step == 8:
            unfinished.mkdir()
            (unfinished / file).symlink_to(FULL)
        original(self, *args)

    monkeypatch.setattr(ObjectiveTrainer, "_save_checkpoint", save)
    with pytest.raises(UserError, match=rf"{folder.name}: .*Make room"):
        run(config)
    monkeypatch.setattr(ObjectiveTrainer, "_save_checkpoint", original)
    checkpoint, damaged = newest_whole(folder / "checkpoints")
    assert (checkpoint and checkpoint.name, damaged) == ("checkpoint-4", [unfinished])
    (unfinished / file).unlink()
    assert read_record(run(config)).steps == 8


def test_a_checkpoint_that_is_none(small, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    config = small(f"resume={tmp_path / 'empty'}")
    with pytest.raises(UserError, match=r"^resume=.*empty: no whole checkpoint; give one like"):
        run(config)
    assert not (Path(config.output_dir) / run_id(config)).exists()


def test_a_named_checkpoint_is_continued_from(finished: Path, small, tmp_path: Path) -> None:
    """The same run elsewhere, from the checkpoint at step 6 of the finished one."""
    checkpoint = finished / "checkpoints" / "checkpoint-6"
    config = small(f"resume={checkpoint}", f"output_dir={tmp_path / 'other'}")
    again, straight = read_record(run(config)), read_record(finished / "record.json")
    assert again.metrics == straight.metrics
    assert again.curves == straight.curves
    assert (again.examples_seen, again.tokens_seen) == (straight.examples_seen, straight.tokens_seen)


def test_a_checkpoint_beyond_the_last_step(finished: Path, small) -> None:
    with pytest.raises(UserError, match=r"12 steps are taken already; set trainer\.max_steps"):
        run(small(f"resume={finished / 'checkpoints' / 'checkpoint-12'}", "trainer.max_steps=11"))


def test_weights_of_another_model(finished: Path, small) -> None:
    """In the run's own folder, from before a checkpoint said of which run it is."""
    config = small("model.n_embd=8")
    folder = Path(config.output_dir) / run_id(config) / "checkpoints"
    checkpoint = Path(shutil.copytree(finished / "checkpoints" / "checkpoint-6", folder / "checkpoint-6"))
    (checkpoint / "run.json").unlink()
    write_manifest(checkpoint)
    with pytest.raises(UserError, match="checkpoint-6: its weights are those of another model"):
        run(config)


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value


@pytest.mark.slow
def test_a_clock_that_is_set_back(
    small, run_interrupted, without_times, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every look, so within an evaluation, too: nothing is negative, and nothing else differs."""
    settings = ["trainer.max_steps=8", "trainer.save_steps=3", "trainer.eval_steps=4"]
    straight = run(small(*settings, f"output_dir={tmp_path / 'straight'}"))
    now, calls = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: now() - 3600 * next(calls))
    config = small(*settings)
    run_interrupted(config, 5)
    checkpoints = Path(config.output_dir) / run_id(config) / "checkpoints"
    for folder, age in (("checkpoint-3", 0), ("checkpoint-5", 24 * 3600)):
        for path in (*(checkpoints / folder).iterdir(), checkpoints / folder):
            os.utime(path, (now() - age, now() - age))
    checkpoint, _ = newest_whole(checkpoints)
    assert checkpoint == checkpoints / "checkpoint-5"
    path = run(config)
    assert next(calls) > 5
    assert without_times(path) == without_times(straight)
    record, lines = read_record(path), read_metrics(path.parent / METRICS)
    assert 0 < record.wall_time_s < 600
    assert lines == read_metrics(straight.parent / METRICS)
    assert [name for line in lines for name, value in line.items() if min(_numbers(value), default=0) < 0] == []


def test_a_second_signal_ends_it_at_once(small, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small()
    original = ObjectiveTrainer.training_step

    def impatient(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 7:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ObjectiveTrainer, "training_step", impatient)
    with pytest.raises(KeyboardInterrupt):
        run(config)
    # What was saved before is there, nothing newer, and no lock is left behind.
    outputs = Path(config.output_dir)
    assert [path.name for path in (outputs / run_id(config) / "checkpoints").iterdir()] == ["checkpoint-6"]
    assert [path.name for path in outputs.iterdir()] == [run_id(config)]


def test_a_signal_during_the_last_step_still_stops_before_decoding(small, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small("trainer.max_steps=3")
    original = ObjectiveTrainer.training_step

    def late(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 2:
            signal.raise_signal(signal.SIGTERM)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ObjectiveTrainer, "training_step", late)
    monkeypatch.setattr(decode, "decode_splits", lambda *args, **how: pytest.fail("decoded after a signal"))
    with pytest.raises(KeyboardInterrupt):
        run(config)
    assert (Path(config.output_dir) / run_id(config) / "checkpoints" / "checkpoint-3").is_dir()


def test_a_loss_that_diverged_since_the_last_log_line_is_never_saved(small) -> None:
    config = small("trainer.logging_steps=100", "trainer.save_steps=4", "trainer.max_steps=8", "trainer.lr=1e30")
    with pytest.raises(
        Diverged, match=r"training loss is nan at step 3; its examples: (train/\d{5}, ){15}train/\d{5}; no"
    ):
        run(config)
    assert not list((Path(config.output_dir) / run_id(config) / "checkpoints").glob("checkpoint-*"))


def test_a_validation_loss_that_is_not_a_number_is_no_record(small) -> None:
    """One step, whose loss is finite: its update is what breaks the weights."""
    config = small("trainer.logging_steps=100", "trainer.save_steps=0", "trainer.max_steps=1", "trainer.lr=1e30")
    config.trainer.warmup_steps = 0
    with pytest.raises(Diverged, match="validation loss is nan at step 1; its examples: train/"):
        run(config)
    assert not (Path(config.output_dir) / run_id(config) / "record.json").exists()


def test_examples_are_counted_where_an_epoch_does_not_divide(small) -> None:
    """96 rows in batches of 40: 40, 40, 16, then 40 again."""
    assert read_record(run(small("trainer.batch_size=40", "trainer.max_steps=4"))).examples_seen == 136
