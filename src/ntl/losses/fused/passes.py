"""Base and number terms of logits in one pass: the gradient is computed with the loss, in one buffer of their size.

Shape suffixes: V vocabulary, K number tokens, N all positions, M those whose number-token logits are read.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ntl.losses.fused.chunks import RowBatch, excess_losses, kept_type, to_gradient, without_gradient
from ntl.losses.fused.plan import FusedInputs
from ntl.losses.rows import weighted
from ntl.losses.sums import Scales

# (logits (N, V), rows, inplace) -> gradient (N, V), base losses (N,), log-sum-exps (2, N) in two parts.
Pass = Callable[[Tensor, RowBatch, bool], tuple[Tensor, Tensor, Tensor]]


def rows_to_pass(inputs: FusedInputs, scales: Scales, *, gradient: bool) -> RowBatch:
    """What a pass over the rows is told; ``scales`` () each."""
    part, ids = inputs.part(scales, gradient=gradient), inputs.number_vocab.token_ids
    smoothing, weights = inputs.terms.smoothing, inputs.weights_N
    where, logits_MK = inputs.where.flat, inputs.logits_MK
    return RowBatch(inputs.labels_N, inputs.counted_N, where, ids, logits_MK, part, scales, smoothing, weights)


def number_losses(rows: RowBatch, lse_2N: Tensor) -> Tensor:
    """(M,): all number terms of each row, weighted; lse_2N, the log-sum-exps of all rows."""
    of_vocabulary = excess_losses(rows, lse_2N)
    losses_M = rows.part.losses_M if of_vocabulary is None else rows.part.losses_M + of_vocabulary
    return weighted(losses_M, None if rows.weights is None else rows.weights[rows.numbers])


def losses_alone(inputs: FusedInputs, logits_NV: Tensor) -> tuple[Tensor, Tensor]:
    """(N,) base losses and (M,) number losses, weighted, without gradients."""
    one = torch.ones((), dtype=inputs.logits_MK.dtype, device=logits_NV.device)
    rows = rows_to_pass(inputs, Scales(one, one), gradient=False)
    base_N, lse_2N = without_gradient(logits_NV, rows)
    return base_N, number_losses(rows, lse_2N)


class FusedTotal(torch.autograd.Function):
    """(logits (N, V), ...) -> total (), base losses (N,), number losses (M,); only the total has a gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, inputs: FusedInputs, scales: Scales, inplace: bool, run: Pass
    ) -> tuple[Tensor, ...]:
        rows = rows_to_pass(inputs, scales, gradient=True)
        buffer_NV, base_N, lse_2N = run(logits_NV, rows, inplace)
        number_M = number_losses(rows, lse_2N)
        ctx.inplace, ctx.used, ctx.dtype = inplace, False, logits_NV.dtype
        if inplace:
            ctx.buffer = buffer_NV
        else:
            ctx.save_for_backward(buffer_NV)
        ctx.mark_non_differentiable(base_N, number_M)
        return scales.total(base_N.sum(), number_M.sum()), base_N, number_M

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.inplace:
            if ctx.used:
                raise RuntimeError("inplace=True keeps one gradient, in place of the logits: it has no second backward")
            ctx.used, buffer_NV, ctx.buffer, last = True, ctx.buffer, None, True
        else:
            (buffer_NV,) = ctx.saved_tensors
            last = not _graph_is_kept()
        return _scaled(buffer_NV, grad, ctx.dtype, last), None, None, None, None


def chunked_pass(logits_NV: Tensor, rows: RowBatch, inplace: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient (N, V), the base losses (N,) and the log-sum-exps (2, N)."""
    buffer_NV = logits_NV if inplace else torch.empty_like(logits_NV, dtype=kept_type(logits_NV))
    return buffer_NV, *to_gradient(logits_NV, buffer_NV, rows)


def _scaled(buffer_NV: Tensor, grad: Tensor, dtype: torch.dtype, last: bool) -> Tensor:
    if grad.device.type == "cpu" and grad == 1:
        return _stored(buffer_NV, dtype)
    return _stored(buffer_NV.mul_(grad) if last else buffer_NV * grad.to(buffer_NV.dtype), dtype)


def _stored(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.float16 or gradient.dtype == dtype:
        return gradient.to(dtype)
    limit = torch.finfo(dtype).max
    return gradient.clamp(-limit, limit).to(dtype)


_engine: Any = getattr(torch._C, "_autograd", None)
# Whether somebody said retain_graph=True; where torch does not tell, the gradient is kept.
_graph_is_kept: Callable[[], bool] = getattr(_engine, "_get_current_graph_task_keep_graph", lambda: True)
