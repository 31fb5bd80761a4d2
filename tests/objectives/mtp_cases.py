"""The tiny decoders, kinds of heads and batches that the tests of multi-token prediction share."""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from ntl.numbers import NumberVocabulary

IGNORED, END, VOCABULARY = -100, 20, 24
SHAPES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_head": 2, "n_positions": 16},
    "llama": {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24},
    "qwen2": {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24},
    "granite": {"hidden_size": 16, "num_attention_heads": 2, "logits_scaling": 6.0, "intermediate_size": 24},
}
KINDS: list[dict[str, Any]] = [{"variant": variant} for variant in ("independent", "causal", "linear")]
KINDS += [{"kind": "sequential"}, {"kind": "shared"}]
KIND_NAMES = [next(iter(kind.values())) for kind in KINDS]


def decoder(architecture: str, layers: int = 2, *, tied: bool = True, **settings: Any) -> Any:
    torch.manual_seed(3)
    shape = SHAPES.get(architecture, SHAPES["llama"]) | {"num_hidden_layers": layers}
    if architecture == "gpt2":
        shape |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ids = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": 21, "vocab_size": VOCABULARY}
    config = AutoConfig.for_model(architecture, tie_word_embeddings=tied, **{**ids, **shape, **settings})
    return AutoModelForCausalLM.from_config(config).double()


def spread(model: Any, seed: int = 4, std: float = 0.3) -> Any:
    """Weights far from uniform, so that a label one place off costs something else, and norms that keep float64.

    Those of transformers compute in float32.
    """
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if "RMSNorm" in type(child).__name__:
                setattr(parent, name, torch.nn.RMSNorm(child.weight.shape[0], eps=1e-6))
    torch.manual_seed(seed)
    for parameter in model.double().parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def vocabulary() -> NumberVocabulary:
    return NumberVocabulary.from_values([float(token) if token < 10 else float("nan") for token in range(VOCABULARY)])


def make_batch(rows: int = 3) -> dict[str, Tensor]:
    """With labels as a model's own forward takes them."""
    ids = torch.randint(0, 20, (rows, 10), generator=torch.Generator().manual_seed(5))
    labels, mask = ids.clone(), torch.ones_like(ids)
    labels[0, :4] = IGNORED  # a question
    labels[1, 8:], mask[1, 8:], ids[1, 8:] = IGNORED, 0, 21  # padding
    ids[2, 4] = labels[2, 4] = END  # the end of a document
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], atol: float = 1e-9) -> None:
    assert found.keys() == expected.keys()
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, rtol=0, atol=atol, msg=lambda told, name=name: f"{name}: {told}")
