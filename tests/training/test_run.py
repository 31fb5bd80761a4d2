"""Whole runs: from a config to a record, interrupted or not."""

import json
from pathlib import Path

import pytest
import torch

from ntl.config import Config, UserError, run_id
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.system.errors import Busy
from ntl.training import run
from ntl.training.checkpoints import is_whole, newest_whole
from ntl.training.parts import RunParts


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def _metrics(config: Config) -> list[dict[str, float]]:
    return [json.loads(line) for line in (_folder(config) / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_a_folder_that_explains_itself(small) -> None:
    config = small()
    path = run(config, ["loss=ntl_was"])
    folder = _folder(config)
    assert path == folder / "record.json"
    names = ["checkpoints", "config.yaml", "metrics.jsonl", "predictions.jsonl", "record.json", "tokenizer"]
    assert sorted(entry.name for entry in folder.iterdir()) == names
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]

    record = read_record(path)
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


def test_a_finished_run_is_not_repeated(small, capsys: pytest.CaptureFixture[str]) -> None:
    config = small("trainer.max_steps=2")
    path = run(config)
    written = path.stat().st_mtime_ns
    assert run(small("trainer.max_steps=2", "decoding=beam")) == path
    assert path.stat().st_mtime_ns == written
    said = capsys.readouterr().out
    assert "finished already" in said
    assert "scripts/predict.py" in said


@pytest.mark.parametrize(
    ("stop_at", "bucketing"),
    [
        (3, "false"),
        (7, "true"),
        *(pytest.param(step, "false", marks=pytest.mark.slow) for step in (6, 7)),
    ],
)
def test_an_interrupted_run_ends_as_an_uninterrupted_one(
    stop_at: int, bucketing: str, small, run_interrupted, tmp_path: Path
) -> None:
    settings = ["model.dropout=0.1", "trainer.logging_steps=5", "trainer.max_steps=11", "trainer.batch_size=30"]
    settings.append(f"trainer.length_bucketing={bucketing}")
    straight = small(*settings)
    run(straight)

    broken = small(*settings, f"output_dir={tmp_path / 'broken'}")
    run_interrupted(broken, stop_at)
    checkpoint, damaged = newest_whole(_folder(broken) / "checkpoints")
    assert (checkpoint and checkpoint.name, damaged) == (f"checkpoint-{stop_at}", [])
    assert not (_folder(broken) / "record.json").exists()

    run(broken)
    # Bit for bit, dropout, order of the data and the mean of a log line that the interruption cut in two.
    assert _metrics(broken) == _metrics(straight)
    records = [read_record(_folder(config) / "record.json") for config in (straight, broken)]
    assert records[0].metrics == records[1].metrics
    assert records[0].predictions_sha256 == records[1].predictions_sha256
    assert records[0].tokens_seen == records[1].tokens_seen


DAMAGES = {
    "truncated": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "bit flipped": lambda content: content[:20] + bytes([content[20] ^ 4]) + content[21:],
    "empty": lambda content: b"",
}


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        ("truncated", "model.safetensors"),
        ("empty", "manifest.json"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("bit flipped", "model.safetensors"),
                ("empty", "model.safetensors"),
                ("one byte short", "optimizer.pt"),
                ("bit flipped", "trainer_state.json"),
            )
        ),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    damage: str, file: str, finished: Path, small, without_times, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = without_times(finished / "record.json")
    (finished / "record.json").unlink()
    path = finished / "checkpoints" / "checkpoint-12" / file
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again = run(small())
    said = capsys.readouterr().out
    assert f"{path.parent}: damaged or unfinished, left aside.\n" in said
    assert f"Continuing from {finished / 'checkpoints' / 'checkpoint-6'}.\n" in said
    assert without_times(again) == expected


def test_resume_never_starts_over(small) -> None:
    config = small("trainer.max_steps=6")
    path = run(config)
    path.unlink()
    run(small("trainer.max_steps=6", "resume=never"))
    assert [line["step"] for line in _metrics(config) if "loss" in line] == [4]


def test_two_processes_at_one_run(small) -> None:
    import fcntl

    config = small()
    folder = _folder(config)
    folder.parent.mkdir(parents=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another process"):
            run(config)


def test_an_output_folder_that_cannot_be_made(small, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"output_dir=.*choose another"):
        run(small(f"output_dir={tmp_path / 'file' / 'outputs'}"))


def test_truncation_and_unknown_tokens_are_told(small) -> None:
    said: list[str] = []
    config = small("trainer.max_input_length=8", "trainer.max_steps=1")
    RunParts(config, say=said.append).trainer(_folder(config) / "checkpoints")
    assert any("96 of 96 training examples are truncated; raise trainer.max_input_length" in line for line in said)


def test_a_published_name_at_tiny_is_remarked(small, capsys: pytest.CaptureFixture[str], data_dir: Path) -> None:
    config = small("trainer.max_steps=1", "model.hub_id=someone/something")
    path = run(small("trainer.max_steps=1"))
    config.tokenizer.path = str(path.parent / "tokenizer")
    run(config)
    assert "scale=paper is what it is for" in capsys.readouterr().out
