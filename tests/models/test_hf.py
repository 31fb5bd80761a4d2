"""``model=hf``: folders that transformers wrote are trained, saved, reloaded by transformers alone, and predicted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from given import save
from mtp_cases import decoder
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    set_seed,
)
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from ntl.config import Config, UserError, compose
from ntl.config.loss import MTPConfig
from ntl.decoding.predictor import restore
from ntl.models.interface import lm_head
from ntl.models.mtp import Heads, add_heads, carry_heads
from ntl.results import read_record
from ntl.training.train import train

ROWS = [
    *("dataset.train_rows=24", "dataset.validation_rows=4", "dataset.test_rows_per_cell=1"),
    *("dataset.max_digits=1", "dataset.extrapolate_digits=2"),
]
STEPS = [
    *("trainer.max_steps=3", "trainer.eval_steps=3", "trainer.save_steps=3", "trainer.warmup_steps=1"),
    *("trainer.batch_size=8", "trainer.lr=1e-3", "decoding.max_new_tokens=4", "tracking=none", "device=cpu"),
]
LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
}
BART = {
    **{f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in {
        "layers": 1, "attention_heads": 2, "ffn_dim": 32,
    }.items()},
    "d_model": 16,
    "max_position_embeddings": 128,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}  # fmt: skip
# model_type -> the settings of its config class.
SHAPES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen2": LLAMA,
    "gpt_neox": {name: size for name, size in LLAMA.items() if name != "num_key_value_heads"},
    "mamba": {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 2},
    "bart": BART,
}


def save_folder(folder: Path, kind: str, **settings: Any) -> Path:
    """A folder with random weights of this ``model_type`` and a tokenizer of single digits."""
    tokenizer = AutoTokenizer.from_pretrained(save("smollm2", folder))
    roles = {name: getattr(tokenizer, name) for name in ("pad_token_id", "eos_token_id", "bos_token_id")}
    config = AutoConfig.for_model(kind, **{"vocab_size": len(tokenizer), **roles, **SHAPES[kind], **settings})
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    set_seed(0)
    auto_class.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def given(data_dir: Path, tmp_path: Path) -> Callable[..., Config]:
    """The config of three steps from the weights in a folder."""
    places = [f"data_dir={data_dir}", f"output_dir={tmp_path / 'outputs'}"]

    def make(folder: Path, *more: str, model: str = "hf", loss: str = "ntl_was") -> Config:
        words = [f"model={model}", f"model.path={folder}", "dataset=multiplication", f"loss={loss}", *ROWS, *STEPS]
        return compose([*words, *places, *more])

    return make


def stock(folder: Path) -> Any:
    """The model in a folder as transformers loads it."""
    config = json.loads((folder / "config.json").read_text())
    auto_class: Any = AutoModelForSeq2SeqLM if config.get("is_encoder_decoder") else AutoModelForCausalLM
    model, info = auto_class.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model


def settings(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.slow
def test_trained_saved_reloaded_and_predicted(given, kind: str, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / kind, kind)
    record = train(given(folder, "loss.implementation=linear"))
    found = read_record(record)
    assert found.config["model"]["name"].startswith(f"{kind}_")
    assert found.model["parameters"] == stock(folder).num_parameters()
    checkpoint = record.parent / "checkpoints" / "checkpoint-3"
    before, after = stock(folder).state_dict(), stock(checkpoint).state_dict()
    assert any(not torch.equal(weight, after[name]) for name, weight in before.items())
    # Its config is that of the weights, dropout, positions and all.
    assert settings(checkpoint) == settings(folder)
    own: Any = restore(record.parent)[0].model
    assert all(torch.equal(weight, after[name]) for name, weight in own.state_dict().items())
    if kind in ("llama", "t5"):  # whose adapters are in test_lora.py
        return
    adapters = given(folder, "model.lora.rank=2")
    if kind == "mamba":
        with pytest.raises(UserError, match=r"model\.lora\.rank=2: adapters do not fit a model of the type mamba"):
            train(adapters)
        with pytest.raises(UserError, match="mamba has no cache of keys and values, which it needs"):
            train(given(folder, "tokenizer=digit", "extra_decodings=expectation"))
        return
    merged = stock(train(adapters).parent / "checkpoints" / "checkpoint-3")
    assert merged.num_parameters() == stock(folder).num_parameters()


@pytest.mark.slow
def test_a_regression_head_on_given_weights(given, tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "llama", "llama")
    record = train(given(folder, model="hf_regression", loss="squared_error"))
    loaded: Any
    loaded, info = AutoModelForSequenceClassification.from_pretrained(
        record.parent / "checkpoints" / "checkpoint-3", output_loading_info=True
    )
    assert not info["missing_keys"]
    before, after = stock(folder).state_dict(), loaded.state_dict()
    assert any(not torch.equal(before[name], weight) for name, weight in after.items() if name in before)
    # An answer is the mean of the training answers plus their spread times the output.
    parts, _ = restore(record.parent)
    answers = np.array([float(row["answer"]) for row in parts.rows("train")])
    mean, spread = loaded.config.target_mean, loaded.config.target_sd
    assert (mean, spread) == pytest.approx((answers.mean(), answers.std()))
    row = parts.rows("interpolate")[0]
    output = loaded(**parts.tokenizer(row["question"], return_tensors="pt", return_token_type_ids=False)).logits.item()
    first = json.loads((record.parent / "predictions.jsonl").read_text().splitlines()[1])
    assert float(first["prediction"]) == pytest.approx(mean + spread * output, abs=0.01)
    with pytest.raises(UserError, match=r"model=hf_regression model\.path=.*: a t5 is no decoder; the head is"):
        given(save_folder(tmp_path / "t5", "t5"), model="hf_regression", loss="squared_error")


def test_a_line_for_a_rate_for_random_weights_and_for_too_few_positions(given, tmp_path: Path, caplog) -> None:
    train(given(save_folder(tmp_path / "llama", "llama"), "scale=tiny", "trainer.max_steps=0"))
    assert "learned weights are trained at trainer.lr=0.001, which is meant for random ones" in caplog.text
    with pytest.raises(UserError, match=r"model=bart_\w+: it reads 4 tokens, and multiplication train needs"):
        train(given(save_folder(tmp_path / "bart", "bart", max_position_embeddings=4)))


# Sequential modules are those of transformers, which reads what is saved here and drafts the same tokens.


EXTRA: dict[str, dict[str, Any]] = {
    "ernie4_5_moe": {"moe_layer_start_index": 99, "router_aux_loss_coef": 0.0},
    "qwen3_5_text": {"layer_types": ["full_attention"] * 2, "head_dim": 8},
}


def _model(architecture: str) -> Any:
    return decoder(architecture, tied=False, **EXTRA.get(architecture, {})).float()


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """A model with sequential modules whose weights are all random, and the folder that it is saved in."""

    def make(architecture: str, heads: int = 3) -> tuple[Any, Path]:
        model = add_heads(_model(architecture), MTPConfig(kind="sequential", heads=heads))
        torch.manual_seed(1)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(tmp_path / "model")
        return model.eval(), tmp_path / "model"

    return make


@torch.no_grad()
def _logits(model: Any, config: MTPConfig, ids: torch.Tensor) -> list[torch.Tensor]:
    heads = Heads(model, config, ids, torch.ones_like(ids))
    found, states = [], heads.trunk
    for index in heads.chains[0]:
        states = heads.state(index, states)
        found.append(lm_head(model).logits(heads.read(states)))
    return found


@pytest.mark.parametrize("architecture", list(EXTRA))
def test_transformers_drafts_what_the_heads_predict(architecture: str, saved: Callable[..., Any]) -> None:
    _, folder = saved(architecture)
    stock = AutoModelForCausalLM.from_pretrained(folder).eval()
    drafter = MtpModel.from_pretrained(stock).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])  # the last one is the token that the main model has just drawn
    with torch.no_grad():
        states = stock(ids[:, :-1], output_hidden_states=True).hidden_states[-1]
        drafts, logits, _ = drafter(
            input_ids=ids[:, 1:],
            last_hidden_states=states,
            attention_mask=None,
            position_ids=torch.arange(1, 7)[None],
            mtp_cache=MtpCache(config=stock.config.get_mtp_config()),
        )
    config = MTPConfig(kind="sequential", heads=3)
    ours = add_heads(AutoModelForCausalLM.from_pretrained(folder), config, str(folder)).eval()
    found = _logits(ours, config, torch.cat([ids, drafts[:, :1]], dim=1))
    torch.testing.assert_close(found[0][:, :6], stock(ids[:, :-1]).logits, rtol=1e-4, atol=1e-4)
    for head in (1, 2):
        torch.testing.assert_close(found[head][:, 5], logits[:, head - 1], rtol=1e-4, atol=1e-4)


def test_published_modules_are_loaded(saved: Callable[..., Any]) -> None:
    """Under the names of Qwen3.5's own files, which have one module; what is trained from them is saved in ours."""
    model, folder = saved("qwen3_5_text", heads=2)
    state = safetensors.torch.load_file(folder / "model.safetensors")
    renamed = {}
    for name, each in state.items():
        for ours, theirs in (
            ("layers.0.eh_proj", "fc"),
            ("layers.0.enorm", "pre_fc_norm_embedding"),
            ("layers.0.hnorm", "pre_fc_norm_hidden"),
            ("layers.0.post_norm", "norm"),
            ("layers.0.mtp_block", "layers.0"),
        ):
            name = name.replace(f"mtp.{ours}.", f"mtp.{theirs}.")
        renamed[name] = each
    assert "mtp.fc.weight" in renamed
    safetensors.torch.save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    config = MTPConfig(kind="sequential", heads=2)
    loaded = add_heads(AutoModelForCausalLM.from_pretrained(folder), config, str(folder))
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    with pytest.raises(UserError, match="its own modules for multi-token prediction cannot be loaded"):
        add_heads(AutoModelForCausalLM.from_pretrained(folder), MTPConfig(kind="sequential", heads=3), str(folder))
    loaded.save_pretrained(folder.parent / "again")
    assert safetensors.torch.load_file(folder.parent / "again" / "model.safetensors").keys() == state.keys()


def test_modules_in_the_base_model_are_carried_too(tmp_path: Path) -> None:
    """Under names such as MiMo's."""
    _model("llama").save_pretrained(tmp_path)
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    modules = {f"model.mtp.layers.0.{name}.weight": torch.ones(2, 2) for name in ("eh_proj", "norm")}
    safetensors.torch.save_file(state | modules, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = carry_heads(AutoModelForCausalLM.from_pretrained(tmp_path), str(tmp_path))
    model.save_pretrained(tmp_path / "again")
    again = safetensors.torch.load_file(tmp_path / "again" / "model.safetensors")
    assert modules.keys() <= again.keys()


def test_parallel_heads_that_nothing_trains_are_left_out_with_a_line(tmp_path: Path, caplog) -> None:
    add_heads(_model("llama"), MTPConfig(heads=2, keep_depth=True)).save_pretrained(tmp_path)
    model = carry_heads(AutoModelForCausalLM.from_pretrained(tmp_path), str(tmp_path))
    assert not any("mtp" in name for name in model.state_dict())
    (line,) = caplog.messages
    assert "are left out; objective=mtp with their number keeps them" in line
