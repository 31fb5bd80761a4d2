"""Runs of a second: 96 examples, a model of a few thousand parameters."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ntl.config import Config, compose

DATASETS = {
    "noisy_numbers": ["dataset.train_rows=96", "dataset.validation_rows=20", "dataset.test_rows=30"],
    "multiplication": ["dataset.train_rows=96", "dataset.validation_rows=20", "dataset.test_rows_per_cell=4"],
}
SMALL = [
    "model.n_embd=16",
    "model.n_layer=1",
    "trainer.batch_size=16",
    "trainer.max_steps=12",
    "trainer.warmup_steps=2",
    "trainer.save_steps=6",
    "trainer.logging_steps=4",
    "tracking=none",
    "device=cpu",
]


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data, tokenizers and encodings, shared by all tests."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def small(data_dir: Path, tmp_path: Path) -> Callable[..., Config]:
    """A config of a run of a second, changed by overrides."""

    def make(*overrides: str, dataset: str = "noisy_numbers") -> Config:
        data = [f"dataset={dataset}", *DATASETS[dataset]]
        places = [f"data_dir={data_dir}", f"output_dir={tmp_path / 'outputs'}"]
        return compose([*data, *SMALL, *places, *overrides])

    return make
