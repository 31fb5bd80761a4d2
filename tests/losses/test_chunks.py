"""Where the rows are cut makes no difference."""

import pytest
import torch
from loss_cases import DIGITS

from ntl.losses import ce_ntl, chunks


@pytest.mark.parametrize("kind", ["was", "gce", "was_vocab"])
def test_the_size_of_a_chunk_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(23, 13, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 13, (23,), generator=generator)
    labels[4:11] = -100  # whole chunks that hold nothing
    gradients = []
    for rows in (1, 2, 5, 23, 100):
        monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", rows * 13 * 8)
        leaf = logits.clone().requires_grad_()
        ce_ntl(leaf, labels, DIGITS, kind=kind, implementation="fused").total.backward()
        gradients.append(leaf.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-12, atol=1e-15)
