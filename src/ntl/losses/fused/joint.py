"""Cross-entropy and number losses as one function of logits, in several implementations that give the same values.

Shape suffixes: V vocabulary, N all positions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ntl.config.loss import checked_implementation
from ntl.losses.fused.chunks import (
    RowBatch,
    compute_losses,
    compute_losses_and_gradient,
    gradient_dtype,
    number_losses,
)
from ntl.losses.fused.plan import Counts, Targets, rows_of_logits
from ntl.losses.fused.terms import Terms
from ntl.losses.kinds import import_all
from ntl.losses.rows import Reduction, aligned, check_reduction, check_width, weighted
from ntl.losses.sums import JointLoss
from ntl.numbers import NumberVocabulary

# The vocabulary size from which on "fused" is faster on a CPU: the two are even at 1,024, and at 4,096 "fused" takes
# 0.6 to 0.7 of the time of "reference".
FASTER_FROM = 2048


def ce_ntl(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    kind: str = "was",
    weight: float = 0.3,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    base_count: Tensor | float | None = None,
    number_count: Tensor | float | None = None,
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
    inplace: bool = False,
    **options: Any,
) -> JointLoss:
    """Compute CE + weight × NTL (the paper's Eq. 3, where weight is λ), with the gradient in one pass over the logits.

    Args:
        logits: (..., V). They are not shifted against the labels.
        labels: (...).
        kind: The number loss: was, was_cdf, was_vocab, mse, mae, huber, crps, digit_ce, number_level or any other
            registered one (`ntl.losses.kinds`). "ce" is cross-entropy alone, "gce" replaces it. Several are joined by
            "+", as in "gce+was_cdf" or "was+crps"; their number losses are added.
        reduction: "mean" divides the base loss by the number of labelled tokens and the number loss by the number of
            number labels (of numbers, for number_level), or by the given counts. "sum" does not divide. "none" returns
            base + weight × number at each position, (...).
        base_count, number_count: Denominators to use instead of those of this batch, such as the counts of a whole
            optimizer step.
        loss_weights: (...), finite and not negative, one for each label. The weight multiplies both losses of its
            position and replaces 1 in the denominators, so that "mean" is Σ w·CE / Σ w over labelled tokens + weight ×
            Σ w·NTL / Σ w over number labels. Given denominators are not changed. Weights get no gradient. For
            number_level, the weight of a number is that of its last digit.
        implementation: "reference" calls the functions of this package one by one. "fused" needs a single buffer of the
            size of the logits, the gradient included. "auto" takes the one that was measured to be faster. Both return
            the same values up to rounding. With the reduction "none", gradients always come from "reference".
        inplace: Write the gradient over the logits, which must not be read afterwards. Allows one backward pass only.
        options: Options of the kind: sigma (gce, was_cdf), target (was_cdf), cost (was, was_vocab), text_cost
            (was_vocab), delta (huber), point_id (number_level), and label_smoothing (CE).

    Raises:
        ValueError: The kind, an option or the implementation is unknown, the shapes do not fit, or inplace is not
            possible.
    """
    return joint_loss(
        Terms.of(kind, weight, options),
        logits,
        labels,
        number_vocab,
        ignore_index=ignore_index,
        reduction=reduction,
        counts=(base_count, number_count),
        loss_weights=loss_weights,
        implementation=implementation,
        inplace=inplace,
    )


def joint_loss(
    terms: Terms,
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    counts: Counts = (None, None),
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
    inplace: bool = False,
) -> JointLoss:
    """Compute `ce_ntl` for given terms; ``counts`` are base_count and number_count."""
    logits_, _ = aligned(logits, labels)
    check_width(logits_, number_vocab)
    check_reduction(reduction)
    chosen = _choose(implementation, terms, logits, inplace)
    if inplace:
        _check_inplace(chosen, logits, reduction)
    targets = Targets.of(terms, logits_, labels, number_vocab, ignore_index, reduction, counts, loss_weights)
    with_gradient = torch.is_grad_enabled() and logits.requires_grad
    # A gradient per position would need a pass of its own.
    if chosen == "reference" or (reduction == "none" and with_gradient):
        return _reference(targets, logits, labels, reduction)
    logits_NV = logits_.reshape(-1, logits_.shape[-1])
    rows = rows_of_logits(targets, logits_NV.detach(), gradient=with_gradient)
    if with_gradient:
        total, base_N, number_M = FusedTotal.apply(logits_NV, rows, inplace)
    else:
        base_N, lse_2N = compute_losses(logits_NV.detach(), rows)
        number_M = number_losses(rows, lse_2N)
        if reduction == "none":
            total = base_N.index_add(0, rows.numbers, rows.scales.number * number_M).view(labels.shape)
        else:
            total = rows.scales.total(base_N.sum(), number_M.sum())
    return targets.joint(total, base_N.sum(), number_M.sum())


def _reference(targets: Targets, logits: Tensor, labels: Tensor, reduction: Reduction) -> JointLoss:
    terms, weights = targets.terms, targets.weights
    first: Reduction = "none" if reduction == "none" or weights is not None else "sum"
    inputs = {"number_vocab": targets.number_vocab, "ignore_index": targets.ignore_index, "reduction": first}
    base = terms.base(logits, labels, **inputs)
    number = terms.number(logits, labels, **inputs) if terms.numbers else torch.zeros_like(base)
    if weights is not None:
        base, number = weighted(base, weights), weighted(number, weights)
        if reduction != "none":
            base, number = base.sum(), number.sum()
    return targets.joint(targets.scales.total(base, number), base.detach().sum(), number.detach().sum())


def is_faster(device: torch.device, width: int) -> bool:
    """Return whether "fused" was measured to be faster than "reference": on a CPU, except for small vocabularies.

    It has not been measured on a GPU, and torch.compile fuses the reference by itself.
    """
    return device.type == "cpu" and width >= FASTER_FROM and not torch.compiler.is_compiling()


def _choose(implementation: str, terms: Terms, logits: Tensor, inplace: bool) -> str:
    chosen = str(checked_implementation(implementation))
    if chosen == "linear":
        raise ValueError("implementation='linear' needs hidden states: give them to linear_ce_ntl, or take 'fused'")
    if chosen == "auto":
        faster = inplace or is_faster(logits.device, logits.shape[-1])
        return "fused" if terms.knows and faster else "reference"
    if chosen == "fused" and not terms.knows:
        raise ValueError("implementation='fused' supports only the losses of this package; take 'auto'")
    return chosen


def _check_inplace(implementation: str, logits: Tensor, reduction: str) -> None:
    if implementation == "reference" or reduction == "none":
        raise ValueError("inplace=True needs implementation='fused', and the reduction 'mean' or 'sum'")
    if not logits.is_contiguous():
        raise ValueError("inplace=True needs contiguous logits: shift the labels, not the logits")
    if logits.dtype == torch.float16:
        raise ValueError("inplace=True: an unscaled gradient underflows in float16; use bfloat16 or float32")


class FusedTotal(torch.autograd.Function):
    """Map logits (N, V) to the total (), base losses (N,) and number losses (M,); only the total is differentiable."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, rows: RowBatch, inplace: bool) -> tuple[Tensor, ...]:
        buffer_NV = logits_NV if inplace else torch.empty_like(logits_NV, dtype=gradient_dtype(logits_NV))
        base_N, lse_2N = compute_losses_and_gradient(logits_NV, buffer_NV, rows)
        number_M = number_losses(rows, lse_2N)
        ctx.inplace, ctx.used, ctx.dtype = inplace, False, logits_NV.dtype
        if inplace:
            ctx.buffer = buffer_NV
        else:
            ctx.save_for_backward(buffer_NV)
        ctx.mark_non_differentiable(base_N, number_M)
        return rows.scales.total(base_N.sum(), number_M.sum()), base_N, number_M

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
        return _scaled(buffer_NV, grad, ctx.dtype, is_last), None, None


def _scaled(buffer_NV: Tensor, grad: Tensor, dtype: torch.dtype, is_last: bool) -> Tensor:
    """Return the gradient times ``grad`` in the type of the logits; beyond float16, the largest number there."""
    if not (grad.device.type == "cpu" and grad == 1):
        buffer_NV = buffer_NV.mul_(grad) if is_last else buffer_NV * grad.to(buffer_NV.dtype)
    if dtype == torch.float16 and buffer_NV.dtype != dtype:
        limit = torch.finfo(dtype).max
        buffer_NV = buffer_NV.clamp(-limit, limit)
    return buffer_NV.to(dtype)


_engine: Any = getattr(torch._C, "_autograd", None)
# Whether the backward pass runs with retain_graph=True. If torch lacks this private function, the answer is yes.
_keeps_graph: Callable[[], bool] = getattr(_engine, "_get_current_graph_task_keep_graph", lambda: True)

# Done on import and not in ``ce_ntl``, because torch.compile cannot trace imports.
import_all()
