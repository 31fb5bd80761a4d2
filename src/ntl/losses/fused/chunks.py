"""Loss and gradient of a few rows at a time, while they are in the processor's cache: what all fused forms share.

A log-sum-exp is two numbers that are to be added, the first of them a logit: of their sum, near 30,000, float32 holds
three decimals, and loses the loss.

Shape suffixes: V vocabulary, K number tokens, N all rows, C those at hand, B those of a chunk, M those whose
number-token logits are read; 2C the two parts of the log-sum-exps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntl.losses.fused.plan import NumberPart
from ntl.losses.rows import weighted
from ntl.losses.sums import Scales

# Of logits in the type that is computed in, on a CPU for each thread. Larger chunks leave the cache that a core has for
# itself; smaller ones pay for their calls.
CPU_CHUNK_BYTES, GPU_CHUNK_BYTES = 512 << 10, 256 << 20
# Of a label's probability: with less, logits less the label's lose more digits than those less the largest.
_SURE = 1e-7
# From a row's least logit to its largest: exp(-87) is the last power that float32 holds with all digits.
_SPREAD = 87.0


@dataclass(frozen=True)
class RowBatch:
    """Everything about N rows but their logits.

    labels: (N,), a token id where ``counted``, any valid id elsewhere
    counted: (N,) bool, None where all are
    numbers: (M,) positions of ``part``'s rows, ascending; ``part.patch_MK`` is added at ``token_ids`` (K,)
    logits_MK: the logits there, in the type that is computed in
    smoothing: the share of the target that is spread over the vocabulary
    weights: (N,), what each row's losses are multiplied with, 0 where it does not count; None for 1
    """

    labels: Tensor
    counted: Tensor | None
    numbers: Tensor
    token_ids: Tensor
    logits_MK: Tensor
    part: NumberPart
    scales: Scales
    smoothing: float = 0.0
    weights: Tensor | None = None

    def between(self, start: int, stop: int) -> "RowBatch":
        """The rows ``start`` ... ``stop`` - 1 alone."""
        edges = [start, stop]
        if len(self.numbers) != len(self.labels):
            edges = torch.searchsorted(self.numbers, torch.tensor(edges, device=self.numbers.device)).tolist()
        numbers = slice(*edges)
        return replace(
            self,
            labels=self.labels[start:stop],
            counted=None if self.counted is None else self.counted[start:stop],
            numbers=self.numbers[numbers] - start,
            logits_MK=self.logits_MK[numbers],
            part=self.part.rows(numbers),
            weights=None if self.weights is None else self.weights[start:stop],
        )

    def base_scales(self) -> Tensor:
        """(N,) or (), the coefficient of each base loss."""
        return self.scales.base if self.weights is None else self.scales.base * self.weights

    def excess(self) -> Tensor | None:
        """(N, K): what the masses are multiplied with, 0 where there is no number; None without such a term."""
        if self.part.excess_MK is None:
            return None
        excess_MK = self.part.excess_MK * self.scales.number
        if self.weights is not None:
            excess_MK = excess_MK * self.weights[self.numbers].unsqueeze(-1)
        return excess_MK.new_zeros(len(self.labels), len(self.token_ids)).index_copy_(0, self.numbers, excess_MK)

    def chunk_length(self, width: int) -> int:
        """How many rows of logits are computed at a time."""
        device, itemsize = self.labels.device.type, self.scales.base.itemsize
        most = CPU_CHUNK_BYTES * torch.get_num_threads() if device == "cpu" else GPU_CHUNK_BYTES
        return max(1, most // max(width * itemsize, 1))

    def counted_chunks(self, length: int) -> Sequence[Tensor | None]:
        """``counted`` of each chunk, None where all are."""
        return [None] * max(1, -(-len(self.labels) // length)) if self.counted is None else self.counted.split(length)


def is_empty(counted_B: Tensor | None) -> bool:
    """Whether no row counts; said on a CPU alone, where that is free to know."""
    return counted_B is not None and counted_B.device.type == "cpu" and not bool(counted_B.any())


def kept_type(logits: Tensor) -> torch.dtype:
    """In which a gradient waits for the backward: float16 has no room for one before the loss scale has arrived."""
    return torch.float32 if logits.dtype == torch.float16 else logits.dtype


def label_logits(logits_CV: Tensor, rows: RowBatch) -> Tensor:
    """(C,): the logit of each label, in the type that is computed in."""
    return logits_CV.gather(-1, rows.labels.unsqueeze(-1)).squeeze(-1).to(rows.scales.base.dtype)


def without_gradient(logits_CV: Tensor, rows: RowBatch) -> tuple[Tensor, Tensor]:
    """(C,) and (2, C): the base losses, 0 where a row does not count, and the log-sum-exps, there anything."""
    target_C = label_logits(logits_CV, rows)
    if not len(target_C):
        return target_C, target_C.expand(2, -1)
    length = rows.chunk_length(logits_CV.shape[-1])
    work_BV = logits_CV.new_empty((min(length, len(target_C)), logits_CV.shape[-1]), dtype=target_C.dtype)
    likely_C, top_C, rest_C = torch.ones_like(target_C), target_C.clone(), torch.zeros_like(target_C)
    to_weights = _exponentials if _is_narrow(logits_CV, rows.counted) else _softmax
    columns = (column_C.unsqueeze(-1) for column_C in (rows.labels, target_C, likely_C, top_C, rest_C))
    views = zip(*(tensor.split(length) for tensor in (logits_CV, *columns)), rows.counted_chunks(length), strict=True)
    for logits_BV, labels_B1, target_B1, likely_B1, top_B1, rest_B1, counted_B in views:
        if not is_empty(counted_B):
            to_weights(logits_BV, labels_B1, target_B1, work_BV[: len(logits_BV)], likely_B1, top_B1, rest_B1)
    lse_2C = _log_sums(target_C, likely_C, top_C, rest_C)
    return base_losses(lse_2C, target_C, rows, _mean_less(logits_CV, target_C, rows)), lse_2C


def to_gradient(logits_CV: Tensor, out_CV: Tensor, rows: RowBatch) -> tuple[Tensor, Tensor]:
    """Write the gradient of these rows' part of the total to ``out_CV``, which may be ``logits_CV`` itself.

    Computed in the type of ``rows.scales``, whatever those two are. Returns, (C,) and (2, C), the base losses and the
    log-sum-exps.
    """
    part, base, ids = rows.part, rows.base_scales(), rows.token_ids
    at_M1 = rows.numbers.unsqueeze(-1)
    target_C = label_logits(logits_CV, rows)
    if not len(target_C):
        return target_C, target_C.expand(2, -1)
    mean_C = _mean_less(logits_CV, target_C, rows)
    likely_C, lse_2C, scale_C, more_CK = _scaled_softmax(logits_CV, out_CV, rows, target_C)
    hot_C = base.expand(len(target_C))
    if part.is_soft_M is not None:
        hot_C = hot_C.index_put((rows.numbers,), hot_C[rows.numbers].masked_fill(part.is_soft_M, 0.0))
    everywhere_C = None
    if rows.smoothing:
        everywhere_C = hot_C * (rows.smoothing / logits_CV.shape[-1])
        hot_C = hot_C * (1 - rows.smoothing)
    label_C = likely_C * scale_C - hot_C
    if everywhere_C is not None:
        label_C = label_C - everywhere_C
    if rows.counted is not None:
        label_C = label_C.masked_fill(~rows.counted, 0.0)
    every_C = torch.arange(len(label_C), device=label_C.device)
    out_CV[every_C, rows.labels] = label_C.to(out_CV.dtype)  # scatter_ would copy all of a half type
    if len(rows.numbers) and (part.patch_MK is not None or more_CK is not None):
        if out_CV.dtype == base.dtype:
            number_MK = out_CV[at_M1, ids]
        else:  # what was stored is rounded
            is_label_MK = ids == rows.labels[at_M1]
            number_MK = _likely(rows, lse_2C) * scale_C[at_M1] - hot_C[at_M1] * is_label_MK
            if everywhere_C is not None:
                number_MK = number_MK - everywhere_C[at_M1]
        if more_CK is not None:
            number_MK = number_MK + more_CK[rows.numbers]
        if part.patch_MK is not None:
            number_MK = number_MK + part.patch_MK
        if rows.counted is not None:
            number_MK = number_MK.masked_fill(~rows.counted[at_M1], 0.0)
        out_CV[at_M1, ids] = number_MK.to(out_CV.dtype)
    return base_losses(lse_2C, target_C, rows, mean_C), lse_2C


def _scaled_softmax(
    logits_CV: Tensor, out_CV: Tensor, rows: RowBatch, target_C: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Write the softmax times each row's scale, less what smoothing takes; 0 where a row does not count.

    Returns the labels' probabilities (C,), the log-sum-exps (2, C), the scales (C,), and what a cost over the
    vocabulary adds at the number tokens, (C, K) or None.
    """
    (count, width), dtype = logits_CV.shape, target_C.dtype
    length = rows.chunk_length(width)
    likely_C, scale_C = torch.ones_like(target_C), rows.base_scales().expand(count).clone()
    top_C, rest_C = target_C.clone(), torch.zeros_like(target_C)
    taken_C = rows.base_scales().expand(count) * (rows.smoothing / width) if rows.smoothing else None
    takens = None if taken_C is None else taken_C.unsqueeze(-1).split(length)
    # Of all rows, 0 where there is no number: choosing among them in each chunk costs more.
    more_CK = rows.excess()
    excesses = None if more_CK is None else more_CK.split(length)
    # One for all chunks: the pages of a fresh one cost more than the computation.
    aside = out_CV.dtype != dtype or out_CV.data_ptr() == logits_CV.data_ptr()
    work_BV = logits_CV.new_empty((min(length, count), width), dtype=dtype) if aside else None
    to_weights = _exponentials if _is_narrow(logits_CV, rows.counted) else _softmax
    columns = (column_C.unsqueeze(-1) for column_C in (rows.labels, target_C, likely_C, top_C, rest_C, scale_C))
    views = zip(*(tensor.split(length) for tensor in (logits_CV, out_CV, *columns)), strict=True)
    for chunk, counted_B in enumerate(rows.counted_chunks(length)):
        logits_BV, out_BV, labels_B1, target_B1, likely_B1, top_B1, rest_B1, scale_B1 = next(views)
        if is_empty(counted_B):
            out_BV.zero_()
            continue
        weights_BV = out_BV if work_BV is None else work_BV[: len(logits_BV)]
        inverse_B1 = to_weights(logits_BV, labels_B1, target_B1, weights_BV, likely_B1, top_B1, rest_B1)
        if excesses is not None:
            mass_BK = weights_BV.index_select(-1, rows.token_ids) * inverse_B1
            scale_B1.sub_(excesses[chunk].mul_(mass_BK).sum(-1, keepdim=True))
        if takens is not None:
            out_BV.copy_(weights_BV.mul_(scale_B1 * inverse_B1).sub_(takens[chunk]))
        elif out_BV.dtype == dtype:
            torch.mul(weights_BV, scale_B1 * inverse_B1, out=out_BV)
        else:  # faster than a product that converts
            out_BV.copy_(weights_BV.mul_(scale_B1 * inverse_B1))
        if counted_B is not None:
            _clear(out_BV, ~counted_B)
    return likely_C, _log_sums(target_C, likely_C, top_C, rest_C), scale_C, more_CK


def _log_sums(target_C: Tensor, likely_C: Tensor, top_C: Tensor, rest_C: Tensor) -> Tensor:
    """(2, C): the log-sum-exps, from the labels' probabilities where these tell them, else from both parts."""
    is_sure_C = likely_C > _SURE
    return torch.stack([target_C.where(is_sure_C, top_C), likely_C.log().neg().where(is_sure_C, rest_C)])


def _is_narrow(logits_CV: Tensor, counted_C: Tensor | None) -> bool:
    """Whether this is a CPU, and no exp of a difference underflows in the first row that counts.

    Where it does, a processor's library can take ten times as long.
    """
    if logits_CV.device.type != "cpu":
        return False
    least, most = logits_CV[0 if counted_C is None else int(counted_C.byte().argmax())].aminmax()
    return bool(most.float() - least.float() < _SPREAD)


def _exponentials(
    logits_BV: Tensor,
    labels_B1: Tensor,
    target_B1: Tensor,
    out_BV: Tensor,
    likely_B1: Tensor,
    top_B1: Tensor,
    rest_B1: Tensor,
) -> Tensor:
    """Write exp(logit - label's logit) and the labels' probabilities; return one over the sums, (B, 1).

    A softmax would look for the largest logit first, which takes as long as all the rest. It is looked for, and
    subtracted, in rows whose label is so unlikely that the sum could not be trusted; they alone need ``top_B1`` and
    ``rest_B1``, the parts of their log-sum-exp.
    """
    _exponentials_less(target_B1, logits_BV, out_BV, likely_B1)
    if likely_B1.amin().item() > _SURE:
        return likely_B1
    top_B1.copy_(target_B1.where(likely_B1 > _SURE, logits_BV.amax(-1, keepdim=True).to(out_BV.dtype)))
    inverse_B1 = torch.empty_like(likely_B1)
    _exponentials_less(top_B1, logits_BV, out_BV, inverse_B1)
    torch.mul((target_B1 - top_B1).exp_(), inverse_B1, out=likely_B1)
    rest_B1.copy_(inverse_B1.log().neg_())
    return inverse_B1


def _softmax(
    logits_BV: Tensor,
    labels_B1: Tensor,
    target_B1: Tensor,
    out_BV: Tensor,
    likely_B1: Tensor,
    top_B1: Tensor,
    rest_B1: Tensor,
) -> Tensor:
    """Write the softmax, the labels' probabilities and, where one is too unlikely to tell it, the parts of the
    log-sum-exps; return 1, (1, 1).
    """
    torch.softmax(_exact(logits_BV, out_BV), dim=-1, out=out_BV)
    torch.gather(out_BV, -1, labels_B1, out=likely_B1)
    # On a GPU the host would have to wait for whether it is needed.
    if likely_B1.device.type != "cpu" or not likely_B1.amin().item() > _SURE:
        top_B1.copy_(logits_BV.amax(-1, keepdim=True))
        rest_B1.copy_(out_BV.amax(-1, keepdim=True).log_().neg_())
    return likely_B1.new_ones(1, 1)


def _exponentials_less(less_B1: Tensor, logits_BV: Tensor, out_BV: Tensor, inverse_B1: Tensor) -> None:
    """Write exp(logit - ``less_B1``) and one over their sums."""
    torch.sub(_exact(logits_BV, out_BV), less_B1, out=out_BV).exp_()
    torch.sum(out_BV, -1, keepdim=True, out=inverse_B1).reciprocal_()


def _exact(logits_BV: Tensor, out_BV: Tensor) -> Tensor:
    """The logits in the type of ``out_BV``, which holds them where that is not their own."""
    return logits_BV if logits_BV.dtype == out_BV.dtype else out_BV.copy_(logits_BV)


def base_losses(lse_2C: Tensor, target_C: Tensor, rows: RowBatch, mean_C: Tensor | None) -> Tensor:
    """(C,): the base losses, weighted, 0 where a row does not count; mean_C as `_mean_less` has it."""
    top_C, rest_C = lse_2C
    losses_C = rest_C + (top_C - target_C)
    if mean_C is not None:  # where the label's logit is -inf, so is the mean
        losses_C = losses_C.where(losses_C.isinf(), losses_C - rows.smoothing * mean_C)
    part = rows.part
    if part.soft_M is not None and part.top_M is not None and part.is_soft_M is not None:
        of_soft_M = rest_C[rows.numbers] + (top_C[rows.numbers] - part.top_M) - part.soft_M.detach()
        of_soft_M = of_soft_M.where(part.is_soft_M, losses_C[rows.numbers])
        losses_C = losses_C.index_put((rows.numbers,), of_soft_M)
    losses_C = losses_C if rows.counted is None else losses_C.masked_fill(~rows.counted, 0.0)
    return weighted(losses_C, rows.weights)


def excess_losses(rows: RowBatch, lse_2N: Tensor) -> Tensor | None:
    """(M,): text cost + Σ_k p_k c_k; None without such a term."""
    part = rows.part
    if part.excess_MK is None or part.text_M is None:
        return None
    return part.text_M + (_likely(rows, lse_2N) * part.excess_MK).masked_fill(part.excess_MK == 0, 0.0).sum(-1)


def _likely(rows: RowBatch, lse_2N: Tensor) -> Tensor:
    """(M, K): the probabilities of the number tokens."""
    top_M1, rest_M1 = lse_2N[:, rows.numbers].unsqueeze(-1)
    return (rows.logits_MK - top_M1 - rest_M1).exp()


def _mean_less(logits_CV: Tensor, target_C: Tensor, rows: RowBatch) -> Tensor | None:
    """(C,): the mean of all logits less the label's, a few rows at a time; None without smoothing."""
    if not rows.smoothing:
        return None
    length = rows.chunk_length(logits_CV.shape[-1])
    chunks = zip(logits_CV.split(length), target_C.unsqueeze(-1).split(length), strict=True)
    return torch.cat([(logits_BV.to(target_B1.dtype) - target_B1).mean(-1) for logits_BV, target_B1 in chunks])


def _clear(out_BV: Tensor, ignored_B: Tensor) -> None:
    if ignored_B.device.type == "cpu":
        out_BV.index_fill_(0, ignored_B.nonzero().squeeze(-1), 0.0)
    else:  # the host must not wait for how many there are
        out_BV.masked_fill_(ignored_B.unsqueeze(-1), 0.0)
