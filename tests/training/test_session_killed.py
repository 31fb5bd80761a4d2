"""A run on the real arithmetic file, killed without a word and started again by the same command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntl.config import compose, run_id
from ntl.config.composition import CONFIG_DIR
from ntl.results import RunRecord, read_record
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
