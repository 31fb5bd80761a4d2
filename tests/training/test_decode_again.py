"""A finished run read by further decodings."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntl.config import UserError
from ntl.config.composition import CONFIG_DIR
from ntl.launch.plan import plan_runs
from ntl.results import read_record
from ntl.system.errors import Busy
from ntl.training import run
from ntl.training.folder import only_one

BESIDE = ("beside=expectation", "beside.expectation.num_beams=20")


def test_a_run_keeps_the_scores_of_both_readings(finished: Path, small) -> None:
    config = small(*BESIDE, f"output_dir={finished.parent / 'both'}")
    record = read_record(run(config))
    plain = read_record(finished / "record.json")
    added = {name for name in record.metrics if name not in plain.metrics}
    assert added >= {"test/mae@expectation", "test/rmse_truth@expectation", "test/covered@expectation"}
    assert all(name.endswith("@expectation") for name in added)
    assert {name: record.metrics[name] for name in plain.metrics} == plain.metrics
    assert record.metrics["test/mae@expectation"] != record.metrics["test/mae"]
    assert record.predictions_sha256 == plain.predictions_sha256
    assert list(record.config["beside"]) == ["expectation"]


@pytest.mark.slow
def test_a_finished_run_is_read_again_not_trained_again(
    finished: Path, small, settings, without_times, capsys: pytest.CaptureFixture[str]
) -> None:
    todo, have = plan_runs([settings(*BESIDE)], finished.parent)
    assert [each.id for each in todo] == [finished.name]
    assert have == []
    weights = {path: path.read_bytes() for path in finished.glob("checkpoints/*/model.safetensors")}
    assert run(small(*BESIDE)) == finished / "record.json"
    assert "decoding it by expectation, too" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in weights} == weights
    both = run(small(*BESIDE, f"output_dir={finished.parent / 'both'}"))
    assert without_times(finished / "record.json") == without_times(both)
    assert plan_runs([settings(*BESIDE)], finished.parent)[0] == []
    assert "finished already" not in capsys.readouterr().out
    run(small(*BESIDE))
    assert "finished already" in capsys.readouterr().out


def test_without_a_checkpoint_it_says_so(finished: Path, small) -> None:
    shutil.rmtree(finished / "checkpoints")
    before = (finished / "record.json").read_bytes()
    with pytest.raises(UserError, match="no checkpoint"):
        run(small(*BESIDE))
    assert (finished / "record.json").read_bytes() == before


def test_a_run_that_another_process_reads_is_left_to_it(finished: Path, small) -> None:
    with only_one(finished), pytest.raises(Busy, match="another process is at this run"):
        run(small(*BESIDE))
    with only_one(finished):
        assert run(small()) == finished / "record.json"


@pytest.mark.slow
def test_of_two_readings_at_once_none_is_lost(finished: Path, settings) -> None:
    train = [sys.executable, str(CONFIG_DIR.parent / "train.py")]
    first, second = (
        [*train, *settings(f"beside={name}", f"beside.{name}.num_beams=20", f"beside.{name}.batch_size=1")]
        for name in ("expectation", "median")
    )
    with subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(finished.glob(".predictions*.answers")):
            time.sleep(0.002)
        process.send_signal(signal.SIGSTOP)  # it has read the record and not yet written it
        refused = subprocess.run(second, capture_output=True, text=True, timeout=120)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    added = subprocess.run(second, capture_output=True, text=True, timeout=120)
    assert added.returncode == 0, added.stderr
    record = read_record(finished / "record.json")
    assert sorted(record.config["beside"]) == ["expectation", "median"]
    assert {"test/covered@expectation", "test/covered@median"} <= record.metrics.keys()
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
    assert "another process is at this run" in refused.stderr
