"""Loss and gradient of a few rows at a time, while they are in the processor's cache: what all fused forms share.

Shape suffixes: V vocabulary, K number tokens, N all rows, C those of a chunk, M those whose number-token logits are
read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ntl.losses.plan import NumberPart, Scales

# Of logits in the type that is computed in. Larger ones leave a processor's cache; smaller ones pay for their calls.
CPU_CHUNK_BYTES, GPU_CHUNK_BYTES = 4 << 20, 256 << 20
# A label's probability that gives the log-sum-exp to the last bit; below it the largest logit does.
_SURE = 1e-30


@dataclass(frozen=True)
class Rows:
    """Everything about N rows but their logits.

    labels: (N,), a token id where ``counted``, any valid id elsewhere
    counted: (N,) bool, None where all are
    numbers: (M,) positions of ``part``'s rows, ascending; ``part.patch_MK`` is added at ``token_ids`` (K,)
    """

    labels: Tensor
    counted: Tensor | None
    numbers: Tensor
    token_ids: Tensor
    part: NumberPart
    scales: Scales

    def chunks(self, width: int, itemsize: int, start: int = 0, stop: int | None = None) -> "Iterator[Chunk]":
        """Runs of the rows from ``start`` to ``stop``; one without a counted row is marked on a CPU, where that is free
        to know.
        """
        size, device = len(self.labels) if stop is None else stop, self.labels.device
        most = CPU_CHUNK_BYTES if device.type == "cpu" else GPU_CHUNK_BYTES
        step = max(1, most // max(width * itemsize, 1))
        edges = starts = [*range(start, size, step), size]
        if len(self.numbers) != len(self.labels):
            edges = torch.searchsorted(self.numbers, torch.tensor(starts, device=device)).tolist()
        on_cpu = device.type == "cpu"
        for k, first in enumerate(starts[:-1]):
            rows = slice(first, starts[k + 1])
            empty = on_cpu and self.counted is not None and not bool(self.counted[rows].any())
            yield Chunk(rows, slice(edges[k], edges[k + 1]), empty)


@dataclass(frozen=True)
class Chunk:
    """``rows`` of N, ``numbers`` of M; ``empty`` where no row counts."""

    rows: slice
    numbers: slice
    empty: bool


def kept_type(logits: Tensor) -> torch.dtype:
    """In which a gradient waits for the backward: float16 has no room for one before the loss scale has arrived."""
    return torch.float32 if logits.dtype == torch.float16 else logits.dtype


def label_logits(logits_CV: Tensor, rows: Rows, chunk: Chunk) -> Tensor:
    """(C,): the logit of each label."""
    return logits_CV.gather(-1, rows.labels[chunk.rows].unsqueeze(-1)).squeeze(-1)


def to_gradient(logits_CV: Tensor, out_CV: Tensor, rows: Rows, chunk: Chunk) -> tuple[Tensor, Tensor]:
    """Write the gradient of these rows' part of the total to ``out_CV``, which may be ``logits_CV`` itself.

    Both in the type that is computed in. Returns, (C,) each, the base loss and the log-sum-exp.
    """
    labels_C1 = rows.labels[chunk.rows].unsqueeze(-1)
    target_C = label_logits(logits_CV, rows, chunk)
    at, ids, part = rows.numbers[chunk.numbers] - chunk.rows.start, rows.token_ids, rows.part
    largest_C = logits_CV.amax(dim=-1) if logits_CV.data_ptr() == out_CV.data_ptr() else None
    torch.softmax(logits_CV, dim=-1, out=out_CV)
    lse_C = _log_sum_exp(logits_CV, out_CV, labels_C1, target_C, largest_C)
    scale_C = rows.scales.base.expand(len(target_C))
    if part.excess_MK is not None:
        of_MK = out_CV[at.unsqueeze(-1), ids] * part.excess_MK[chunk.numbers] * rows.scales.number
        scale_C = scale_C.index_add(0, at, -of_MK.sum(-1))
    out_CV.mul_(scale_C.unsqueeze(-1))
    hot_C = rows.scales.base.expand(len(target_C))
    if part.is_soft_M is not None:
        hot_C = hot_C.index_put((at,), hot_C[at].masked_fill(part.is_soft_M[chunk.numbers], 0.0))
    out_CV.scatter_add_(-1, labels_C1, -hot_C.unsqueeze(-1))
    if part.excess_MK is not None:
        out_CV[at.unsqueeze(-1), ids] += of_MK
    if part.patch_MK is not None and len(at):
        out_CV[at.unsqueeze(-1), ids] += part.patch_MK[chunk.numbers]
    if rows.counted is not None:
        _clear(out_CV, ~rows.counted[chunk.rows])
    return base_losses(lse_C, target_C, rows, chunk), lse_C


def base_losses(lse_C: Tensor, target_C: Tensor, rows: Rows, chunk: Chunk) -> Tensor:
    """(C,): the base loss, 0 where a row does not count."""
    if rows.part.soft_M is not None and rows.part.is_soft_M is not None:
        at, numbers = rows.numbers[chunk.numbers] - chunk.rows.start, chunk.numbers
        soft_M = rows.part.soft_M.detach()[numbers].where(rows.part.is_soft_M[numbers], target_C[at])
        target_C = target_C.index_put((at,), soft_M)
    losses_C = lse_C - target_C
    return losses_C if rows.counted is None else losses_C.masked_fill(~rows.counted[chunk.rows], 0.0)


def excess_losses(logits_MK: Tensor, lse_N: Tensor, rows: Rows) -> Tensor | None:
    """(M,): text cost + Σ_k p_k c_k; None without such a term."""
    part = rows.part
    if part.excess_MK is None or part.text_M is None:
        return None
    mass_MK = (logits_MK - lse_N[rows.numbers].unsqueeze(-1)).exp()
    return part.text_M + (mass_MK * part.excess_MK).masked_fill(part.excess_MK == 0, 0.0).sum(-1)


def _log_sum_exp(
    logits_CV: Tensor, softmax_CV: Tensor, labels_C1: Tensor, target_C: Tensor, largest_C: Tensor | None
) -> Tensor:
    # From the label's own entry where it can be trusted: a pass over all of a row for the largest costs more.
    likely_C = softmax_CV.gather(-1, labels_C1).squeeze(-1)
    lse_C, sure_C = target_C - likely_C.log(), likely_C > _SURE
    if sure_C.device.type == "cpu" and bool(sure_C.all()):
        return lse_C
    largest_C = logits_CV.amax(dim=-1) if largest_C is None else largest_C
    return lse_C.where(sure_C, largest_C - softmax_CV.amax(dim=-1).log())


def _clear(out_CV: Tensor, ignored_C: Tensor) -> None:
    if ignored_C.device.type == "cpu":
        out_CV.index_fill_(0, ignored_C.nonzero().squeeze(-1), 0.0)
    else:  # the host must not wait for how many there are
        out_CV.masked_fill_(ignored_C.unsqueeze(-1), 0.0)
