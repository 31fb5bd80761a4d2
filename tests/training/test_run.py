"""Whole runs, from a config to a record, and what can go wrong on the way."""

import itertools
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ntl.config import Config, Diverged, UserError, run_id
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training import decode, run
from ntl.training.checkpoints import METERS, is_whole, newest_whole, read_meters, write_manifest
from ntl.training.tracking import METRICS, read_metrics
from ntl.training.trainer import ObjectiveTrainer


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def test_a_run_leaves_a_folder_that_explains_itself(trained_once: Path) -> None:
    folder = trained_once
    names = ["checkpoints", "config.yaml", "metrics.jsonl", "predictions.jsonl", "record.json", "tokenizer"]
    assert sorted(entry.name for entry in folder.iterdir()) == names
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]

    record = read_record(folder / "record.json")
    assert (record.id, record.seed, record.steps, record.examples_seen) == (folder.name, 1, 12, 12 * 16)
    assert record.config["trainer"]["max_steps"] == 12
    assert record.overrides == ["loss=ntl_was"]
    assert not {"output_dir", "data_dir", "device"} & set(record.config)
    assert record.data["rows"] == {"train": 96, "validation": 20, "test": 30}
    assert {"test/accuracy", "test/rmse_truth", "test/accuracy@paper", "validation/ce"} <= set(record.metrics)
    assert [step for step, _ in record.curves["loss"]] == [4, 8, 12]
    assert record.tokens_seen > 12 * 16 * 8
    assert record.packages["torch"] == torch.__version__

    header, rows = read_predictions(folder / "predictions.jsonl")
    assert (header["dataset"], len(rows)) == ("noisy_numbers", 30)
    assert all({"split", "id", "answer", "prediction", "truth"} == set(row) for row in rows)


def test_one_checkpoint_stays_of_a_run_that_ended_well(small, run_interrupted) -> None:
    config = small("trainer.save_steps=3", "trainer.keep_checkpoints_after=1")
    run_interrupted(config, 10)
    checkpoints = _folder(config) / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"checkpoint-9", "checkpoint-10"}
    run(config)
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-12"]
    assert is_whole(checkpoints / "checkpoint-12")


def test_a_finished_run_is_not_repeated(finished: Path, small, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished / "record.json"
    written = path.stat().st_mtime_ns
    assert run(small("decoding=beam")) == path
    assert path.stat().st_mtime_ns == written
    said = capsys.readouterr().out
    assert "finished already" in said
    assert "scripts/predict.py" in said


@pytest.mark.parametrize(("file", "left"), [("model.safetensors", 100), ("manifest.json", 0)])
def test_a_damaged_checkpoint_is_passed_over(
    file: str, left: int, finished: Path, small, without_times, capsys
) -> None:
    expected = without_times(finished / "record.json")
    (finished / "record.json").unlink()
    path = finished / "checkpoints" / "checkpoint-12" / file
    path.write_bytes(path.read_bytes()[:left])
    again = run(small())
    said = capsys.readouterr().out
    assert f"{path.parent}: damaged or incomplete; skipped.\n" in said
    assert f"Continuing from {finished / 'checkpoints' / 'checkpoint-6'}.\n" in said
    assert without_times(again) == expected


def test_resume_never_starts_over(finished: Path, small, capsys: pytest.CaptureFixture[str]) -> None:
    (finished / "record.json").unlink()
    run(small("resume=never"))
    assert "Continuing from" not in capsys.readouterr().out
    assert [line["step"] for line in read_metrics(finished / METRICS) if "loss" in line] == [4, 8, 12]


def test_an_output_folder_that_cannot_be_made(small, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"output_dir=.*choose another"):
        run(small(f"output_dir={tmp_path / 'file' / 'outputs'}"))


def test_truncation_and_unknown_tokens_are_told(parts, tmp_path: Path) -> None:
    said: list[str] = []
    made = parts("trainer.max_input_length=8", "trainer.max_steps=1", say=said.append)
    made.trainer(tmp_path / "checkpoints")
    assert any("96 of 96 training examples are truncated; raise trainer.max_input_length" in line for line in said)
    made.warn_of_lost_text("test")
    assert said[-1] == "30 of 30 test examples are truncated; raise trainer.max_input_length to keep their text."


def test_a_published_name_at_tiny_is_remarked(small, capsys: pytest.CaptureFixture[str], trained_once: Path) -> None:
    config = small("trainer.max_steps=1", "model.hub_id=someone/something")
    config.tokenizer.path = str(trained_once / "tokenizer")
    run(config)
    assert "meant for scale=paper" in capsys.readouterr().out


def test_a_kill_while_decoding_costs_the_decoding_alone(finished: Path, small, monkeypatch) -> None:
    """The checkpoint is there, so the same command decodes again: same metrics, same lines, no step repeated."""
    record, lines = read_record(finished / "record.json"), read_metrics(finished / METRICS)
    for name in ("record.json", "predictions.jsonl"):
        (finished / name).unlink()
    monkeypatch.setattr(ObjectiveTrainer, "training_step", lambda *args: pytest.fail("a step was repeated"))
    again = read_record(run(small()))
    assert (again.metrics, again.curves) == (record.metrics, record.curves)
    assert again.predictions_sha256 == record.predictions_sha256
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


@pytest.mark.parametrize("seconds", [1000.0, None])
def test_the_wall_time_covers_all_processes_of_a_run(seconds: float | None, finished: Path, small) -> None:
    """The earlier ones up to the checkpoint; one of a version that did not write its time counts as 0 s."""
    checkpoints = finished / "checkpoints"
    at_6, at_12 = (read_meters(checkpoints / f"checkpoint-{step}" / METERS).seconds for step in (6, 12))
    assert 0 < at_6 < at_12 < read_record(finished / "record.json").wall_time_s
    (finished / "record.json").unlink()
    shutil.rmtree(checkpoints / "checkpoint-12")
    path = checkpoints / "checkpoint-6" / METERS
    others = {name: value for name, value in json.loads(path.read_text()).items() if name != "seconds"}
    path.write_text(json.dumps(others if seconds is None else {**others, "seconds": seconds}))
    write_manifest(path.parent)
    before, began = seconds or 0, time.monotonic()
    again = read_record(run(small()))
    assert before < again.wall_time_s < before + time.monotonic() - began
    assert again.steps == 12
    assert read_meters(checkpoints / "checkpoint-12" / METERS).seconds > before


def test_a_named_checkpoint_is_continued_from(finished: Path, small, without_times, tmp_path: Path) -> None:
    """The same run elsewhere, from the checkpoint at step 6 of the finished one."""
    checkpoint = finished / "checkpoints" / "checkpoint-6"
    again = run(small(f"resume={checkpoint}", f"output_dir={tmp_path / 'other'}"))
    assert without_times(again) == without_times(finished / "record.json")


def test_a_checkpoint_that_is_none_or_beyond_the_last_step(finished: Path, small, tmp_path: Path) -> None:
    config = small(f"resume={tmp_path}", "seed=2")
    with pytest.raises(UserError, match=rf"^resume={tmp_path}: no complete checkpoint; give one like"):
        run(config)
    assert not _folder(config).exists()
    with pytest.raises(UserError, match=r"it already has 12 steps; set trainer\.max_steps"):
        run(small(f"resume={finished / 'checkpoints' / 'checkpoint-12'}", "trainer.max_steps=11"))


def test_weights_of_another_model(finished: Path, small) -> None:
    """In the run's own folder, from before a checkpoint said of which run it is."""
    config = small("model.n_embd=8")
    folder = _folder(config) / "checkpoints"
    checkpoint = Path(shutil.copytree(finished / "checkpoints" / "checkpoint-6", folder / "checkpoint-6"))
    (checkpoint / "run.json").unlink()
    write_manifest(checkpoint)
    with pytest.raises(UserError, match="checkpoint-6: its weights do not fit this run's model"):
        run(config)


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield value


@pytest.mark.slow
def test_a_clock_that_is_set_back(small, run_interrupted, without_times, tmp_path: Path, monkeypatch) -> None:
    """At every look, so within an evaluation, too: nothing is negative, and nothing else differs."""
    settings = ["trainer.max_steps=8", "trainer.save_steps=3", "trainer.eval_steps=4"]
    straight = run(small(*settings, f"output_dir={tmp_path / 'straight'}"))
    now, calls = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: now() - 3600 * next(calls))
    config = small(*settings)
    run_interrupted(config, 5)
    checkpoints = _folder(config) / "checkpoints"
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


def test_a_second_signal_ends_it_at_once(small, run_interrupted) -> None:
    config = small()
    run_interrupted(config, 8, signal.SIGINT, signal.SIGINT)
    # What was saved before is there, nothing newer, and no lock is left behind.
    assert [path.name for path in (_folder(config) / "checkpoints").iterdir()] == ["checkpoint-6"]
    assert [path.name for path in Path(config.output_dir).iterdir()] == [run_id(config)]


def test_a_signal_during_the_last_step_still_stops_before_decoding(small, run_interrupted, monkeypatch) -> None:
    config = small("trainer.max_steps=3")
    monkeypatch.setattr(decode, "decode_splits", lambda *args, **how: pytest.fail("decoded after a signal"))
    run_interrupted(config, 3, signal.SIGTERM)
    assert (_folder(config) / "checkpoints" / "checkpoint-3").is_dir()


def test_a_loss_that_diverged_since_the_last_log_line_is_never_saved(small) -> None:
    config = small("trainer.logging_steps=100", "trainer.save_steps=4", "trainer.max_steps=8", "trainer.lr=1e30")
    told = r"training loss is nan at step 3; its examples: (train/\d{5}, ){15}train/\d{5}; no"
    with pytest.raises(Diverged, match=told):
        run(config)
    assert not list((_folder(config) / "checkpoints").glob("checkpoint-*"))


def test_a_validation_loss_that_is_not_a_number_is_no_record(small) -> None:
    """One step, whose loss is finite: its update is what breaks the weights."""
    config = small("trainer.logging_steps=100", "trainer.save_steps=0", "trainer.max_steps=1", "trainer.lr=1e30")
    config.trainer.warmup_steps = 0
    with pytest.raises(Diverged, match="validation loss is nan at step 1; its examples: train/"):
        run(config)
    assert not (_folder(config) / "record.json").exists()


def test_examples_are_counted_where_an_epoch_does_not_divide(small) -> None:
    """96 rows in batches of 40: 40, 40, 16, then 40 again."""
    assert read_record(run(small("trainer.batch_size=40", "trainer.max_steps=4"))).examples_seen == 136
