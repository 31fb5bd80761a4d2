"""Whole runs, from a config to a record, and what can go wrong on the way."""

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.config import Config, Diverged, UserError, compose, run_id
from ntl.decoding.predictor import predict
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.runs.folder import is_taken, latest_complete, only_one
from ntl.system.errors import Busy
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train
from ntl.training.trainer import ObjectiveTrainer

ROOT = Path(__file__).resolve().parents[2]


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
    assert record.model["precision"] == "fp32"

    header, rows = read_predictions(folder / "predictions.jsonl")
    assert (header["dataset"], len(rows)) == ("noisy_numbers", 30)
    assert all({"split", "id", "answer", "prediction", "truth"} == set(row) for row in rows)


def test_a_finished_run_is_not_repeated(finished: Path, small, capsys: pytest.CaptureFixture[str]) -> None:
    path = finished / "record.json"
    written = path.stat().st_mtime_ns
    assert train(small("decoding=beam")) == path
    assert path.stat().st_mtime_ns == written
    said = capsys.readouterr().out
    assert "finished already" in said
    assert "scripts/predict.py" in said
    path.write_text(path.read_text().replace(finished.name, f"{finished.name}0"))
    with pytest.raises(UserError, match="the record of another run"):
        train(small())


def test_a_damaged_checkpoint_is_passed_over(finished: Path, small, without_times, capsys) -> None:
    expected = without_times(finished / "record.json")
    (finished / "record.json").unlink()
    path = finished / "checkpoints" / "checkpoint-12" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    again = train(small())
    said = capsys.readouterr().out
    assert f"{path.parent}: damaged or incomplete; skipped.\n" in said
    assert f"Continuing from {finished / 'checkpoints' / 'checkpoint-6'}.\n" in said
    assert without_times(again) == expected


@pytest.mark.slow
def test_a_kill_while_decoding_costs_the_decoding_alone(small, without_times, monkeypatch) -> None:
    """In the middle of an epoch of 6 steps: transformers itself would take one more of it."""
    path = train(small("trainer.max_steps=11"))
    expected, lines = without_times(path), read_metrics(path.with_name(METRICS))
    for name in ("record.json", "predictions.jsonl"):
        path.with_name(name).unlink()
    monkeypatch.setattr(ObjectiveTrainer, "training_step", lambda *args: pytest.fail("a step was repeated"))
    assert without_times(train(small("trainer.max_steps=11"))) == expected
    assert read_metrics(path.with_name(METRICS)) == lines


def test_a_checkpoint_that_is_none_or_beyond_the_last_step(finished: Path, small, tmp_path: Path) -> None:
    config = small(f"resume={tmp_path}", "seed=2")
    with pytest.raises(UserError, match=rf"^resume={tmp_path}: no complete checkpoint; give one like"):
        train(config)
    assert not _folder(config).exists()
    with pytest.raises(UserError, match=r"it already has 12 steps; set trainer\.max_steps"):
        train(small(f"resume={finished / 'checkpoints' / 'checkpoint-12'}", "trainer.max_steps=11"))


def test_a_loss_that_diverged_since_the_last_log_line_is_never_saved(small) -> None:
    config = small("trainer.logging_steps=100", "trainer.save_steps=4", "trainer.max_steps=8", "trainer.lr=1e30")
    with pytest.raises(Diverged, match="training loss is nan at step 3; no checkpoint was saved before;"):
        train(config)
    assert not list((_folder(config) / "checkpoints").glob("checkpoint-*"))


def test_an_evaluation_of_a_model_that_diverged_names_the_step(small) -> None:
    """Before its answers are decoded, which would not."""
    config = small("trainer.logging_steps=100", "trainer.eval_steps=4", "trainer.eval_decoded=true", "trainer.lr=1e30")
    with pytest.raises(Diverged, match="validation loss is nan at step 3; no checkpoint was saved before;"):
        train(config)


def test_examples_are_counted_where_an_epoch_does_not_divide(small) -> None:
    """96 rows in batches of 40: 40, 40, 16, then 40 again."""
    assert read_record(train(small("trainer.batch_size=40", "trainer.max_steps=4"))).examples_seen == 136


@pytest.mark.parametrize(("name", "value"), [("LOCAL_RANK", "0"), ("RANK", "1"), ("WORLD_SIZE", "2"), ("RANK", "")])
def test_a_part_of_what_a_launcher_sets_is_refused(name: str, value: str, finished: Path, small, monkeypatch) -> None:
    """Left over in a shell. Values that a single process may have are no harm."""
    monkeypatch.setenv(name, value)
    line = f"^{name}={value}: set .* without .*, MASTER_PORT; run `unset RANK WORLD_SIZE LOCAL_RANK`"
    for start in (lambda: train(small()), lambda: train(small("seed=2")), lambda: predict(finished)):
        with pytest.raises(UserError, match=line):
            start()
    assert list(finished.parent.iterdir()) == [finished]
    for each, harmless in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "-1"}.items():
        monkeypatch.setenv(each, harmless)
    assert train(small()) == finished / "record.json"


@pytest.mark.slow
def test_it_is_refused_before_torch_is_imported(settings: Callable[..., list[str]]) -> None:
    program = """
import atexit, runpy, sys
atexit.register(lambda: print("torch" in sys.modules))
runpy.run_path("train.py", run_name="__main__")
"""
    words = [sys.executable, "-c", program, *settings()]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"LOCAL_RANK": "0"})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "False\n", 1)
    assert done.stderr.startswith("error: LOCAL_RANK=0: set in the environment as torchrun sets it")


@pytest.mark.slow
def test_a_finished_run_is_reported_without_torch(finished: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from ntl.config.composition import read_config
from ntl.training.train import train
print(train(read_config(Path({str(finished)!r}))))
print("torch" in sys.modules or "transformers" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, path, torch_is_loaded = done.stdout.splitlines()
    assert Path(path) == finished / "record.json"
    assert "finished already" in said
    assert torch_is_loaded == "False"


def test_weights_that_are_not_there_are_told_before_anything_is_made(settings, tmp_path: Path) -> None:
    words = [word for word in settings() if not word.startswith("model.")]
    config = compose([*words, "model=gpt2_small", "model.path=nobody/nothing"])
    with pytest.raises(UserError, match=r"nobody/nothing.*model.pretrained=false"):
        train(config)
    assert not Path(config.output_dir).exists()


def test_one_process_at_a_run_and_no_file_left(finished: Path, small, second_rank) -> None:
    """After an error the next may have it; the other ranks of a run need no lock."""
    (finished / "record.json").unlink()
    with pytest.raises(ZeroDivisionError), only_one(finished):
        raise ZeroDivisionError
    with only_one(finished):
        assert is_taken(finished)
        with pytest.raises(Busy, match="another process"):
            train(small())
        with only_one(finished.parent / "other"):
            pass
        with second_rank(), only_one(finished):
            pass
        assert is_taken(finished)
    assert not is_taken(finished)
    assert train(small()) == finished / "record.json"
    assert list(finished.parent.iterdir()) == [finished]


def test_a_file_system_without_locks_is_a_warning(finished: Path, small, monkeypatch, capsys) -> None:
    """Neither another process that is not there, nor a wait without end, nor silence."""

    def fail(handle: object, flags: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    (finished / "record.json").unlink()
    assert train(small()) == finished / "record.json"
    assert capsys.readouterr().out.count("this file system has no locks") == 1
    assert list(finished.parent.iterdir()) == [finished]


@pytest.mark.slow
def test_a_sweep_ends_with_the_comparison_of_its_runs(settings, command) -> None:
    """Also where a run of it cannot be: its error comes last, with its exit code."""
    done = command("train.py", "-m", *settings("loss=ce,ntl_was,squared_error"))
    assert (done.returncode, done.stderr.splitlines()[-1][:17]) == (2, "error: model=gpt2")
    printed = done.stdout[done.stdout.rindex("Record: ") :]
    assert "\nnoisy_numbers\n" in printed
    rows = [line.split()[0] for line in printed.splitlines() if line.startswith("loss=")]
    # In both tables: of metrics, and of readings, where the answers of so few steps are no numbers.
    assert rows[:2] == ["loss=ce", "loss=ntl_was"]
    assert set(rows) == set(rows[:2])
    assert "[95% t interval]" in printed


ONE_LINE = r"^[^\n]*: a file could not be written whole \([^\n]*\): is the disk full, or read-only\? Make room, [^\n]*$"


@pytest.fixture
def on_tmpfs(small: Callable[..., Config], tmp_path: Path, mount: Callable[..., None]) -> Config:
    """The config of the ``finished`` run, with the folder of outputs on a file system of 4 MiB."""
    outputs = tmp_path / "small_disk"
    outputs.mkdir()
    mount(outputs, "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    return small(f"output_dir={outputs}")


def fill(folder: Path, leave: int) -> Path:
    """A file that takes all room but ``leave`` bytes."""
    filler, status = folder / "filler", os.statvfs(folder)
    filler.write_bytes(bytes(status.f_bavail * status.f_frsize - leave))
    return filler


@pytest.mark.slow
def test_a_disk_that_fills_up_while_a_checkpoint_is_written(
    on_tmpfs: Config, finished: Path, without_times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before it stays, and with room the run ends as it would."""
    folder = Path(on_tmpfs.output_dir) / run_id(on_tmpfs)
    original, fillers = ObjectiveTrainer._save_checkpoint, []

    def save(self: ObjectiveTrainer, *args: Any) -> None:
        if self.state.global_step == 12:
            fillers.append(fill(Path(on_tmpfs.output_dir), leave=40 << 10))
        original(self, *args)

    monkeypatch.setattr(ObjectiveTrainer, "_save_checkpoint", save)
    with pytest.raises(UserError, match=ONE_LINE):
        train(on_tmpfs)
    monkeypatch.setattr(ObjectiveTrainer, "_save_checkpoint", original)
    checkpoint, _ = latest_complete(folder / "checkpoints")
    assert checkpoint == folder / "checkpoints" / "checkpoint-6"
    fillers[0].unlink()
    assert without_times(train(on_tmpfs)) == without_times(finished / "record.json")


def test_a_read_only_folder_of_outputs(finished: Path, small, make_read_only, capsys) -> None:
    make_read_only(finished.parent)
    assert train(small()) == finished / "record.json"
    assert "finished already" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"^output_dir=\S+: Read-only file system; choose another by output_dir=\.$"):
        train(small("seed=2"))


def write_manifest_again(file: Path) -> None:
    """As a preparation from another source would: the manifest vouches for the file."""
    path = file.with_name("manifest.json")
    manifest = json.loads(path.read_text())
    entry = manifest["splits"][file.stem]
    entry |= {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "bytes": file.stat().st_size}
    path.write_text(json.dumps(manifest))


@pytest.mark.slow
def test_data_that_changed_before_a_resume(small, prepared, run_interrupted, tmp_path: Path) -> None:
    """One digit, where the data was prepared anew: refused with both fingerprints; ``resume=never`` trains on it."""
    settings = ["trainer.max_steps=8", f"data_dir={tmp_path / 'data'}"]
    config = small(*settings)
    run_interrupted(config, 5)
    checkpoints = Path(config.output_dir) / run_id(config) / "checkpoints"
    file = prepared(config) / "train.jsonl"
    before = file.read_bytes()
    digit = re.search(rb'"answer":"(\d)', before)
    assert digit
    changed = bytearray(before)
    changed[digit.start(1)] = ord("1") if digit[1] != b"1" else ord("2")
    file.write_bytes(changed)
    write_manifest_again(file)
    digests = [hashlib.sha256(content).hexdigest() for content in (before, changed)]
    told = f"train.jsonl had sha256 {digests[0]} and has {digests[1]}; restore it, or start over with resume=never."
    with pytest.raises(UserError, match=re.escape(told)):
        train(config)
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-5"]
    record = read_record(train(small(*settings, "resume=never")))
    assert record.data["files"]["train.jsonl"] == digests[1]


def test_a_finished_run_of_other_data_is_not_finished_in_silence(
    small, prepared, finished: Path, data_dir: Path, tmp_path: Path
) -> None:
    data = Path(shutil.copytree(data_dir, tmp_path / "data"))
    config = small(f"data_dir={data}")
    file = prepared(config) / "test.jsonl"
    before, manifest = file.read_bytes(), (file.parent / "manifest.json").read_bytes()
    file.write_bytes(before.replace(b'"answer":"1', b'"answer":"2'))
    write_manifest_again(file)
    record = (finished / "record.json").read_bytes()
    digests = [hashlib.sha256(content).hexdigest() for content in (before, file.read_bytes())]
    told = f"the data has changed: test.jsonl had sha256 {digests[0]} and has {digests[1]}"
    with pytest.raises(UserError, match=told):
        train(config)
    with pytest.raises(UserError, match=r"checkpoint-12: the data is not what it was trained on: test\.jsonl had"):
        predict(finished, [f"data_dir={data}"])
    assert (finished / "record.json").read_bytes() == record
    file.write_bytes(before)
    (file.parent / "manifest.json").write_bytes(manifest)
    assert train(config) == finished / "record.json"
    # Nowhere prepared: nothing is known of it, and nothing is prepared to find out.
    shutil.rmtree(file.parent)
    assert train(config) == finished / "record.json"
    assert not file.exists()
