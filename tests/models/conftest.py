"""A word-level tokenizer with digits, created in memory, the models that a command line describes, and their logits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from given import characters
from transformers import PreTrainedTokenizerFast

from ntl.config import build, compose


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return characters()


@pytest.fixture(scope="session")
def made(tokenizer: PreTrainedTokenizerFast) -> Callable[..., Any]:
    """``made(name, *overrides, vocab_size=400)``: the model of this command line, from seed 0, with settings changed.

    ``folder`` is that of its weights; ``settings`` are more of those of its architecture.
    """

    def make(
        name: str, *overrides: str, folder: Any = "", settings: dict[str, Any] | None = None, **changes: Any
    ) -> Any:
        torch.manual_seed(0)
        weights = [f"model.path={folder}", "model.pretrained=true"] if folder and name == "hf" else []
        config: Any = compose([f"model={name}", "scale=tiny", *overrides, *weights]).model
        changes |= {"path": str(folder), "pretrained": True} if folder else {}
        changes |= {"dropout": None} if folder and name != "hf" else {}
        changes |= {"settings": config.settings | settings} if settings else {}
        return build(replace(config, **changes), tokenizer=tokenizer).eval()

    return make


@pytest.fixture(scope="session")
def logits() -> Callable[..., torch.Tensor]:
    """Two rows, the second with padding; each has the end token 1, where a regression head of T5 reads the state."""
    rows, mask = torch.tensor([[3, 5, 7, 1], [2, 1, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])

    def run(model: Any, keep: slice = slice(None), width: int = 4) -> torch.Tensor:
        ids = rows[keep, :width]
        decoded = {"decoder_input_ids": ids} if model.config.is_encoder_decoder and model.can_generate() else {}
        return model(input_ids=ids, attention_mask=mask[keep, :width], use_cache=False, **decoded).logits

    return run
