"""Base and number losses of logits in one pass, which computes the gradient with the loss in one buffer of their size.

Shape suffixes: V vocabulary, K number tokens, N all positions, M those whose number-token logits are read.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ntl.losses.fused.chunks import (
    RowBatch,
    compute_losses,
    compute_losses_and_gradient,
    excess_losses,
    gradient_dtype,
)
from ntl.losses.fused.plan import FusedInputs
from ntl.losses.rows import weighted
from ntl.losses.sums import Scales

# Takes logits (N, V), rows and inplace; returns the gradient (N, V), the base losses (N,) and the log-sum-exps (2, N).
Pass = Callable[[Tensor, RowBatch, bool], tuple[Tensor, Tensor, Tensor]]


def row_batch(inputs: FusedInputs, scales: Scales, *, gradient: bool) -> RowBatch:
    """Return the inputs in the form that a pass over the rows needs; ``scales`` are () each."""
    return RowBatch(
        inputs.labels_N,
        inputs.counted_N,
        inputs.positions.flat,
        inputs.number_vocab.token_ids,
        inputs.logits_MK,
        inputs.part(scales, gradient=gradient),
        scales,
        inputs.terms.smoothing,
        inputs.weights_N,
    )


def number_losses(rows: RowBatch, lse_2N: Tensor) -> Tensor:
    """Return the weighted sum of the number terms of each row, (M,), given the log-sum-exps of all rows."""
    excess_M = excess_losses(rows, lse_2N)
    losses_M = rows.part.losses_M if excess_M is None else rows.part.losses_M + excess_M
    return weighted(losses_M, None if rows.weights is None else rows.weights[rows.numbers])


def losses_without_gradient(inputs: FusedInputs, logits_NV: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted base losses (N,) and number losses (M,)."""
    one = torch.ones((), dtype=inputs.logits_MK.dtype, device=logits_NV.device)
    rows = row_batch(inputs, Scales(one, one), gradient=False)
    base_N, lse_2N = compute_losses(logits_NV, rows)
    return base_N, number_losses(rows, lse_2N)


class FusedTotal(torch.autograd.Function):
    """Map logits (N, V) to the total (), base losses (N,) and number losses (M,); only the total is differentiable."""

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, inputs: FusedInputs, scales: Scales, inplace: bool, run: Pass
    ) -> tuple[Tensor, ...]:
        rows = row_batch(inputs, scales, gradient=True)
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
                raise RuntimeError("inplace=True allows no second backward: the gradient is stored over the logits")
            ctx.used, buffer_NV, ctx.buffer, is_last = True, ctx.buffer, None, True
        else:
            (buffer_NV,) = ctx.saved_tensors
            is_last = not _keeps_graph()
        return _scaled(buffer_NV, grad, ctx.dtype, is_last), None, None, None, None


def chunked_pass(logits_NV: Tensor, rows: RowBatch, inplace: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the pass in chunks of rows, on any device."""
    buffer_NV = logits_NV if inplace else torch.empty_like(logits_NV, dtype=gradient_dtype(logits_NV))
    return buffer_NV, *compute_losses_and_gradient(logits_NV, buffer_NV, rows)


def _scaled(buffer_NV: Tensor, grad: Tensor, dtype: torch.dtype, is_last: bool) -> Tensor:
    if grad.device.type == "cpu" and grad == 1:
        return _saturating_cast(buffer_NV, dtype)
    return _saturating_cast(buffer_NV.mul_(grad) if is_last else buffer_NV * grad.to(buffer_NV.dtype), dtype)


def _saturating_cast(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.float16 or gradient.dtype == dtype:
        return gradient.to(dtype)
    limit = torch.finfo(dtype).max
    return gradient.clamp(-limit, limit).to(dtype)


_engine: Any = getattr(torch._C, "_autograd", None)
# Whether the backward pass runs with retain_graph=True. If torch lacks this private function, the answer is yes.
_keeps_graph: Callable[[], bool] = getattr(_engine, "_get_current_graph_task_keep_graph", lambda: True)
