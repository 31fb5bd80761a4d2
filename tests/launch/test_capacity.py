"""What a run takes of a GPU, against what training holds in memory on a CPU; and what is said of one too large."""

import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from ntl.config import build, compose
from ntl.data.prepared import Prepared
from ntl.launch.capacity import GPUS, capacity, price, trace
from ntl.models.interface import hidden_states
from ntl.system.errors import UserError

T5 = ["model=t5_tiny", "model.d_model=64", "model.d_kv=16", "model.d_ff=128", "model.num_layers=6", "model.num_heads=4"]
GPT2 = ["model=gpt2_tiny", "model.n_embd=64", "model.n_layer=12", "model.n_head=4"]
LLAMA = ["model=llama_tiny", "model.settings.hidden_size=64", "model.settings.num_hidden_layers=12"]
TWICE = "trainer.accumulation_steps=2"
ROWS, READ, WRITTEN = 8, 48, 40


class Alive(TorchDispatchMode):
    """Counts the bytes of the tensors that are made and still held."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak = 0, 0
        self.known: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in (each for each in tree_leaves(found) if isinstance(each, torch.Tensor)):
            if (storage := tensor.untyped_storage()) not in self.known:
                self.known[storage] = True
                self.now += storage.nbytes()
                weakref.finalize(storage, self.free, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return found

    def free(self, size: int) -> None:
        self.now -= size


class Tokenizer(SimpleNamespace):
    def __len__(self) -> int:
        return 64


def held(words: list[str], bf16: bool) -> tuple[int, int]:
    """Bytes that a training step on the CPU holds after its forward pass, and at most."""
    config = compose(words)
    model: Any = build(config.model, tokenizer=Tokenizer(eos_token_id=1, pad_token_id=0))
    model.train()
    if config.trainer.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    is_seq2seq = model.config.is_encoder_decoder
    ids = torch.ones(ROWS, READ if is_seq2seq else READ + WRITTEN, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, -3:] = 0
    answer = torch.ones(ROWS, WRITTEN, dtype=torch.long) if is_seq2seq else None
    alive = Alive()
    for each in (*model.buffers(), *model.parameters(), *(each.grad for each in model.parameters())):
        alive.known[each.untyped_storage()] = True
    with alive:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            states = hidden_states(model, ids, mask, answer)
        after = alive.now
        states.sum().backward()
    return after, alive.peak


# Of the twelve combinations each pair once.
SHAPES = [(T5, False, False), (T5, True, True), (GPT2, True, False), (GPT2, False, True), (LLAMA, False, False)]


@pytest.mark.parametrize(("shape", "bf16", "checkpointing"), [*SHAPES, (LLAMA, True, True)])
def test_activations_are_those_of_training(shape: list[str], bf16: bool, checkpointing: bool) -> None:
    """torch's SDPA on a CPU is fused for the decoders, as they have no dropout, and not with T5's learned bias."""
    words = [*shape, "model.dropout=0", f"trainer.gradient_checkpointing={str(checkpointing).lower()}", "scale=tiny"]
    after, peak = held(words, bf16)
    found = trace(compose(words), ROWS, READ, WRITTEN, bf16, fused=shape is not T5)
    expected = found.checkpointed if checkpointing else found.kept
    assert expected == pytest.approx(peak if checkpointing else after, rel=0.15)


@pytest.fixture(autouse=True)
def nothing_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths would be those of what data/ has prepared."""
    monkeypatch.chdir(tmp_path)


def test_state_and_logits_as_counted_by_hand() -> None:
    weights = 256 * 64 + 128 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64  # tokens, positions, layers, last norm
    adapter = compose(["model=gpt2_tiny"])
    adapter.model.lora.rank = 2  # compose allows it with learned weights alone
    plain, adafactor, fused = (
        price(compose(["model=gpt2_tiny", *words]), GPUS["h100"])
        for words in ([], ["trainer.optim=adafactor"], ["loss.implementation=fused"])
    )
    assert (plain.traces[0].parameters, plain.state) == (weights, 16 * weights)
    adapters = 2 * 2 * ((64 + 192) + (64 + 64) + 2 * (64 + 256))
    assert price(adapter, GPUS["h100"]).state == 4 * weights + 16 * adapters
    assert adafactor.state == 8 * weights
    logits = 4 * 128 * (128 + 128) * 256  # 128 rows that are not prepared, of trainer.max_input_length=128 tokens twice
    assert (plain.logits, plain.implementation) == (5 * logits, "reference")
    assert (fused.logits, fused.implementation) == (2 * logits, "fused")


def test_hours_are_operations_at_the_peak() -> None:
    words = ["model=gpt2_tiny", "scale=tiny", "trainer.max_steps=1000"]
    checkpointing, tf32 = "trainer.gradient_checkpointing=true", "trainer.tf32=true"
    once, twice, again, bf16, fast = (
        price(compose([*words, *more]), GPUS["a100"]).hours
        for more in ([], [TWICE], [checkpointing], ["trainer.bf16=true"], [tf32])
    )
    assert once is not None
    products = 2 * (12 * 64**2 + 2 * 256 * 64) + 256 * 64  # of a token: the layers with their attention, and the head
    assert once == pytest.approx(1000 * 128 * 256 * 3 * 2 * products / (0.4 * 19.5e12) / 3600, rel=0.01)
    assert twice == pytest.approx(2 * once)
    assert again == pytest.approx(once * 4 / 3)
    assert bf16 == pytest.approx(once * 19.5 / 312)
    assert fast == pytest.approx(once * 19.5 / 156)
    without = [price(compose([*words, *more]), GPUS["v100"]).hours for more in ([], [tf32])]
    assert without[0] == without[1]  # a V100 has no TF32
    unknown = compose([*words[:2], "trainer.epochs=1"])
    assert price(unknown, GPUS["a100"]).hours is None  # as many steps as the data has examples, which is not prepared


def test_lengths_and_epochs_are_those_of_the_prepared_text(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    lines = [json.dumps({"question": f"What is {n} + 1?", "answer": str(n + 1)}) for n in range(100, 300)]
    path.write_text("\n".join(lines))
    words = ["dataset=file", f"dataset.path={path}", f"data_dir={tmp_path}", "trainer.epochs=2"]
    config = compose(["model=t5_small", "model.pretrained=false", "scale=tiny", *words])
    Prepared(config.dataset, config.data_dir).prepare()
    found = price(config, GPUS["h100"])
    # 4 digits, and 12 other characters in fours; an answer of 3 digits and its end
    assert (found.lengths.read, found.lengths.written) == (4 + 3, 4)
    assert found.lengths.mean == 11
    assert found.lengths.rows
    assert found.hours
    assert price(compose(["model=gpt2_tiny", *words]), GPUS["h100"]).lengths.read == 16  # each character a token


@pytest.mark.slow
def test_what_does_not_fit_is_said_with_what_makes_it_fit() -> None:
    words = ["dataset=gsm8k", "model=t5_3b", "scale=paper"]
    found = capacity([compose([*words, f"seed={seed}"]) for seed in (1, 2)], "h100")
    _, columns, *rows, told, unprepared = found.splitlines()
    assert columns.split()[3:7] == ["parameters", "rows", "tokens", "state"]
    assert [row.split()[:4] + row.split()[-1:] for row in rows] == [["gsm8k", "t5_3b", "ntl_was", "2,851,598,336", "2"]]
    assert told.startswith("gsm8k t5_3b ntl_was: ")
    assert "do not fit h100, 79.6 GiB; these do: trainer.max_tokens_per_batch=" in told
    assert "; or trainer.gradient_checkpointing=true (" in told
    assert unprepared == "gsm8k: not prepared, so priced at trainer.max_input_length=512"
    cut = told.split("these do: ")[1].split()[0]
    assert "do not fit" not in capacity([compose([*words, cut])], "h100")
    assert "do not fit" not in capacity([compose([*words, "trainer.gradient_checkpointing=true"])], "h100")
    small = capacity([compose(words)], "v100")
    assert "trainer=fsdp trainer.gradient_checkpointing=true on 2 devices" in small
    assert "model.lora.rank=16 trainer.gradient_checkpointing=true" in small
    sharded = capacity([compose([*words, "trainer=fsdp", "trainer.gradient_checkpointing=true"])], "v100")
    assert "trainer=fsdp, the state is that on " in sharded


def test_hours_at_a_measured_rate_stand_beside_the_estimate() -> None:
    configs = [compose([*words, "scale=tiny", "trainer.max_steps=7200"]) for words in (["loss=ce"], ["loss=ntl_was"])]
    _, columns, *rows = capacity(configs, "h100", [0.5, None]).splitlines()
    assert columns.split()[-3:] == ["GPU-hours", "measured", "runs"]
    assert [row.split()[-2] for row in rows[:2]] == ["4.0000", "unknown"]
    assert "measured" not in capacity(configs, "h100")


def test_what_cannot_be_priced_is_said() -> None:
    assert "granite_moe_tiny ntl_was: not priced: " in capacity([compose(["model=granite_moe_tiny"])], "h100")
    assert "not priced" not in capacity([compose(["experiment=xval_multiplication"])], "h100")
    with pytest.raises(UserError, match=r"--gpu h10: unknown; choose from h100, .* Did you mean 'h100'\?"):
        capacity([compose([])], "h10")
