"""Loss and gradient of a chunk of rows at a time, while it is in the processor's cache; shared by all fused forms.

A log-sum-exp is kept as two parts that are to be added, the first of them a logit. In float32 their sum, if it is near
30,000, has only three decimals, which would lose the digits of the loss.

Shape suffixes: V vocabulary, K number tokens, N all rows, C the rows of one call, B those of a chunk, M those whose
number-token logits are read; 2C the two parts of the log-sum-exps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ntl.losses.rows import weighted
from ntl.losses.sums import Scales

# The size of a chunk of logits in the type that is computed in; on a CPU, per thread. Larger chunks do not fit into the
# cache of a core; smaller ones spend more time on calls.
CPU_CHUNK_BYTES, GPU_CHUNK_BYTES = 512 << 10, 256 << 20
# The least probability of a label for which its logit may be subtracted in place of the largest one. Below it,
# subtracting the label's logit would lose digits.
_LIKELY = 1e-7
# The largest spread of the logits of a row: exp(-87) is the last power that float32 represents with all digits.
_SPREAD = 87.0


@dataclass(frozen=True)
class NumberPart:
    """The contribution of the number rows to the loss and its gradient. A part that no loss needs is None.

    Attributes:
        losses_M: The number losses that depend on number-token logits alone, without scales and weights.
        soft_M: Σ_k g_k (z_k − top), the target logit of a soft target less the largest logit. The two are kept apart
            because float32 has only three decimals at 30,000.
        is_soft_M: Which rows have a soft target.
        patch_MK: The gradient of these losses with respect to the number-token logits, with scales and weights.
        excess_MK: The costs c beyond a text token's cost, 0 for rows without a number.
        text_M: The cost of a text token, 0 for rows without a number.
        top_M: The largest number-token logit.
    """

    losses_M: Tensor
    soft_M: Tensor | None
    is_soft_M: Tensor | None
    patch_MK: Tensor | None
    excess_MK: Tensor | None
    text_M: Tensor | None
    top_M: Tensor | None = None

    def rows(self, selected: slice) -> "NumberPart":
        """Return the contribution of a slice of the M rows."""
        return replace(self, **{name: part[selected] for name, part in vars(self).items() if part is not None})


@dataclass(frozen=True)
class RowBatch:
    """Everything about N rows except their logits.

    Attributes:
        labels: (N,), a token id for every row that counts, any valid id for the others.
        counted: (N,) bool, which rows count; None if all do.
        numbers: (M,), the rows that ``part`` is about, ascending.
        token_ids: (K,), the number tokens, at which ``part.patch_MK`` is added to the gradient.
        logits_MK: The number-token logits of these rows, in the type that is computed in.
        smoothing: The share of the target that label smoothing spreads over the vocabulary.
        weights: (N,), the weight of each row's losses, 0 for rows that do not count; None for a weight of 1.
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

    def __getitem__(self, chunk: slice) -> "RowBatch":
        """Return the rows of a slice with a start and a stop."""
        edges = [chunk.start, chunk.stop]
        if len(self.numbers) != len(self.labels):
            edges = torch.searchsorted(self.numbers, torch.tensor(edges, device=self.numbers.device)).tolist()
        numbers = slice(*edges)
        return replace(
            self,
            labels=self.labels[chunk],
            counted=None if self.counted is None else self.counted[chunk],
            numbers=self.numbers[numbers] - chunk.start,
            logits_MK=self.logits_MK[numbers],
            part=self.part.rows(numbers),
            weights=None if self.weights is None else self.weights[chunk],
        )

    def base_scales(self) -> Tensor:
        """Return the coefficient of each base loss, (N,) or ()."""
        return self.scales.base if self.weights is None else self.scales.base * self.weights

    def excess(self) -> Tensor | None:
        """Return the scaled excess costs of all rows (N, K), 0 for rows without a number; None without such a term."""
        if self.part.excess_MK is None:
            return None
        excess_MK = self.part.excess_MK * self.scales.number
        if self.weights is not None:
            excess_MK = excess_MK * self.weights[self.numbers].unsqueeze(-1)
        return excess_MK.new_zeros(len(self.labels), len(self.token_ids)).index_copy_(0, self.numbers, excess_MK)

    def chunk_length(self, width: int) -> int:
        """Return the number of rows per chunk, for logits of this width."""
        device, itemsize = self.labels.device.type, self.scales.base.itemsize
        max_bytes = CPU_CHUNK_BYTES * torch.get_num_threads() if device == "cpu" else GPU_CHUNK_BYTES
        return max(1, max_bytes // max(width * itemsize, 1))

    def counted_chunks(self, length: int) -> Sequence[Tensor | None]:
        """Return ``counted`` split into chunks of this length, or None for each chunk if all rows count."""
        return [None] * max(1, -(-len(self.labels) // length)) if self.counted is None else self.counted.split(length)


class _SoftmaxRows(NamedTuple):
    """The inputs and outputs of a softmax over C rows, apart from the logits; (C, 1) each.

    ``labels`` and the labels' logits ``target`` are read. The labels' probabilities ``probability`` are written, and
    for rows where these are too small, the two parts of the log-sum-exp, ``top`` and ``rest``.
    """

    labels: Tensor
    target: Tensor
    probability: Tensor
    top: Tensor
    rest: Tensor

    @classmethod
    def create(cls, rows: RowBatch, target_C: Tensor) -> "_SoftmaxRows":
        """Return the state before the softmax, in which rows that do not count remain."""
        target_C1 = target_C.unsqueeze(-1)
        return cls(
            rows.labels.unsqueeze(-1),
            target_C1,
            torch.ones_like(target_C1),
            target_C1.clone(),
            torch.zeros_like(target_C1),
        )

    def split(self, length: int) -> "list[_SoftmaxRows]":
        """Return views of chunks of this length."""
        return [_SoftmaxRows(*views) for views in zip(*(column.split(length) for column in self), strict=True)]

    def log_sum_exps(self) -> Tensor:
        """Return both parts of the log-sum-exps, (2, C), computed from the probabilities where these suffice."""
        target_C, probability_C, top_C, rest_C = (column.squeeze(-1) for column in self[1:])
        is_likely_C = probability_C > _LIKELY
        return torch.stack([target_C.where(is_likely_C, top_C), probability_C.log().neg().where(is_likely_C, rest_C)])


def is_empty(counted_B: Tensor | None) -> bool:
    """Return whether no row counts. Always False on a GPU, where the answer would synchronise with the host."""
    return counted_B is not None and counted_B.device.type == "cpu" and not bool(counted_B.any())


def gradient_dtype(logits: Tensor) -> torch.dtype:
    """Return the type in which the gradient is kept until the backward pass.

    It is float32 for float16 logits, because an unscaled gradient underflows in float16.
    """
    return torch.float32 if logits.dtype == torch.float16 else logits.dtype


def label_logits(logits_CV: Tensor, rows: RowBatch) -> Tensor:
    """Return the logit of each label, (C,), in the type that is computed in."""
    return logits_CV.gather(-1, rows.labels.unsqueeze(-1)).squeeze(-1).to(rows.scales.base.dtype)


def compute_losses(logits_CV: Tensor, rows: RowBatch) -> tuple[Tensor, Tensor]:
    """Return the base losses (C,) and the log-sum-exps (2, C), without a gradient.

    For rows that do not count the loss is 0 and the log-sum-exp is arbitrary.
    """
    target_C = label_logits(logits_CV, rows)
    if not len(target_C):
        return target_C, target_C.expand(2, -1)
    length = rows.chunk_length(logits_CV.shape[-1])
    work_BV = logits_CV.new_empty((min(length, len(target_C)), logits_CV.shape[-1]), dtype=target_C.dtype)
    states = _SoftmaxRows.create(rows, target_C)
    softmax = _softmax_function(logits_CV, rows.counted)
    chunks = zip(logits_CV.split(length), states.split(length), rows.counted_chunks(length), strict=True)
    for logits_BV, state, counted_B in chunks:
        if not is_empty(counted_B):
            softmax(logits_BV, state, work_BV[: len(logits_BV)])
    lse_2C = states.log_sum_exps()
    return base_losses(lse_2C, target_C, rows, _mean_minus_target(logits_CV, target_C, rows)), lse_2C


def compute_losses_and_gradient(logits_CV: Tensor, out_CV: Tensor, rows: RowBatch) -> tuple[Tensor, Tensor]:
    """Return the base losses (C,) and the log-sum-exps (2, C), and write the gradient of the total to ``out_CV``.

    ``out_CV`` may be ``logits_CV`` itself. Whatever the types of these two, everything is computed in the type of
    ``rows.scales``.
    """
    part, base, ids = rows.part, rows.base_scales(), rows.token_ids
    numbers_M1 = rows.numbers.unsqueeze(-1)
    target_C = label_logits(logits_CV, rows)
    if not len(target_C):
        return target_C, target_C.expand(2, -1)
    mean_C = _mean_minus_target(logits_CV, target_C, rows)
    probability_C, lse_2C, scale_C, excess_CK = _write_scaled_softmax(logits_CV, out_CV, rows, target_C)
    one_hot_C = base.expand(len(target_C))
    if part.is_soft_M is not None:
        one_hot_C = one_hot_C.index_put((rows.numbers,), one_hot_C[rows.numbers].masked_fill(part.is_soft_M, 0.0))
    smooth_C = None
    if rows.smoothing:
        smooth_C = one_hot_C * (rows.smoothing / logits_CV.shape[-1])
        one_hot_C = one_hot_C * (1 - rows.smoothing)
    label_C = probability_C * scale_C - one_hot_C
    if smooth_C is not None:
        label_C = label_C - smooth_C
    if rows.counted is not None:
        label_C = label_C.masked_fill(~rows.counted, 0.0)
    all_rows_C = torch.arange(len(label_C), device=label_C.device)
    out_CV[all_rows_C, rows.labels] = label_C.to(out_CV.dtype)  # scatter_ would copy all of a half-precision tensor
    if len(rows.numbers) and (part.patch_MK is not None or excess_CK is not None):
        if out_CV.dtype == base.dtype:
            number_MK = out_CV[numbers_M1, ids]
        else:  # the stored values are rounded
            is_label_MK = ids == rows.labels[numbers_M1]
            number_MK = _number_probabilities(rows, lse_2C) * scale_C[numbers_M1] - one_hot_C[numbers_M1] * is_label_MK
            if smooth_C is not None:
                number_MK = number_MK - smooth_C[numbers_M1]
        if excess_CK is not None:
            number_MK = number_MK + excess_CK[rows.numbers]
        if part.patch_MK is not None:
            number_MK = number_MK + part.patch_MK
        if rows.counted is not None:
            number_MK = number_MK.masked_fill(~rows.counted[numbers_M1], 0.0)
        out_CV[numbers_M1, ids] = number_MK.to(out_CV.dtype)
    return base_losses(lse_2C, target_C, rows, mean_C), lse_2C


def _write_scaled_softmax(
    logits_CV: Tensor, out_CV: Tensor, rows: RowBatch, target_C: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Write the softmax times the scale of each row, less the share of label smoothing; 0 for rows that do not count.

    Returns:
        The labels' probabilities (C,), the log-sum-exps (2, C), the scales (C,), and what a cost over the vocabulary
        adds to the gradient at the number tokens, (C, K) or None.
    """
    (count, width), dtype = logits_CV.shape, target_C.dtype
    length = rows.chunk_length(width)
    scale_C = rows.base_scales().expand(count).clone()
    smooth_C = rows.base_scales().expand(count) * (rows.smoothing / width) if rows.smoothing else None
    smooth_chunks = None if smooth_C is None else smooth_C.unsqueeze(-1).split(length)
    # For all rows, because selecting the number rows of each chunk takes longer.
    excess_CK = rows.excess()
    excess_chunks = None if excess_CK is None else excess_CK.split(length)
    # One buffer for all chunks: page faults of fresh memory take longer than the computation.
    needs_buffer = out_CV.dtype != dtype or out_CV.data_ptr() == logits_CV.data_ptr()
    work_BV = logits_CV.new_empty((min(length, count), width), dtype=dtype) if needs_buffer else None
    states = _SoftmaxRows.create(rows, target_C)
    softmax = _softmax_function(logits_CV, rows.counted)
    tensors = (logits_CV, out_CV, scale_C.unsqueeze(-1))
    views = zip(states.split(length), *(tensor.split(length) for tensor in tensors), strict=True)
    for chunk, counted_B in enumerate(rows.counted_chunks(length)):
        state, logits_BV, out_BV, scale_B1 = next(views)
        if is_empty(counted_B):
            out_BV.zero_()
            continue
        weights_BV = out_BV if work_BV is None else work_BV[: len(logits_BV)]
        inverse_B1 = softmax(logits_BV, state, weights_BV)
        if excess_chunks is not None:
            mass_BK = weights_BV.index_select(-1, rows.token_ids) * inverse_B1
            scale_B1.sub_(excess_chunks[chunk].mul_(mass_BK).sum(-1, keepdim=True))
        if smooth_chunks is not None:
            out_BV.copy_(weights_BV.mul_(scale_B1 * inverse_B1).sub_(smooth_chunks[chunk]))
        elif out_BV.dtype == dtype:
            torch.mul(weights_BV, scale_B1 * inverse_B1, out=out_BV)
        else:  # faster than a product that converts the type
            out_BV.copy_(weights_BV.mul_(scale_B1 * inverse_B1))
        if counted_B is not None:
            _clear(out_BV, ~counted_B)
    return states.probability.squeeze(-1), states.log_sum_exps(), scale_C, excess_CK


# Writes positive weights proportional to the probabilities to its last argument; returns one over their sums, (B, 1).
_Softmax = Callable[[Tensor, _SoftmaxRows, Tensor], Tensor]


def _softmax_function(logits_CV: Tensor, counted_C: Tensor | None) -> _Softmax:
    """Return the faster softmax: exponentials on a CPU if none of them underflows in the first row that counts.

    With underflow, the exp of some math libraries takes ten times as long.
    """
    if logits_CV.device.type != "cpu":
        return _softmax
    low, high = logits_CV[0 if counted_C is None else int(counted_C.byte().argmax())].aminmax()
    return _exponentials if high.float() - low.float() < _SPREAD else _softmax


def _exponentials(logits_BV: Tensor, state: _SoftmaxRows, out_BV: Tensor) -> Tensor:
    """Write exp(logit - label's logit) and the state; return one over the sums, (B, 1).

    Finding the largest logit first, as a softmax does, takes as long as everything else. It is found and subtracted
    only for rows whose label is so unlikely that the sum would be inaccurate.
    """
    _shifted_exponentials(state.target, logits_BV, out_BV, state.probability)
    if state.probability.amin().item() > _LIKELY:
        return state.probability
    largest_B1 = logits_BV.amax(-1, keepdim=True).to(out_BV.dtype)
    state.top.copy_(state.target.where(state.probability > _LIKELY, largest_B1))
    inverse_B1 = torch.empty_like(state.probability)
    _shifted_exponentials(state.top, logits_BV, out_BV, inverse_B1)
    torch.mul((state.target - state.top).exp_(), inverse_B1, out=state.probability)
    state.rest.copy_(inverse_B1.log().neg_())
    return inverse_B1


def _softmax(logits_BV: Tensor, state: _SoftmaxRows, out_BV: Tensor) -> Tensor:
    """Write the softmax and the state; return 1, (1, 1)."""
    torch.softmax(_upcast_into(logits_BV, out_BV), dim=-1, out=out_BV)
    torch.gather(out_BV, -1, state.labels, out=state.probability)
    # On a GPU the parts are always written, because the check would synchronise with the host.
    if state.probability.device.type != "cpu" or not state.probability.amin().item() > _LIKELY:
        state.top.copy_(logits_BV.amax(-1, keepdim=True))
        state.rest.copy_(out_BV.amax(-1, keepdim=True).log_().neg_())
    return state.probability.new_ones(1, 1)


def _shifted_exponentials(shift_B1: Tensor, logits_BV: Tensor, out_BV: Tensor, inverse_B1: Tensor) -> None:
    """Write exp(logit - shift), and one over their sums."""
    torch.sub(_upcast_into(logits_BV, out_BV), shift_B1, out=out_BV).exp_()
    torch.sum(out_BV, -1, keepdim=True, out=inverse_B1).reciprocal_()


def _upcast_into(logits_BV: Tensor, out_BV: Tensor) -> Tensor:
    """Return the logits in the type of ``out_BV``, copied into it if that is another type."""
    return logits_BV if logits_BV.dtype == out_BV.dtype else out_BV.copy_(logits_BV)


def base_losses(lse_2C: Tensor, target_C: Tensor, rows: RowBatch, mean_C: Tensor | None) -> Tensor:
    """Return the weighted base losses (C,), 0 for rows that do not count; mean_C is that of `_mean_minus_target`."""
    top_C, rest_C = lse_2C
    losses_C = rest_C + (top_C - target_C)
    if mean_C is not None:  # if the label's logit is -inf, so is the mean
        losses_C = losses_C.where(losses_C.isinf(), losses_C - rows.smoothing * mean_C)
    part = rows.part
    if part.soft_M is not None and part.top_M is not None and part.is_soft_M is not None:
        soft_losses_M = rest_C[rows.numbers] + (top_C[rows.numbers] - part.top_M) - part.soft_M.detach()
        soft_losses_M = soft_losses_M.where(part.is_soft_M, losses_C[rows.numbers])
        losses_C = losses_C.index_put((rows.numbers,), soft_losses_M)
    losses_C = losses_C if rows.counted is None else losses_C.masked_fill(~rows.counted, 0.0)
    return weighted(losses_C, rows.weights)


def number_losses(rows: RowBatch, lse_2N: Tensor) -> Tensor:
    """Return the weighted sum of the number terms of each row, (M,), given the log-sum-exps of all rows."""
    part = rows.part
    losses_M = part.losses_M
    if part.excess_MK is not None and part.text_M is not None:  # text cost + Σ_k p_k c_k
        costs_MK = _number_probabilities(rows, lse_2N) * part.excess_MK
        losses_M = losses_M + (part.text_M + costs_MK.masked_fill(part.excess_MK == 0, 0.0).sum(-1))
    return weighted(losses_M, None if rows.weights is None else rows.weights[rows.numbers])


def _number_probabilities(rows: RowBatch, lse_2N: Tensor) -> Tensor:
    """Return the probabilities of the number tokens, (M, K)."""
    top_M1, rest_M1 = lse_2N[:, rows.numbers].unsqueeze(-1)
    return (rows.logits_MK - top_M1 - rest_M1).exp()


def _mean_minus_target(logits_CV: Tensor, target_C: Tensor, rows: RowBatch) -> Tensor | None:
    """Return the mean of the logits less the label's logit, (C,), computed in chunks; None without smoothing."""
    if not rows.smoothing:
        return None
    length = rows.chunk_length(logits_CV.shape[-1])
    chunks = zip(logits_CV.split(length), target_C.unsqueeze(-1).split(length), strict=True)
    return torch.cat([(logits_BV.to(target_B1.dtype) - target_B1).mean(-1) for logits_BV, target_B1 in chunks])


def _clear(out_BV: Tensor, ignored_B: Tensor) -> None:
    if ignored_B.device.type == "cpu":
        out_BV.index_fill_(0, ignored_B.nonzero().squeeze(-1), 0.0)
    else:  # counting the ignored rows would synchronise with the host
        out_BV.masked_fill_(ignored_B.unsqueeze(-1), 0.0)
