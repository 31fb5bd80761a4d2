"""Adapters: frozen weights do not change, the merged model is equivalent, and trained weights can be restored."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ntl.config import compose
from ntl.config.model import LoraConfig
from ntl.models.lora import add_lora, merged_state, trained_state

NAMES = ["gpt2_tiny", "granite_tiny", "t5_tiny_regression"]


@pytest.fixture
def adapted(made) -> Callable[..., Any]:
    def make(name: str, **lora: Any) -> Any:
        full = compose([f"model={name}", "scale=tiny"]).model.lora.full
        return add_lora(made(name), LoraConfig(rank=2, full=full, **lora))

    return make


@pytest.mark.parametrize("name", NAMES)
def test_adapters_alone_are_trained_and_the_merged_model_computes_the_same(name: str, adapted, made, logits) -> None:
    model, plain = adapted(name, alpha=8.0), made(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    for _ in range(3):  # so that every adapter, which begins as zero, has changed
        optimizer.zero_grad()
        logits(model.train()).square().mean().backward()
        optimizer.step()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert changed <= set(trained_state(model))
    assert all("lora_" in key or key.startswith("classification_head.") for key in trained_state(model))
    # What is trained in full needs no adapter beside it.
    assert not [key for key in trained_state(model) if "lora_" in key and key.startswith("classification_head.")]
    with torch.no_grad():
        for weight in trained_state(model).values():  # a few steps hardly move it
            weight.normal_(std=0.3)
        untrained, expected = logits(plain), logits(model.eval())
        merged = merged_state(model)
        assert set(merged) == set(plain.state_dict())
        plain.load_state_dict(merged)
        torch.testing.assert_close(logits(plain), expected, rtol=1e-4, atol=1e-5)
    assert float((expected - untrained).abs().max()) > 0.01
