"""Decoders of transformers from a YAML file: Granite with its special features, and two that are not in the paper."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ntl.config import UserError

BATCH = {"input_ids": torch.tensor([[3, 5, 13, 7]]), "attention_mask": torch.ones(1, 4, dtype=torch.int64)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["granite_moe_tiny", "llama_tiny"])
def test_dropout_acts(name: str, made, tmp_path: Path) -> None:
    """Two passes in training mode differ, whether the model is built from scratch or loaded from a folder."""
    made(name).save_pretrained(tmp_path)
    for folder in ("", tmp_path):
        of = "hf" if folder else name
        model, without = made(of, folder=folder, dropout=0.25).train(), made(of, folder=folder).train()
        assert not torch.equal(model(**BATCH).logits, model(**BATCH).logits)
        torch.testing.assert_close(without(**BATCH).logits, without(**BATCH).logits, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "granit"}, r"model\.architecture=granit: "),
        ({"settings": {"hidden_size": "three"}}, r"model\.architecture=llama: "),
        (
            {"settings": {"hiden_size": 32}},
            r"model\.settings\.hiden_size: there is no such setting\. Did you mean 'hidden_size'\?",
        ),
        ({"settings": {"attn_implementation": "fast"}}, r"model\.architecture=llama: .*attn_implementation.*fast"),
        (
            {"architecture": "mamba", "dropout": 0.1},
            r"^model\.dropout=0\.1: mamba models have no dropout; set model\.dropout=0\.$",
        ),
    ],
)
def test_one_line_for_a_mistake(changes: dict[str, Any], message: str, made) -> None:
    with pytest.raises(UserError, match=message) as caught:
        made("llama_tiny", **changes)
    assert "\n" not in str(caught.value)
