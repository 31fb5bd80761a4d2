"""Records by hand, with the id and the config of the run that a row composes."""

from collections.abc import Callable
from typing import Any

import pytest
from rows import composed_run

from ntl.config.folders import RESULTS
from ntl.results import RunRecord, load_records


@pytest.fixture
def make_record() -> Callable[..., RunRecord]:
    """A run of quickstart's first block."""

    def make(
        loss: str,
        seed: int,
        metrics: dict[str, float | None],
        weight: float = 0.3,
        dataset: str = "noisy_numbers",
        **changes: Any,
    ) -> RunRecord:
        name, words, config = composed_run(loss, seed, dataset, weight)
        about: dict[str, Any] = {"id": name, "overrides": words, "config": config, "device": "cpu"}
        about["git"] = {"commit": "0123456789", "dirty": False}
        return RunRecord(seed=seed, metrics=metrics, **{**about, **changes})

    return make


@pytest.fixture(scope="session")
def published() -> list[RunRecord]:
    """The records of results/runs, read once."""
    return load_records([RESULTS / "runs"])
