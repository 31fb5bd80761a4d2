"""Whole runs, from a config to a record, and what can go wrong on the way."""

import signal
from pathlib import Path

import pytest
import torch

from ntl.config import Config, Diverged, UserError, run_id
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.training import decode, run
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


def test_a_finished_run_is_not_repeated(finished: Path, small, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished / "record.json"
    written = path.stat().st_mtime_ns
    assert run(small("decoding=beam")) == path
    assert path.stat().st_mtime_ns == written
    said = capsys.readouterr().out
    assert "finished already" in said
    assert "scripts/predict.py" in said


def test_a_damaged_checkpoint_is_passed_over(finished: Path, small, without_times, capsys) -> None:
    expected = without_times(finished / "record.json")
    (finished / "record.json").unlink()
    path = finished / "checkpoints" / "checkpoint-12" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    again = run(small())
    said = capsys.readouterr().out
    assert f"{path.parent}: damaged or incomplete; skipped.\n" in said
    assert f"Continuing from {finished / 'checkpoints' / 'checkpoint-6'}.\n" in said
    assert without_times(again) == expected


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


def test_a_kill_while_decoding_repeats_no_step_in_the_middle_of_an_epoch_either(small) -> None:
    """An epoch has 6 steps. transformers itself would take one more of an epoch that was begun."""
    path = run(small("trainer.max_steps=11"))
    record = read_record(path)
    path.unlink()
    again = read_record(run(small("trainer.max_steps=11")))
    assert (again.steps, again.examples_seen, again.tokens_seen) == (11, 11 * 16, record.tokens_seen)
    assert again.metrics == record.metrics
    assert again.curves == record.curves


def test_a_named_checkpoint_is_continued_from(trained_once: Path, small, without_times) -> None:
    """The same run elsewhere, from the checkpoint at step 6 of the finished one."""
    again = run(small(f"resume={trained_once / 'checkpoints' / 'checkpoint-6'}"))
    assert without_times(again) == without_times(trained_once / "record.json")


def test_a_checkpoint_that_is_none_or_beyond_the_last_step(finished: Path, small, tmp_path: Path) -> None:
    config = small(f"resume={tmp_path}", "seed=2")
    with pytest.raises(UserError, match=rf"^resume={tmp_path}: no complete checkpoint; give one like"):
        run(config)
    assert not _folder(config).exists()
    with pytest.raises(UserError, match=r"it already has 12 steps; set trainer\.max_steps"):
        run(small(f"resume={finished / 'checkpoints' / 'checkpoint-12'}", "trainer.max_steps=11"))


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
