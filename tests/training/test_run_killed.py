"""Runs that are killed without a word, and started again by the same command."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntl.config import compose, run_id
from ntl.config.composition import CONFIG_DIR
from ntl.results import RunRecord, read_record
from ntl.training import run
from ntl.training.checkpoints import newest_whole
from ntl.training.tracking import METRICS, read_metrics

SETTINGS = ["dataset=arithmetic", "loss=ntl_was", "trainer.max_steps=200", "trainer.save_steps=50", "tracking=none"]


def _lines(folder: Path) -> list[dict[str, float]]:
    return read_metrics(folder / METRICS)


@pytest.mark.slow
@pytest.mark.data
def test_a_killed_run_ends_as_one_that_was_not(data_root: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "NTL_DATA_DIR": str(data_root)}

    def start(outputs: str) -> "tuple[subprocess.Popen[str], Path]":
        places = ["device=cpu", f"data_dir={tmp_path / 'data'}", f"output_dir={tmp_path / outputs}"]
        command = [sys.executable, str(CONFIG_DIR.parent / "train.py"), *SETTINGS, *places]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        return process, tmp_path / outputs / run_id(compose([*SETTINGS, *places]))

    def finish(outputs: str) -> RunRecord:
        process, folder = start(outputs)
        said, _ = process.communicate(timeout=550)
        assert process.returncode == 0, said
        return read_record(folder / "record.json")

    straight = finish("straight")
    assert straight.data["rows"] == {"train": 99_999, "validation": 3_000, "interpolate": 1_000, "extrapolate": 1_000}

    process, folder = start("killed")
    with process:
        while process.poll() is None and newest_whole(folder / "checkpoints")[0] is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (folder / "record.json").exists()
    assert 0 < len(_lines(folder)) < len(_lines(tmp_path / "straight" / folder.name))

    again = finish("killed")
    assert _lines(folder) == _lines(tmp_path / "straight" / folder.name)
    assert again.metrics == straight.metrics
    assert again.predictions_sha256 == straight.predictions_sha256
    assert (again.examples_seen, again.tokens_seen) == (straight.examples_seen, straight.tokens_seen)


TRAIN = str(CONFIG_DIR.parent / "train.py")
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
    assert _lines(folder) == _lines(straight)
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
    assert _lines(folder) == _lines(straight)
    # No part of a file is left behind.
    assert _snapshot(folder) == _snapshot(straight)
