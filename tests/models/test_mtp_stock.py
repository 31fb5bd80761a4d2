"""Sequential modules are those of transformers, which reads what is saved here and drafts the same tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from mtp_cases import decoder
from transformers import AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from ntl.config import UserError
from ntl.config.loss import MTPConfig
from ntl.models.interface import lm_head
from ntl.models.mtp import Heads, add_heads, carry_heads

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
    model = carry_heads(AutoModelForCausalLM.from_pretrained(tmp_path), str(tmp_path), [].append)
    model.save_pretrained(tmp_path / "again")
    again = safetensors.torch.load_file(tmp_path / "again" / "model.safetensors")
    assert modules.keys() <= again.keys()


def test_parallel_heads_that_nothing_trains_are_left_out_with_a_line(tmp_path: Path) -> None:
    add_heads(_model("llama"), MTPConfig(heads=2, keep_depth=True)).save_pretrained(tmp_path)
    said: list[str] = []
    model = carry_heads(AutoModelForCausalLM.from_pretrained(tmp_path), str(tmp_path), said.append)
    assert not any("mtp" in name for name in model.state_dict())
    (line,) = said
    assert "are left out; objective=mtp with their number keeps them" in line
