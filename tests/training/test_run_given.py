"""Given weights and their tokenizer: a run changes nothing unasked, and its checkpoints have all of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from given import save
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from ntl.config import Config, UserError, compose, run_id
from ntl.config.loss import MTPConfig
from ntl.decoding.predictor import predict
from ntl.evaluation import read_predictions
from ntl.models.mtp import add_heads
from ntl.results import read_record
from ntl.runs.folder import RUN, read_json
from ntl.runs.parts import RunParts
from ntl.system.hub import digest, weight_files
from ntl.system.machine import uses_bf16
from ntl.training.objective import build_objective
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
SHAPE |= {"intermediate_size": 24, "max_position_embeddings": 128}
QWEN = {"layer_types": ["full_attention"] * 2, "head_dim": 8}
DATA = ["dataset=noisy_numbers", "dataset.train_rows=64", "dataset.validation_rows=8", "dataset.test_rows=8"]
STEPS = ["trainer.max_steps=3", "trainer.batch_size=8", "trainer.save_steps=3", "trainer.warmup_steps=1"]
STEPS += ["trainer.eval_steps=3", "trainer.eval_rows=8", "decoding.max_new_tokens=6", "tracking=none", "device=cpu"]
WRITTEN = ("dtype", "transformers_version", "architectures")


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., Path]:
    """``given(architecture, tokenizer, **settings)``: a folder as a model is published in, with a generation config."""

    def make(architecture: str, tokenizer: str, **settings: Any) -> Path:
        folder = save(tokenizer, tmp_path / "given")
        reader = AutoTokenizer.from_pretrained(folder)
        ends = reader.convert_tokens_to_ids(["<|end|>", "<|other|>"])
        ids = {"bos_token_id": 0, "eos_token_id": ends, "pad_token_id": reader.pad_token_id}
        torch.manual_seed(0)
        config = AutoConfig.for_model(architecture, vocab_size=len(reader) + 3, **{**SHAPE, **ids, **settings})
        model: Any = AutoModelForCausalLM.from_config(config)
        model.generation_config = GenerationConfig(**{**ids, "do_sample": True, "temperature": 0.6, "max_length": 99})
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    places = [f"output_dir={tmp_path / 'outputs'}", f"data_dir={tmp_path / 'data'}"]
    return lambda *words: compose([*DATA, *STEPS, *places, *words])


def contents(folder: Path, name: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads((folder / name).read_bytes()).items() if key not in WRITTEN}


@pytest.mark.parametrize("name", ["smollm2", "llama3"])
def test_losses_of_places_are_for_given_tokenizers_that_write_digits_alone(
    name: str, given: Callable[..., Path], command: Callable[..., Any]
) -> None:
    config = command("model=hf", f"model.path={given('llama', name)}", "loss=ntil")
    parts = RunParts(config, say=lambda line: None)
    if name == "smollm2":
        assert build_objective(parts)
    else:
        with pytest.raises(UserError, match=r"^loss=ntil: a loss of places .*take tokenizer='digit'"):
            build_objective(parts)


@pytest.mark.parametrize("name", ["smollm2", "llama3"])
@pytest.mark.slow
def test_the_checkpoint_is_the_given_folder_with_other_weights(
    name: str, given: Callable[..., Path], command: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given("granite", name, attention_dropout=0.05)
    record = train(command("model=granite_3_2_2b", f"model.path={folder}", "tokenizer=digit", "loss=ntl_was"))
    checkpoint = record.parent / "checkpoints" / "checkpoint-3"
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert contents(checkpoint, file) == contents(folder, file)
    assert (checkpoint / "chat_template.jinja").read_bytes() == (folder / "chat_template.jinja").read_bytes()
    printed = capsys.readouterr()
    assert ("writes several digits as one token" in printed.out + printed.err) == (name == "llama3")
    assert "the model's own generation config has do_sample=True, temperature=0.6, which is not used." in printed.out
    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(checkpoint).eval(),
        AutoTokenizer.from_pretrained(checkpoint),
    )
    before = AutoModelForCausalLM.from_pretrained(folder).get_input_embeddings().weight
    assert model.get_input_embeddings().weight.shape == before.shape
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(folder).chat_template
    _, rows = read_predictions(record.parent / "predictions.jsonl")
    questions = RunParts(command("model=granite_3_2_2b"), say=[].append).prepared.rows("test")
    for row, example in zip(rows, questions, strict=True):
        inputs = tokenizer(example["question"], return_tensors="pt")
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        assert tokenizer.decode(output, skip_special_tokens=True).strip() == row["prediction"]


def with_modules(folder: Path) -> dict[str, torch.Tensor]:
    """Give the model in a folder two modules for multi-token prediction; return their weights."""
    model: Any = add_heads(AutoModelForCausalLM.from_pretrained(folder), MTPConfig(kind="sequential", heads=3))
    model.save_pretrained(folder)
    return {name: value.clone() for name, value in model.state_dict().items() if name.startswith("mtp.")}


@pytest.mark.slow
def test_modules_for_multi_token_prediction_are_carried(
    given: Callable[..., Path], command: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = given("qwen3_5_text", "smollm2", **QWEN)
    before = with_modules(folder)
    words = ["model=qwen3_5_0_8b", f"model.path={folder}", "tokenizer=digit", "loss=ce"]
    checkpoint = train(command(*words)).parent / "checkpoints" / "checkpoint-3"
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("objective=mtp objective.kind=sequential trains them") == 1
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    after = load_file(checkpoint / "model.safetensors")
    assert {name: value for name, value in after.items() if name.startswith("mtp.")}.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    model._is_stateful = False  # transformers refuses Qwen3.5 otherwise, even without any stateful layer
    prompt = torch.tensor([[5, 6, 7]])
    tokens = [model.generate(prompt, max_new_tokens=8, do_sample=False, use_mtp=use).tolist() for use in (False, True)]
    assert tokens[0] == tokens[1]


# Where a run's tokenizer comes from.


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.delattr("ntl.runs.parts.train_tokenizer")


def test_one_is_trained_on_the_text_and_kept(parts: Callable[..., Any], no_training, tmp_path: Path) -> None:
    own = {"dataset": "multiplication"}
    first = parts(f"data_dir={tmp_path}", **own)
    question = first.rows("train")[0]["question"]
    tokens = first.tokenizer.tokenize(question)
    assert first.tokenizer.unk_token not in tokens
    assert [token for token in tokens if token.isdigit()] == [sign for sign in question if sign.isdigit()]
    (folder,) = [path for path in (tmp_path / ".tokenizers").iterdir() if not path.name.startswith(".")]
    assert folder.name.startswith("multiplication-digit-")
    no_training()
    for more in ([], ["seed=2", "loss=ce"]):
        assert parts(f"data_dir={tmp_path}", *more, **own).tokenizer.get_vocab() == first.tokenizer.get_vocab()


def test_a_named_folder_wins_over_the_models(
    parts: Callable[..., Any], no_training, trained_once: Path, tmp_path: Path
) -> None:
    mine = trained_once / "tokenizer"
    no_training()
    for own, models in ((mine, tmp_path), ("", mine)):
        made = parts(f"data_dir={tmp_path / 'none'}")
        made.config.tokenizer.path, made.config.model.path = str(own), str(models)
        assert made.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(mine).get_vocab()


# ``scale=finetune`` from local weights, ``trainer.max_steps=0``, and the optimizers of transformers by name.


TUNED = ["dataset=noisy_numbers", "dataset.seed=0", "dataset.train_rows=96"]
TUNED += ["dataset.validation_rows=20", "dataset.test_rows=30"]


@pytest.fixture
def weights(trained_once: Path, tmp_path: Path) -> Path:
    """A folder with the weights and the tokenizer of a finished run."""
    return Path(shutil.copytree(trained_once / "checkpoints" / "checkpoint-12", tmp_path / "weights"))


@pytest.fixture
def finetune(weights: Path, data_dir: Path, tmp_path: Path) -> Callable[..., Config]:
    """The config of ``scale=finetune`` with these weights."""
    places = [f"data_dir={data_dir}", f"output_dir={tmp_path / 'outputs'}", "device=cpu"]
    given = ["model=hf", "tokenizer=digit", f"model.path={weights}", "trainer.max_input_length=64"]
    return lambda *overrides: compose([*TUNED, *places, *given, *overrides])


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
    assert record.model["precision"] == ("bf16 autocast, fp32 weights" if record.model["bf16"] else "fp32")
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
