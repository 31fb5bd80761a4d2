"""Complete checkpoints, which of them are kept, and what they say of their run, data and weights."""

import hashlib
import json
import os
import re
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
    Meters,
    by_step,
    check_data,
    keep_newest,
    newest_whole,
    prune,
    read_meters,
    step_of,
    write_json,
    write_manifest,
)
from ntl.training.weights import has_adapters, load_model, load_sharded, save_model


def _checkpoint(folder: Path, step: int) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(range(256)))
    (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": [*range(100)]}))
    write_manifest(checkpoint)
    return checkpoint


@pytest.mark.parametrize("damage", [lambda content: content[:7] + b"\1" + content[8:], lambda content: content[:-1]])
@pytest.mark.parametrize("name", ["model.safetensors", "trainer_state.json", "manifest.json"])
def test_a_damaged_file_is_noticed_and_the_one_before_is_taken(tmp_path: Path, name: str, damage: Any) -> None:
    older, newer = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    assert newest_whole(tmp_path) == (newer, [])
    (newer / name).write_bytes(damage((newer / name).read_bytes()))
    assert newest_whole(tmp_path) == (older, [newer])
    (newer / name).unlink()
    assert newest_whole(tmp_path) == (older, [newer])


@pytest.mark.parametrize("manifest", ["[]", "{}", '{"../other": "HASH"}'])
def test_a_broken_manifest_is_no_manifest(tmp_path: Path, manifest: str) -> None:
    """Nor is one that names a file elsewhere."""
    checkpoint = _checkpoint(tmp_path, 5)
    (tmp_path / "other").write_bytes(b"")
    (checkpoint / "manifest.json").write_text(manifest.replace("HASH", hashlib.sha256(b"").hexdigest()))
    assert newest_whole(tmp_path) == (None, [checkpoint])


def _steps(folder: Path) -> list[int]:
    return [step_of(path) for path in by_step(folder)]


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
    for other in ("checkpoint-best", "notes"):
        (tmp_path / other).mkdir()
        assert step_of(tmp_path / other) == -1
    assert _steps(tmp_path) == [100, 20, 9]
    assert newest_whole(tmp_path / "none") == (None, [])
    prune(tmp_path / "checkpoint-100", keep=2)
    assert _steps(tmp_path) == [100, 20]
    assert (tmp_path / "checkpoint-best").is_dir()
    # What lies beyond the newest is of another attempt, also where it was to be kept.
    (tmp_path / "checkpoint-100" / KEEP).touch()
    prune(tmp_path / "checkpoint-20", keep=1)
    assert _steps(tmp_path) == [20]


def test_meters_come_back_to_the_last_bit(tmp_path: Path) -> None:
    path, meters = tmp_path / "meters.json", Meters([1 / 3, 2**53 + 0.0, 5e-324], 17, [96, 123456789], 1.25)
    write_json(path, meters._asdict())
    assert read_meters(path) == meters


def test_the_data_of_a_checkpoint_is_known(tmp_path: Path) -> None:
    check_data(tmp_path, {"train.jsonl": "cc"})  # a checkpoint that does not say
    write_json(tmp_path / DATA, {"train.jsonl": "aa", "test.jsonl": "bb"})
    check_data(tmp_path, {"test.jsonl": "bb", "train.jsonl": "aa"})
    with pytest.raises(
        UserError, match=r"test\.jsonl had sha256 bb and has None, train\.jsonl had sha256 aa and has cc"
    ):
        check_data(tmp_path, {"train.jsonl": "cc"})


def test_a_checkpoint_is_on_the_disk_before_its_manifest_and_then_so_is_that(tmp_path: Path, monkeypatch) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        inode = os.fstat(handle).st_ino
        events.extend(name(path) for path in (tmp_path, *tmp_path.rglob("*")) if path.stat().st_ino == inode)
        sync(handle)

    def name(path: Path | str) -> str:
        # A file that is being written has a random part in its name.
        return re.sub(r"json[.].*[.]part$", "json.part", Path(path).name)

    def rename(source: str, target: Path) -> None:
        events.append(f"{name(source)} -> {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    _checkpoint(tmp_path, 5)
    new = ".manifest.json.part"
    files = ["model.safetensors", "trainer_state.json"]
    assert events == [*files, new, f"{new} -> manifest.json", "checkpoint-5", tmp_path.name]


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


@pytest.mark.parametrize(("load", "given"), [(load_model, False), (load_model, True), (load_sharded, False)])
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
    assert has_adapters(models[0])
    assert not has_adapters(gpt2(1))
    save_model(models[0], tmp_path)
    load_model(models[1], tmp_path)
    assert same(models[1], models[0])
    ids = torch.tensor([[1, 2, 3]])
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(plain(ids).logits, models[0].eval()(ids).logits, rtol=1e-4, atol=1e-5)
