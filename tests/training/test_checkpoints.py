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
    Meters,
    by_step,
    check_data,
    is_whole,
    keep_newest,
    newest_whole,
    prune,
    read_meters,
    read_run,
    step_of,
    steps_taken,
    write_data,
    write_manifest,
    write_meters,
    write_run,
)
from ntl.training.weights import has_adapters, load_model, save_model


def _checkpoint(folder: Path, step: int) -> Path:
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(bytes(range(256)))
    (checkpoint / "trainer_state.json").write_text("{}")
    write_manifest(checkpoint)
    return checkpoint


def test_a_checkpoint_is_whole_once_its_manifest_is_written(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    assert is_whole(checkpoint)
    (checkpoint / "manifest.json").unlink()
    assert not is_whole(checkpoint)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_file_is_noticed_and_the_one_before_is_taken(tmp_path: Path, damage: str) -> None:
    older, newer = _checkpoint(tmp_path, 5), _checkpoint(tmp_path, 10)
    file = newer / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[7] ^= 1
    damaged = {"flip": bytes(content), "cut": content[:100], "empty": b""}
    file.unlink() if damage == "gone" else file.write_bytes(damaged[damage])
    assert newest_whole(tmp_path) == (older, [newer])


def test_after_a_run_the_newest_whole_ones_stay(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-20" / "manifest.json").unlink()
    keep_newest(tmp_path, 2)
    assert [step_of(path) for path in by_step(tmp_path)] == [15, 10]
    keep_newest(tmp_path, 1)
    assert [step_of(path) for path in by_step(tmp_path)] == [15]
    (tmp_path / "checkpoint-15" / "manifest.json").unlink()
    keep_newest(tmp_path, 1)
    assert [step_of(path) for path in by_step(tmp_path)] == [15]


def test_a_manifest_names_no_file_elsewhere(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    other = tmp_path / "other"
    other.write_bytes(b"")
    for name in ("../other", str(other)):
        (checkpoint / "manifest.json").write_text(json.dumps({name: hashlib.sha256(b"").hexdigest()}))
        assert not is_whole(checkpoint)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "{}", '{"no-such-file": "00"}'])
def test_a_broken_manifest_is_no_manifest(tmp_path: Path, manifest: str) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    (checkpoint / "manifest.json").write_text(manifest)
    assert newest_whole(tmp_path) == (None, [checkpoint])


def test_order_is_by_step_not_by_name(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        _checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "notes").mkdir()
    assert [step_of(path) for path in by_step(tmp_path)] == [100, 20, 9]
    assert step_of(tmp_path / "notes") == -1
    assert newest_whole(tmp_path / "none") == (None, [])
    prune(tmp_path / "checkpoint-100", keep=2)
    assert [step_of(path) for path in by_step(tmp_path)] == [100, 20]
    assert (tmp_path / "checkpoint-best").is_dir()


def test_what_lies_beyond_the_newest_is_of_another_attempt(tmp_path: Path) -> None:
    for step in (4, 8, 12, 16):
        _checkpoint(tmp_path, step)
    prune(tmp_path / "checkpoint-8", keep=1)
    assert [step_of(path) for path in by_step(tmp_path)] == [8]


def test_steps_are_those_of_the_state_not_of_the_name(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, 5)
    (checkpoint / "trainer_state.json").write_text('{"global_step": 7}')
    assert steps_taken(checkpoint.rename(tmp_path / "mine")) == 7


def test_meters_come_back_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "meters.json"
    meters = Meters([1 / 3, 2**53 + 0.0, 5e-324], 17, [96, 123456789], 1.25)
    write_meters(path, meters)
    assert read_meters(path) == meters
    assert [entry.name for entry in tmp_path.iterdir()] == ["meters.json"]
    written = json.loads(path.read_text())
    assert written.pop("seconds") == 1.25
    path.write_text(json.dumps(written))  # as a version before wall times were carried wrote it
    assert read_meters(path) == meters._replace(seconds=0.0)


def test_the_data_of_a_checkpoint_is_known(tmp_path: Path) -> None:
    check_data(tmp_path, {"train.jsonl": "cc"})  # a checkpoint that does not say
    write_data(tmp_path, {"train.jsonl": "aa", "test.jsonl": "bb"})
    check_data(tmp_path, {"test.jsonl": "bb", "train.jsonl": "aa"})
    with pytest.raises(UserError) as raised:
        check_data(tmp_path, {"train.jsonl": "cc", "other.jsonl": "bb"})
    assert str(raised.value) == (
        f"{tmp_path}: the data is not what it was trained on: other.jsonl had sha256 None and has bb, "
        "test.jsonl had sha256 bb and has None, train.jsonl had sha256 aa and has cc; "
        "restore it, or start over with resume=never."
    )


def test_a_checkpoint_is_on_the_disk_before_its_manifest_and_then_so_is_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"config": {}, "made_of": 3}', '{"config": null, "made_of": {}}'])
def test_a_description_of_a_run_that_is_none(tmp_path: Path, content: str) -> None:
    assert read_run(tmp_path) == {}
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=r"cannot resume .* \(run\.json: not as it was written\); remove this"):
        read_run(tmp_path)
    run = {"id": "a", "config": {"seed": 1}, "processes": 1, "made_of": {}}
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run


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


@pytest.mark.parametrize("make", [gpt2, experts])
def test_put_back_bit_for_bit(make: Any, tmp_path: Path) -> None:
    model, other = make(1), make(2)
    save_model(model, tmp_path)
    assert not same(other, model)
    load_model(other, tmp_path)
    assert same(other, model)
    assert same(AutoModelForCausalLM.from_pretrained(tmp_path), model)


def test_weights_given_whole(tmp_path: Path) -> None:
    model, other = gpt2(1), gpt2(2)
    save_model(other, tmp_path, model.state_dict())
    load_model(other, tmp_path)
    assert same(other, model)


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


def test_another_model(tmp_path: Path) -> None:
    save_model(gpt2(1), tmp_path)
    with pytest.raises(RuntimeError):
        load_model(experts(1), tmp_path)
    with pytest.raises(RuntimeError, match="no adapters"):
        load_model(add_lora(gpt2(1), LoraConfig(rank=2)), tmp_path)
