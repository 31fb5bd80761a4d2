"""A data set small enough to be prepared in every test, and folders that no other variable reaches into."""

from pathlib import Path

import pytest

from ntl.config.data import NoisyNumbersConfig
from ntl.data.noisy_numbers import NoisyNumbers


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder; NTL_DATA_DIR is not set."""
    monkeypatch.delenv("NTL_DATA_DIR", raising=False)
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def small() -> NoisyNumbers:
    """noisy_numbers with 30 + 10 + 20 rows."""
    return NoisyNumbers(NoisyNumbersConfig(train_rows=30, validation_rows=10, test_rows=20))


@pytest.fixture
def silent() -> list[str]:
    """Collects the log lines of a preparation: pass ``silent.append``."""
    return []
