"""Where the rows are cut makes no difference."""

import pytest
import torch
from loss_cases import DIGITS

from ntl.losses import ce_ntl, chunks


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["was", "gce", "was_vocab"])
def test_the_size_of_a_chunk_changes_nothing(
    kind: str, dtype: torch.dtype, inplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(23, 13, generator=generator, dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 13, (23,), generator=generator)
    labels[4:11] = -100  # whole chunks that hold nothing
    itemsize = max(dtype.itemsize, 4)  # a half type is computed in float32
    gradients = []
    for rows in (1, 2, 5, 23, 100):
        monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", rows * 13 * itemsize // torch.get_num_threads())
        leaf = logits.clone().requires_grad_()
        options = {"kind": kind, "implementation": "fused", "inplace": inplace}
        ce_ntl(leaf.view_as(leaf), labels, DIGITS, **options).total.backward()
        gradients.append(leaf.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-12, atol=1e-15)


def test_a_threads_share_of_a_chunk_is_what_its_cache_holds() -> None:
    labels = torch.zeros(4096, dtype=torch.long)
    one, threads = torch.ones(()), torch.get_num_threads()
    empty = torch.empty(0, dtype=torch.long)
    part = chunks.NumberPart(one[None][:0], None, None, None, None, None)
    rows = chunks.Rows(labels, None, empty, empty, one.new_empty(0, 0), part, chunks.Scales(one, one))
    assert rows.chunk_length(1024) == threads * chunks.CPU_CHUNK_BYTES // 4096
    assert rows.chunk_length(10**9) == 1
