"""Complete checkpoints, which of them are kept, and the weights in them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GraniteMoeConfig, GraniteMoeForCausalLM

from ntl.config import UserError
from ntl.config.model import LoraConfig
from ntl.models.lora import add_lora, trained_state
from ntl.training.checkpoints import (
    DATA,
    KEEP,
    by_step,
    check_data,
    keep_newest,
    newest_whole,
    prune,
    step_of,
    write_json,
    write_manifest,
)
from ntl.training.weights import load_model, load_sharded, save_model


def _checkpoint(folder: Path, step: int) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(range(256)))
    (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": [*range(100)]}))
    write_manifest(checkpoint)
    return checkpoint


def _steps(folder: Path) -> list[int]:
    return [step_of(path) for path in by_step(folder)]


@pytest.mark.parametrize("damage", [lambda content: content[:7] + b"\1" + content[8:], lambda content: content[:-1]])
@pytest.mark.parametrize("name", ["model.safetensors", "trainer_state.json", "manifest.json"])
def test_a_damaged_file_is_noticed_and_the_one_before_is_taken(tmp_path: Path, name: str, damage: Any) -> None:
    older, newer = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    assert newest_whole(tmp_path) == (newer, [])
    (newer / name).write_bytes(damage((newer / name).read_bytes()))
    assert newest_whole(tmp_path) == (older, [newer])
    (newer / name).unlink()
    assert newest_whole(tmp_path) == (older, [newer])


def test_after_a_run_the_newest_whole_ones_stay(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        _checkpoint(tmp_path, step)
    for broken, keep, kept in ((20, 2, [15, 10]), (None, 1, [15]), (15, 1, [15])):
        if broken:
            (tmp_path / f"checkpoint-{broken}" / "manifest.json").unlink()
        keep_newest(tmp_path, keep)
        assert _steps(tmp_path) == kept


def test_order_is_by_step_not_by_name(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    assert _steps(tmp_path) == [100, 20, 9]
    assert newest_whole(tmp_path / "none") == (None, [])
    prune(tmp_path / "checkpoint-100", keep=2)
    assert _steps(tmp_path) == [100, 20]
    assert (tmp_path / "checkpoint-best").is_dir()
    # What lies beyond the newest is of another attempt, also where it was to be kept.
    (tmp_path / "checkpoint-100" / KEEP).touch()
    prune(tmp_path / "checkpoint-20", keep=1)
    assert _steps(tmp_path) == [20]


def test_the_data_of_a_checkpoint_is_known(tmp_path: Path) -> None:
    write_json(tmp_path / DATA, {"train.jsonl": "aa", "test.jsonl": "bb"})
    check_data(tmp_path, {"test.jsonl": "bb", "train.jsonl": "aa"})
    with pytest.raises(UserError, match=r"test\.jsonl had sha256 bb and has None, train\.jsonl had sha256 aa and has"):
        check_data(tmp_path, {"train.jsonl": "cc"})


SHAPE = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
EXPERTS = {"num_key_value_heads": 2, "intermediate_size": 16, "num_local_experts": 2, "num_experts_per_tok": 1}


def gpt2(seed: int) -> Any:
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=16, n_layer=1, n_head=2)).eval()


def experts(seed: int) -> Any:
    torch.manual_seed(seed)
    return GraniteMoeForCausalLM(GraniteMoeConfig(**SHAPE, **EXPERTS)).eval()


def same(one: Any, other: Any) -> bool:
    weights = other.state_dict()
    return all(torch.equal(weight, weights[name]) for name, weight in one.state_dict().items())


@pytest.mark.parametrize(("load", "given"), [(load_model, False), (load_sharded, True)])
@pytest.mark.parametrize("make", [gpt2, experts])
def test_put_back_bit_for_bit(make: Any, load: Any, given: bool, tmp_path: Path) -> None:
    """Also where the weights are given, as those of a sharded model are."""
    model, other = make(1), make(2)
    save_model(other if given else model, tmp_path, model.state_dict() if given else None)
    assert not same(other, model)
    load(other, tmp_path)
    assert same(other, model)
    assert same(AutoModelForCausalLM.from_pretrained(tmp_path), model)


def test_adapters(tmp_path: Path) -> None:
    models = [add_lora(gpt2(seed), LoraConfig(rank=2)) for seed in (1, 1)]
    for weight in trained_state(models[0]).values():
        weight.normal_()
    save_model(models[0], tmp_path)
    load_model(models[1], tmp_path)
    assert same(models[1], models[0])
    ids = torch.tensor([[1, 2, 3]])
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(plain(ids).logits, models[0].eval()(ids).logits, rtol=1e-4, atol=1e-5)
