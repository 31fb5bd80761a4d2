from collections.abc import Iterator

import pytest
from loss_cases import WIDTH

from ntl.losses import fast


@pytest.fixture(scope="module")
def small_chunks() -> Iterator[None]:
    """Split even small batches into several chunks of rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "CPU_CHUNK_BYTES", 5 * WIDTH * 4)
        yield
