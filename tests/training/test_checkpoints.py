"""The weights in checkpoints, and crafted files in place of theirs."""

import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GraniteMoeConfig, GraniteMoeForCausalLM

from ntl.config import UserError, compose
from ntl.decoding.predictor import predict
from ntl.evaluation import score_predictions
from ntl.runs.folder import write_manifest
from ntl.training.train import train
from ntl.training.weights import load_model, load_sharded, save_model, whole_state


def gpt2(seed: int) -> Any:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2)).eval()


def experts(seed: int) -> Any:
    torch.manual_seed(seed)
    shape = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    own = {"num_key_value_heads": 2, "intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1}
    return GraniteMoeForCausalLM(GraniteMoeConfig(**shape, **own)).eval()


def same(one: Any, other: Any) -> bool:
    weights = other.state_dict()
    return all(torch.equal(weight, weights[name]) for name, weight in one.state_dict().items())


@pytest.mark.parametrize(("load", "given"), [(load_model, False), (load_sharded, True)])
@pytest.mark.parametrize("make", [gpt2, experts])
def test_put_back_bit_for_bit(make: Any, load: Any, given: bool, tmp_path: Path) -> None:
    """Also where the weights are given, as those of a sharded model are: tied ones as one tensor."""
    model, other = make(1), make(2)
    state = whole_state(model)
    if make is gpt2:
        assert state["lm_head.weight"] is state["transformer.wte.weight"]
    save_model(other if given else model, tmp_path, state if given else None)
    assert not same(other, model)
    load(other, tmp_path)
    assert same(other, model)
    assert same(AutoModelForCausalLM.from_pretrained(tmp_path), model)


class _Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def crafted(tmp_path: Path) -> Iterator[bytes]:
    """A file of torch that would make a folder if it were unpickled."""
    executed, buffer = tmp_path / "executed", io.BytesIO()
    torch.save(_Evil(executed), buffer)
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    executed.rmdir()
    yield buffer.getvalue()
    assert not executed.exists()


@pytest.fixture
def unfinished(finished: Path) -> Path:
    """The checkpoint of step 6 of a run that was killed after it."""
    (finished / "record.json").unlink()
    shutil.rmtree(finished / "checkpoints" / "checkpoint-12")
    return finished / "checkpoints" / "checkpoint-6"


READ = ["model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt"]
UNREAD = ["config.json", "pytorch_model.bin", "adapter_model.bin", "training_args.bin", "pytorch_model_fsdp.bin"]


@pytest.mark.parametrize("names", [*([name] for name in READ), UNREAD], ids=[*READ, "unread"])
@pytest.mark.slow
def test_a_resume_executes_nothing(names: list[str], crafted: bytes, unfinished: Path, small) -> None:
    for name in names:
        (unfinished / name).write_bytes(crafted)
    write_manifest(unfinished)
    with nullcontext() if names == UNREAD else pytest.raises(UserError, match=f"{names[0]}.* cannot be read"):
        train(small())
    assert (unfinished.parents[1] / "record.json").is_file() == (names == UNREAD)


OF_RUN = ["tokenizer/tokenizer.json", "config.yaml", "predictions.jsonl", "record.json"]


@pytest.mark.parametrize("name", [*OF_RUN, "model.safetensors", "config.json", "pytorch_model.bin"])
def test_a_run_folder_or_one_of_weights_executes_nothing(
    name: str, crafted: bytes, finished: Path, small, settings, tmp_path: Path
) -> None:
    checkpoint = finished / "checkpoints" / "checkpoint-12"
    path = finished / name if name in OF_RUN else checkpoint / name
    path.write_bytes(crafted)
    if name == "pytorch_model.bin":
        (checkpoint / "model.safetensors").unlink()
    write_manifest(checkpoint)
    words = [word for word in settings() if not word.startswith("model.")]
    words += ["model=hf", f"model.path={checkpoint}", f"output_dir={tmp_path / 'other'}"]
    actions = {
        "predictions.jsonl": lambda: score_predictions(path),
        "record.json": lambda: train(small()),
        "pytorch_model.bin": lambda: train(compose(words)),
    }
    with pytest.raises(UserError):
        actions.get(name, lambda: predict(finished))()


def edited(read: Any, write: Any) -> Any:
    """``with edited(read, write)(file) as content``: what is made of the content is written to the file again."""

    @contextmanager
    def edit(file: Path) -> Iterator[Any]:
        content = read(file)
        yield content
        write(content, file)

    return edit


JSON = edited(lambda file: json.loads(file.read_text()), lambda content, file: file.write_text(json.dumps(content)))
PICKLE = edited(lambda file: torch.load(file, weights_only=True), torch.save)
TENSORS = edited(load_file, save_file)


def edits(folder: Path) -> Iterator[tuple[str, str]]:
    """Edit a file of a checkpoint in one way after another: its name, and what is said of it."""
    texts = {"trainer_state.json": "{", "run.json": "[" * 100_000, "data.json": "[]", "meters.json": "[]"}
    for name, text in texts.items():
        (folder / name).write_text(text)
        yield name, "Error"
    for name, key, value in (
        ("trainer_state.json", "global_step", "6"),
        ("trainer_state.json", "log_history", [{"eval_loss": 1}]),
        ("meters.json", "since", None),
        ("meters.json", "meters", [1.0] * 99),
        ("run.json", "made_of", 3),
    ):
        with JSON(folder / name) as content:
            content[key] = value
        yield name, "Error"
    # Another step, as of a folder that was renamed; other ranks, whose batches would differ.
    for name, key, value, what in (
        ("trainer_state.json", "global_step", 5, "its state is of step 5; give the folder the name checkpoint-5"),
        ("run.json", "processes", 2, "written by 2 processes, but this run has 1"),
    ):
        with JSON(folder / name) as content:
            content[key] = value
        yield "", what
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes((folder / name).read_bytes()[:200])
        yield name, "Error"
    (folder / "optimizer.pt").unlink()
    yield "", "there is no optim"
    torch.save([1], folder / "rng_state.pth")
    yield "rng_state.pth", "Error"
    with PICKLE(folder / "scheduler.pt") as content:
        content["last_epoch"] = "x"
    yield "scheduler.pt", "Error"
    # Of a shape or layout beyond which a fused step would read and write.
    with PICKLE(folder / "optimizer.pt") as content:
        content["state"][0]["exp_avg"] = torch.zeros(2, 2)
    yield "optimizer.pt", "and its state another"
    with PICKLE(folder / "optimizer.pt") as content:
        content["state"][0]["exp_avg"] = torch.zeros(1).expand(content["state"][0]["exp_avg"].shape)
    yield "optimizer.pt", "and its state another"
    with PICKLE(folder / "optimizer.pt") as content:
        content["state"] = {}
    yield "", "its optimizer has taken 0 steps, and its state is of step 6"
    with TENSORS(folder / "model.safetensors") as content:
        del content["transformer.ln_f.bias"]
    yield "model.safetensors", "it lacks transformer.ln_f.bias"
    with TENSORS(folder / "model.safetensors") as content:
        content["transformer.ln_f.bias"] = torch.zeros(3)
    yield "model.safetensors", "Error"


@pytest.mark.slow
def test_an_edited_file_is_one_line_that_names_it(unfinished: Path, small, tmp_path: Path) -> None:
    """Its manifest fits. What cannot be read may be a fault of the program, so the traceback is kept."""
    folder, finished = unfinished, unfinished.parents[1]
    whole, log, said = Path(shutil.copytree(folder, tmp_path / "whole")), finished / "run.log", 0
    for name, what in edits(folder):
        write_manifest(folder)
        with pytest.raises(UserError, match=re.escape(what)) as caught:
            train(small())
        line = str(caught.value)
        assert line.startswith(f"{folder}: ")
        assert "\n" not in line
        assert name in line
        said += "traceback in run.log); restore it, or remove this folder, and the same command goes on" in line
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
    assert log.read_text().count("Traceback (most recent call last)") >= said > 15
    shutil.rmtree(folder)
    assert train(small()) == finished / "record.json"
