import pytest
from loss_cases import WIDTH

from ntl.losses.fused import chunks


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split even small batches into several chunks of rows."""
    monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)
