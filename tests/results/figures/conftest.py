"""Tiny records of everything that a figure reads, with the resolved config that their overrides would give."""

from collections.abc import Callable
from typing import Any

import pytest

from ntl.results import RunRecord


@pytest.fixture
def tiny_record() -> Callable[..., RunRecord]:
    def make(loss: str, seed: int, dataset: str = "noisy_numbers", **changes: Any) -> RunRecord:
        names = {"dataset": dataset, "scale": "tiny", "model": "gpt2_tiny", "tokenizer": "digit"}
        names |= {key: changes.pop(key) for key in list(names) if key in changes}
        weight = changes.pop("weight", 0.3)
        config: dict[str, Any] = {group: {"name": name} for group, name in names.items()}
        config["loss"] = {"name": loss, "weight": weight}
        known: dict[str, Any] = {"metrics": {}, "overrides": [f"loss={loss}"], **changes}
        return RunRecord(id=f"{dataset}-{loss}-{weight}-s{seed}", config=config, seed=seed, **known)

    return make
