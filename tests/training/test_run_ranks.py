"""Several ranks: the helpers, and runs as torchrun starts them."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import safetensors.torch
import torch

from ntl.config import compose, run_id
from ntl.config.folders import CONFIG_DIR
from ntl.decoding.predictor import predict
from ntl.evaluation import score_predictions
from ntl.results import read_record
from ntl.runs.folder import latest_complete
from ntl.training.record import METRICS, read_metrics

# 21 validation rows: the last batch of an evaluation is not full.
SETTINGS = ["dataset.validation_rows=21", "trainer.eval_batch_size=4", "trainer.logging_steps=3"]


class Ranks(NamedTuple):
    """A command of several ranks, and the folder of its run."""

    words: list[str]
    folder: Path

    def run(self) -> str:
        """What it says on its way to a record."""
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fail(self) -> str:
        """The errors of a run that ends without a record."""
        done = subprocess.run(self.words, capture_output=True, text=True, timeout=300)
        assert done.returncode != 0
        assert not (self.folder / "record.json").exists()
        return done.stderr


@pytest.fixture
def on_ranks(settings, tmp_path: Path) -> Callable[..., Ranks]:
    """``on_ranks(2, "plain", "name", *overrides)``: that many ranks to train, with outputs in a folder of this name."""

    def make(ranks: int, how: str, name: str, *overrides: str) -> Ranks:
        words = settings(*SETTINGS, *overrides, f"output_dir={tmp_path / name}")
        if any(word.startswith("model=") for word in overrides):
            words = [word for word in words if not word.startswith("model.n_")]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        program = [str(Path(__file__).with_name("altered.py")), how, str(CONFIG_DIR.parent / "train.py")]
        folder = tmp_path / name / run_id(compose(words))
        return Ranks([sys.executable, *torchrun, *program, *words], folder)

    return make


@pytest.mark.soak
def test_an_interrupt_stops_both_at_one_step_and_the_rest_is_the_same(on_ranks) -> None:
    # 7 steps a log line: the interruption cuts one in two.
    shared = ["trainer.max_steps=600", "trainer.save_steps=0", "trainer.batch_size=8", "model.dropout=0.1"]
    straight, broken = (
        on_ranks(2, "plain", name, *shared, "trainer.logging_steps=7") for name in ("straight", "broken")
    )
    straight.run()
    metrics = broken.folder / METRICS
    with subprocess.Popen(broken.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while process.poll() is None and not any("loss" in line for line in read_metrics(metrics)):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    checkpoint, damaged = latest_complete(broken.folder / "checkpoints")
    assert checkpoint is not None, said
    assert damaged == []
    assert not (broken.folder / "record.json").exists()

    assert "Continuing from" in broken.run()
    assert read_metrics(metrics) == read_metrics(straight.folder / METRICS)
    records = [read_record(ranks.folder / "record.json") for ranks in (straight, broken)]
    assert records[0].metrics == records[1].metrics
    assert records[0].tokens_seen == records[1].tokens_seen


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "checkpoints" / "checkpoint-10" / "model.safetensors")


ACCUMULATED = ["trainer.batch_size=4", "trainer.accumulation_steps=2", "loss.implementation=linear"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "more"), [("float64", ACCUMULATED), ("float64,shard", ["trainer=fsdp", "trainer.batch_size=8"])]
)
def test_two_ranks_compute_what_one_process_does(how: str, more: list[str], on_ranks) -> None:
    """The ranks' batches hold different numbers of tokens and digits; only sums over all of them come out equal."""
    shared = ["loss=ntl_was", "trainer.max_steps=10", "trainer.save_steps=5", "trainer.eval_steps=4"]
    shared += [] if "shard" in how else ["probe_steps=5"]
    two = on_ranks(2, how, "two", *shared, *more)
    one = on_ranks(1, "float64", "one", *shared, "trainer.batch_size=16")
    one.run()
    said = two.run()
    assert said.count("decoded test by greedy: 30 examples") == said.count("Record: ") == 1
    for line, expected in zip(read_metrics(two.folder / METRICS), read_metrics(one.folder / METRICS), strict=True):
        assert line.pop("probe", None) == expected.pop("probe", None)
        assert line == pytest.approx(expected, rel=1e-6)
    weights, expected_weights = _weights(two.folder), _weights(one.folder)
    assert weights.keys() == expected_weights.keys()
    for name, tensor in weights.items():
        assert tensor.dtype == torch.float64
        torch.testing.assert_close(tensor, expected_weights[name], rtol=1e-6, atol=1e-9)
    records = [read_record(ranks.folder / "record.json") for ranks in (one, two)]
    assert [record.num_devices for record in records] == [1, 2]
    assert [record.examples_seen for record in records] == [160, 160]
    assert records[0].tokens_seen == records[1].tokens_seen
    assert records[0].predictions_sha256 == records[1].predictions_sha256
    manifest = json.loads((two.folder / "checkpoints" / "checkpoint-5" / "manifest.json").read_text())
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(manifest)
    assert [path.name for path in two.folder.parent.iterdir()] == [two.folder.name]


@pytest.mark.slow
def test_a_sharded_regression_head_answers_in_the_unit_of_its_targets(on_ranks) -> None:
    """And in bfloat16 its labels, losses and their counts are not rounded."""
    shared = ["model=gpt2_tiny_regression", "objective.standardize=true", "trainer.max_steps=4", "trainer.save_steps=4"]
    ranks, exact = (
        on_ranks(2, "shard", name, *shared, "trainer=fsdp", "trainer.batch_size=8", f"trainer.bf16={name == 'bf16'}")
        for name in ("bf16", "fp32")
    )
    assert "bf16 layers, fp32 weights" in ranks.run()
    exact.run()
    path = predict(ranks.folder)
    before = read_record(ranks.folder / "record.json").metrics["test/mae"]
    assert score_predictions(path).metrics["test/mae"] == pytest.approx(before)
    losses, expected = (
        [line["loss"] for line in read_metrics(each.folder / METRICS) if "loss" in line] for each in (ranks, exact)
    )
    assert losses == pytest.approx(expected, rel=0.02)
    assert losses != [torch.tensor(loss).bfloat16().item() for loss in losses]


@pytest.mark.soak
def test_a_sharded_run_goes_on_from_its_checkpoint(on_ranks) -> None:
    """A mixture of experts, which is saved under the names of its published checkpoints."""
    model = ["model=granite_moe_tiny", "model.settings.hidden_size=16", "model.settings.num_hidden_layers=1"]
    shared = ["trainer=fsdp", "trainer.batch_size=8", "trainer.save_steps=5", "trainer.max_steps=10", *model]
    straight, broken = (on_ranks(2, "shard", name, *shared) for name in ("straight", "broken"))
    straight.run()
    shutil.copytree(straight.folder, broken.folder)
    assert not list(broken.folder.rglob("pytorch_model_fsdp.bin"))  # the weights are not written twice
    shutil.rmtree(broken.folder / "checkpoints" / "checkpoint-10")
    (broken.folder / "record.json").unlink()
    assert "Continuing from" in broken.run()
    for name, tensor in _weights(broken.folder).items():
        torch.testing.assert_close(tensor, _weights(straight.folder)[name], rtol=0, atol=0)


@pytest.mark.soak
def test_a_rank_that_dies_ends_the_run_with_its_own_error(on_ranks) -> None:
    started, ranks = time.monotonic(), on_ranks(2, "die", "dead", "trainer.batch_size=8")
    assert "the second rank's own trouble" in ranks.fail()
    assert time.monotonic() - started < 120
