"""``scale=finetune`` from local weights, ``trainer.max_steps=0``, and the optimizers of transformers by name."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ntl.config import Config, UserError, compose, run_id
from ntl.evaluation import read_predictions
from ntl.results import read_record
from ntl.system.hub import digest, weight_files
from ntl.system.machine import uses_bf16
from ntl.training.checkpoints import RUN, read_json
from ntl.training.predictor import predict
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

DATA = ["dataset=noisy_numbers", "dataset.seed=0", "dataset.train_rows=96"]
DATA += ["dataset.validation_rows=20", "dataset.test_rows=30"]


@pytest.fixture
def weights(trained_once: Path, tmp_path: Path) -> Path:
    """A folder with the weights and the tokenizer of a finished run."""
    return Path(shutil.copytree(trained_once / "checkpoints" / "checkpoint-12", tmp_path / "weights"))


@pytest.fixture
def finetune(weights: Path, data_dir: Path, tmp_path: Path) -> Callable[..., Config]:
    """The config of ``scale=finetune`` with these weights."""
    places = [f"data_dir={data_dir}", f"output_dir={tmp_path / 'outputs'}", "device=cpu"]
    given = ["model=hf", "tokenizer=digit", f"model.path={weights}", "trainer.max_input_length=64"]
    return lambda *overrides: compose([*DATA, *places, *given, *overrides])


@pytest.mark.slow
def test_from_local_weights_to_the_record(finetune, weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = train(finetune("trainer.epochs=3", "trainer.lr=1e-3"))
    record, lines = read_record(path), read_metrics(path.parent / METRICS)
    evaluations = [line for line in lines if "eval_loss" in line]
    assert [line["step"] for line in evaluations] == [3, 6, 9]  # 96 rows in batches of 32
    assert all("eval_accuracy" in line for line in evaluations)
    assert "3 epochs of 96 examples are 9 steps." in capsys.readouterr().out
    trainer = record.config["trainer"]
    assert (trainer["epochs"], trainer["max_steps"], trainer["eval_steps"], trainer["warmup_steps"]) == (3, 9, 3, 1)
    assert (record.steps, record.examples_seen) == (9, 3 * 96)
    best = record.model["best"]
    assert (best["metric"], best["value"]) == ("accuracy", max(line["eval_accuracy"] for line in evaluations))
    assert record.metrics["validation/accuracy"] == best["value"]
    assert record.model["bf16"] is uses_bf16("auto", torch.device("cpu"))
    # The size of the model, and the digest of its weights.
    from transformers import AutoModelForCausalLM

    assert record.model["parameters"] == AutoModelForCausalLM.from_pretrained(weights).num_parameters()
    assert record.model["weights"] == {"sha256": digest(weight_files(weights))}
    assert record.config["model"]["path"] == f"sha256:{record.model['weights']['sha256']}"


@pytest.mark.slow
def test_weights_are_scored_as_they_are(finetune, trained_once: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = finetune("trainer.max_steps=0")
    path = train(config)
    record, source = read_record(path), read_record(trained_once / "record.json")
    assert (record.steps, record.examples_seen) == (0, 0)
    assert {name: record.metrics[name] for name in source.metrics if name.startswith("test/")} == {
        name: value for name, value in source.metrics.items() if name.startswith("test/")
    }
    answers = [read_predictions(folder / "predictions.jsonl")[1] for folder in (path.parent, trained_once)]
    assert answers[0] == answers[1]
    assert "validation/accuracy" in record.metrics
    assert "best" not in record.model
    assert "random weights" not in capsys.readouterr().out
    checkpoint = path.parent / "checkpoints" / "checkpoint-0"
    assert not (checkpoint / "optimizer.pt").exists()
    # It is decoded again like any other run, and an interrupted one is finished by the same command.
    assert predict(path.parent, say=lambda line: None) == path.parent / "predictions.jsonl"
    metrics, lines = record.metrics, (path.parent / METRICS).read_text()
    path.unlink()
    assert read_record(train(config)).metrics == metrics
    assert (path.parent / METRICS).read_text() == lines


def test_another_precision_on_another_device_is_refused(small, run_interrupted, monkeypatch) -> None:
    config = small("trainer.bf16=auto")
    run_interrupted(config, 3)
    checkpoint = Path(config.output_dir) / run_id(config) / "checkpoints" / "checkpoint-3"
    used = read_json(checkpoint / RUN)["bf16"]
    assert used is uses_bf16("auto", torch.device("cpu"))
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: not used)
    with pytest.raises(UserError, match=r"with trainer\.bf16=auto this device computes in"):
        train(config)
