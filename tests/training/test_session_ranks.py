"""Two ranks on one machine, as torchrun starts them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntl.config import Config, compose, run_id
from ntl.config.composition import CONFIG_DIR
from ntl.results import read_record
from ntl.training import run
from ntl.training.checkpoints import newest_whole
from ntl.training.tracking import METRICS, read_metrics

TIMES = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
# 21 validation rows: the last batch of an evaluation is not full.
SETTINGS = ["dataset.validation_rows=21", "trainer.eval_batch_size=4", "trainer.logging_steps=3"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def _on_two_ranks(settings, folder: Path, *overrides: str) -> tuple[list[str], Config]:
    """The command line, and the config that it composes."""
    chosen = settings(*SETTINGS, *overrides, f"output_dir={folder}")
    return [*TORCHRUN, str(CONFIG_DIR.parent / "train.py"), *chosen], compose(chosen)


def _folder(config: Config) -> Path:
    return Path(config.output_dir) / run_id(config)


def _lines(folder: Path) -> list[dict[str, float]]:
    return [
        {name: value for name, value in line.items() if name not in TIMES} for line in read_metrics(folder / METRICS)
    ]


@pytest.mark.parametrize("accumulated", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_ranks_compute_what_one_process_does(accumulated: int, settings, small, tmp_path: Path) -> None:
    shared = ["trainer.max_steps=10", "trainer.save_steps=5", "trainer.eval_steps=4"]
    batches = [f"trainer.batch_size={8 // accumulated}", f"trainer.accumulation_steps={accumulated}"]
    command, config = _on_two_ranks(settings, tmp_path / "two", *shared, *batches)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("decoded test: 30 examples") == done.stdout.count("Record: ") == 1

    one, two = run(small(*SETTINGS, *shared, "trainer.batch_size=16")).parent, _folder(config)
    for line, expected in zip(_lines(two), _lines(one), strict=True):
        assert line == pytest.approx(expected, rel=1e-5)
    records = [read_record(folder / "record.json") for folder in (one, two)]
    assert [record.num_devices for record in records] == [1, 2]
    assert [record.examples_seen for record in records] == [160, 160]
    assert records[0].tokens_seen == records[1].tokens_seen
    assert records[0].metrics["validation/ce"] == pytest.approx(records[1].metrics["validation/ce"], rel=1e-5)
    assert records[0].predictions_sha256 == records[1].predictions_sha256
    checkpoint, damaged = newest_whole(two / "checkpoints")
    assert (checkpoint and checkpoint.name, damaged) == ("checkpoint-10", [])
    manifest = json.loads((two / "checkpoints" / "checkpoint-5" / "manifest.json").read_text())
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(manifest)
    assert [path.name for path in two.parent.iterdir()] == [two.name]


@pytest.mark.slow
def test_an_interrupt_stops_both_at_one_step_and_the_rest_is_the_same(settings, tmp_path: Path) -> None:
    # 7 steps a log line: the interruption cuts one in two.
    shared = ["trainer.max_steps=600", "trainer.save_steps=0", "trainer.batch_size=8", "model.dropout=0.1"]
    shared.append("trainer.logging_steps=7")
    straight_command, straight = _on_two_ranks(settings, tmp_path / "straight", *shared)
    subprocess.run(straight_command, check=True, capture_output=True, timeout=300)

    command, broken = _on_two_ranks(settings, tmp_path / "broken", *shared)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not any("loss" in line for line in read_metrics(_folder(broken) / METRICS)):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    checkpoint, damaged = newest_whole(_folder(broken) / "checkpoints")
    assert checkpoint is not None, said
    assert damaged == []
    assert not (_folder(broken) / "record.json").exists()

    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert _lines(_folder(broken)) == _lines(_folder(straight))
    records = [read_record(_folder(config) / "record.json") for config in (straight, broken)]
    assert records[0].metrics == records[1].metrics
    assert records[0].tokens_seen == records[1].tokens_seen
