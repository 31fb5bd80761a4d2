"""Whole runs, from a config to a record, and what can go wrong on the way."""

import errno
import fcntl
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.config import Config, Diverged, UserError, compose, run_id
from ntl.config.folders import CONFIG_DIR
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


def test_a_finished_run_is_not_repeated(finished: Path, small, caplog: pytest.LogCaptureFixture) -> None:
    path = finished / "record.json"
    written = path.stat().st_mtime_ns
    assert train(small("decoding=beam")) == path
    assert path.stat().st_mtime_ns == written
    assert "finished already" in caplog.text
    assert "It was decoded with decoding.name=greedy, decoding.num_beams=1, " in caplog.text
    assert "scripts/predict.py" in caplog.text
    path.write_text(path.read_text().replace(finished.name, f"{finished.name}0"))
    with pytest.raises(UserError, match="the record of another run"):
        train(small())


def test_a_warm_up_that_is_longer_than_the_run_is_said(small, caplog: pytest.LogCaptureFixture) -> None:
    train(small("trainer.max_steps=1"))
    assert "trainer.warmup_steps=2 trainer.max_steps=1: the learning rate rises to the last step" in caplog.text


def test_a_damaged_checkpoint_is_passed_over(finished: Path, small, without_times, caplog) -> None:
    expected = without_times(finished / "record.json")
    (finished / "record.json").unlink()
    path = finished / "checkpoints" / "checkpoint-12" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    again = train(small())
    assert f"{path.parent}: damaged or incomplete; skipped." in caplog.messages
    assert f"Continuing from {finished / 'checkpoints' / 'checkpoint-6'}." in caplog.messages
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


@pytest.mark.parametrize("which", ["training", "validation"])
def test_a_loss_that_diverged_since_the_last_log_line_is_never_saved(which: str, small) -> None:
    """Nor are answers decoded, which would not; the line names the step where it began."""
    every = ["save_steps=4", "max_steps=8"] if which == "training" else ["eval_steps=4", "eval_decoded=true"]
    config = small("trainer.logging_steps=100", "trainer.lr=1e30", *(f"trainer.{each}" for each in every))
    with pytest.raises(Diverged, match=f"{which} loss is nan at step 3; no checkpoint was saved before;"):
        train(config)
    assert not list((_folder(config) / "checkpoints").glob("checkpoint-*"))


def test_examples_are_counted_where_an_epoch_does_not_divide(small) -> None:
    """96 rows in batches of 40: 40, 40, 16, then 40 again."""
    assert read_record(train(small("trainer.batch_size=40", "trainer.max_steps=4"))).examples_seen == 136


def test_a_part_of_what_a_launcher_sets_is_refused(finished: Path, small, monkeypatch) -> None:
    """Left over in a shell. Values that a single process may have are no harm."""
    for name, value in (("LOCAL_RANK", "0"), ("RANK", "1"), ("WORLD_SIZE", "2"), ("RANK", "")):
        monkeypatch.setenv(name, value)
        for start in (lambda: train(small()), lambda: train(small("seed=2")), lambda: predict(finished)):
            with pytest.raises(UserError, match=f"^{name}={value}: .*run `unset RANK WORLD_SIZE LOCAL_RANK`"):
                start()
        monkeypatch.delenv(name)
    assert list(finished.parent.iterdir()) == [finished]
    for name, harmless in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "-1"}.items():
        monkeypatch.setenv(name, harmless)
    assert train(small()) == finished / "record.json"


@pytest.mark.slow
def test_what_needs_no_torch_does_not_import_it(settings: Callable[..., list[str]], finished: Path) -> None:
    """A refusal, and a run that is finished."""
    program = """
import atexit, runpy, sys
atexit.register(lambda: print("torch" in sys.modules or "transformers" in sys.modules))
runpy.run_path("train.py", run_name="__main__")
"""
    words = [sys.executable, "-c", program, *settings()]
    refused, reported = (
        subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=os.environ | more)
        for more in ({"LOCAL_RANK": "0"}, {})
    )
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "False\n", 1)
    assert refused.stderr.startswith("error: LOCAL_RANK=0: set in the environment as torchrun sets it")
    assert "finished already" in reported.stdout
    assert (reported.returncode, reported.stdout.splitlines()[-1]) == (0, "False")


FEW = "dataset.train_rows=96 dataset.validation_rows=8 dataset.test_rows=2"
NOISY, INDUCTION = f"dataset=noisy_numbers {FEW} model", f"dataset=induction {FEW} model=gpt2_tiny"
MASKED = "objective.mask.fraction=0.15"
REFUSED = [
    (f"{NOISY}=gpt2_small model.path=nobody/nothing", r"nobody/nothing.*model\.pretrained=false"),
    (f"{NOISY}=gpt2_tiny trainer=ddp", r"trainer\.parallel=ddp: "),
    (f"{NOISY}=gpt2_tiny resume={ROOT}/tests", r"resume=\S+/tests: no complete checkpoint"),
    (f"{NOISY}=granite_moe_tiny trainer.max_tokens_per_batch=40", "max_tokens_per_batch=40 model=granite_moe_tiny: "),
    (f"{NOISY}=gpt2_tiny {MASKED} objective.mask.copy=concatenate", r"objective\.mask\.min_answer="),
    (f"{INDUCTION} {MASKED} objective.mask.numbers=only", r"objective\.mask\.numbers=only dataset=induction: "),
]


@pytest.mark.parametrize(("words", "named"), REFUSED)
def test_what_cannot_be_trained_is_one_line_before_anything_is_made(words: str, named: str, data_dir, tmp_path) -> None:
    config = compose([*words.split(), "tracking=none", "device=cpu", f"data_dir={data_dir}", f"output_dir={tmp_path}"])
    with pytest.raises(UserError, match=named) as caught:
        train(config)
    assert "\n" not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


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


def test_a_file_system_without_locks_is_a_warning(finished: Path, small, monkeypatch, caplog) -> None:
    """Neither another process that is not there, nor a wait without end, nor silence."""

    def fail(handle: object, flags: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    (finished / "record.json").unlink()
    assert train(small()) == finished / "record.json"
    assert caplog.text.count("this file system has no locks") == 1
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
def test_a_disk_that_fills_up_while_a_checkpoint_is_written(on_tmpfs, finished, without_times, monkeypatch) -> None:
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


def test_a_read_only_folder_of_outputs(finished: Path, small, make_read_only, caplog) -> None:
    make_read_only(finished.parent)
    assert train(small()) == finished / "record.json"
    assert "finished already" in caplog.text
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


def test_a_finished_run_of_other_data_is_not_finished_in_silence(small, prepared, finished, data_dir, tmp_path) -> None:
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


# ---- secrets of the environment are planted, and whatever a run has written is searched

PLANTED = {
    "WANDB_API_KEY": "5ec4e7" * 6 + "beef",
    "HF_TOKEN": "hf_planted5ec4e7planted5ec4e7planted",
    "HUGGING_FACE_HUB_TOKEN": "hf_other5ec4e7other5ec4e7other5ec4e7",
    "AWS_SECRET_ACCESS_KEY": "aws+planted/5ec4e7",
    "MY_PASSWORD": "correct-horse-5ec4e7",
}
make_tables = runpy.run_path(str(CONFIG_DIR.parent / "scripts" / "make_tables.py"))["main"]
PROXY = "http://me:proxy5ec4e7@127.0.0.1:9"


@pytest.mark.slow
def test_nothing_that_a_run_writes_or_says_holds_a_secret(
    settings: Callable[..., list[str]], tmp_path: Path, trained_once: Path, command, monkeypatch, capsys
) -> None:
    # Also where somebody typed one: as the name of a group, which W&B alone is told, and in a path that is recorded.
    tokenizer = shutil.copytree(trained_once / "tokenizer", tmp_path / PLANTED["HF_TOKEN"] / "tokenizer")
    words = settings("tracking=wandb", f"tracking.group={PLANTED['HF_TOKEN']}", f"tokenizer.path={tokenizer}")
    environment = {**os.environ, **PLANTED, "WANDB_MODE": "offline", "https_proxy": PROXY, "http_proxy": PROXY}
    done = command("train.py", *words, env=environment)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "outputs" / run_id(compose(words))
    places = ("--records", str(folder.parent), "--out", str(tmp_path / "tables"))
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    make_tables(["quickstart", *places])
    said = done.stdout + done.stderr + "".join(capsys.readouterr())
    assert "Record: " in said
    assert "5ec4e7" not in said
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"record.json", "config.yaml", "metrics.jsonl", "predictions.jsonl"} <= {path.name for path in written}
    assert "group: <HF_TOKEN>" in (folder / "config.yaml").read_text()
    assert f"path: {tmp_path}/<HF_TOKEN>/tokenizer" in (folder / "config.yaml").read_text()
    found = [path.relative_to(tmp_path) for path in written if b"5ec4e7" in path.read_bytes()]
    # W&B's own file of the run is told the name of its group, and the command line.
    assert {path.parts[2] for path in found} <= {"wandb"}
    for name, value in PLANTED.items():
        if name != "HF_TOKEN":
            assert not any(value.encode() in path.read_bytes() for path in written), name
