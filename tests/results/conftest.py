"""Hand-made records: only what a table reads, with the resolved config that the row's overrides would give."""

from collections.abc import Callable
from typing import Any

import pytest

from ntl.results import RunRecord


@pytest.fixture
def make_record() -> Callable[..., RunRecord]:
    def make(loss: str, seed: int, metrics: dict[str, float | None], weight: float = 0.3, **changes: Any) -> RunRecord:
        config = {
            "model": {"name": "gpt2_tiny", "pretrained": False},
            "tokenizer": {"name": "digit"},
            "loss": {"name": loss, "weight": weight},
            "dataset": {"name": "noisy_numbers"},
            "scale": {"name": "tiny"},
            "trainer": {"name": "default", "max_steps": 500},
            "beside": {"expectation": {"name": "expectation"}},
            "seed": seed,
        }
        values: dict[str, Any] = {
            "id": f"{loss}-{weight}-s{seed}",
            "overrides": [f"loss={loss}", *([] if loss == "ce" else [f"loss.weight={weight}"]), f"seed={seed}"],
            "config": config,
            "seed": seed,
            "metrics": metrics,
            "git": {"commit": "0123456789", "dirty": False},
            "device": "cpu",
        }
        return RunRecord(**{**values, **changes})

    return make
