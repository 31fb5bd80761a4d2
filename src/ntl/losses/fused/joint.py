"""Cross-entropy and number losses as one function of logits, in several implementations that give the same values.

Shape suffixes: V vocabulary, N all positions.
"""

import os
from typing import Any

import torch
from torch import Tensor

from ntl.config.loss import checked_implementation
from ntl.losses.fused.passes import FusedTotal, Pass, chunked_pass, losses_without_gradient
from ntl.losses.fused.plan import inputs_from_logits
from ntl.losses.fused.terms import Terms
from ntl.losses.kinds import import_all
from ntl.losses.rows import Reduction, aligned, check_width, checked_weights, count_labels, weighted
from ntl.losses.sums import JointLoss, Scales, SumCount, scales_of
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
            size of the logits, the gradient included. "triton" does the same in one GPU kernel when a gradient is
            needed; its speed has not been measured. "auto" takes the one that was measured to be fastest. All return
            the same values up to rounding. With the reduction "none", gradients always come from "reference".
        inplace: Write the gradient over the logits, which must not be read afterwards. Allows one backward pass only.
        options: Options of the kind: sigma (gce, was_cdf), target (was_cdf), cost (was, was_vocab), text_cost
            (was_vocab), delta (huber), point_id (number_level), and label_smoothing (CE).

    Raises:
        ValueError: The kind, an option or the implementation is unknown, the shapes do not fit, or inplace is not
            possible.
    """
    terms = Terms.of(kind, weight, options)
    return joint_loss(
        terms,
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
    counts: tuple[Tensor | float | None, Tensor | float | None] = (None, None),
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
    inplace: bool = False,
) -> JointLoss:
    """Compute `ce_ntl` for given terms; ``counts`` are base_count and number_count."""
    logits_, labels_ = aligned(logits, labels)
    check_width(logits_, number_vocab)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    chosen = _choose(implementation, terms, logits, inplace)
    if inplace:
        _check_inplace(chosen, logits, reduction)
    weights = checked_weights(loss_weights, logits, labels, ignore_index)
    denominators = denominators_of(terms, labels_, number_vocab, ignore_index, counts, weights)
    scales = scales_of(terms.weight, logits_, denominators, reduction)
    run = triton_pass_for(logits.device, logits.dtype) if chosen == "triton" else chunked_pass
    with_gradient = torch.is_grad_enabled() and logits.requires_grad
    # A gradient per position would need a pass of its own.
    if chosen == "reference" or (reduction == "none" and with_gradient):
        return _reference(terms, logits, labels, number_vocab, ignore_index, reduction, scales, denominators, weights)
    logits_NV = logits_.reshape(-1, logits_.shape[-1])
    inputs = inputs_from_logits(terms, logits_NV.detach(), labels_, number_vocab, ignore_index, weights)
    if with_gradient:
        total, base_N, number_M = FusedTotal.apply(logits_NV, inputs, scales, inplace, run)
    else:
        base_N, number_M = losses_without_gradient(inputs, logits_NV.detach())
        if reduction == "none":
            total = base_N.index_add(0, inputs.positions.flat, scales.number * number_M).view(labels.shape)
        else:
            total = scales.total(base_N.sum(), number_M.sum())
    return joint_of_sums(total, base_N.sum(), number_M.sum(), denominators)


def joint_of_sums(total: Tensor, base: Tensor, number: Tensor, counts: tuple[Tensor, Tensor]) -> JointLoss:
    """Return the result for a total with its graph, the detached sums of both terms, and their counts."""
    return JointLoss(total, SumCount(base, counts[0]), SumCount(number, counts[1]), torch.zeros_like(base))


def is_faster(device: torch.device, width: int) -> bool:
    """Return whether "fused" was measured to be faster than "reference": on a CPU, except for small vocabularies.

    It has not been measured on a GPU, and torch.compile fuses the reference by itself.
    """
    return device.type == "cpu" and width >= FASTER_FROM and not torch.compiler.is_compiling()


def _choose(implementation: str, terms: Terms, logits: Tensor, inplace: bool) -> str:
    chosen = str(checked_implementation(implementation))
    if chosen == "linear":
        raise ValueError("implementation='linear' needs hidden states: give them to linear_ce_ntl, or take 'fused'")
    if chosen == "auto":  # never "triton", whose speed has not been measured
        faster = inplace or is_faster(logits.device, logits.shape[-1])
        return "fused" if terms.knows and faster else "reference"
    if chosen != "reference" and not terms.knows:
        raise ValueError(f"implementation={chosen!r} supports only the losses of this package; take 'auto'")
    return chosen


def triton_pass_for(device: torch.device, dtype: torch.dtype = torch.float32) -> Pass:
    """Return the pass of "triton". Raises ValueError if it is not available for this device and type."""
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(f"implementation='triton' needs logits on a CUDA device, not on {device}; take 'fused'")
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"implementation='triton' computes in float32: take 'fused' for {dtype} logits")
    try:
        from ntl.losses.fused.triton_pass import triton_pass
    except ImportError:
        raise ValueError("implementation='triton' needs the package triton: install it, or take 'fused'") from None
    return triton_pass


def _check_inplace(implementation: str, logits: Tensor, reduction: str) -> None:
    if implementation == "reference" or reduction == "none":
        raise ValueError("inplace=True needs implementation='fused' or 'triton', and the reduction 'mean' or 'sum'")
    if not logits.is_contiguous():
        raise ValueError("inplace=True needs contiguous logits: shift the labels, not the logits")
    if logits.dtype == torch.float16:
        raise ValueError("inplace=True: an unscaled gradient underflows in float16; use bfloat16 or float32")


def denominators_of(
    terms: Terms,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    ignore_index: int,
    counts: tuple[Tensor | float | None, Tensor | float | None],
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the denominators of the two sums, () each.

    These are the given ``counts``. By default they are the counts of this batch's labels, or with weights the sums of
    these, which are 0 at ignored labels.
    """
    base, number = counts
    if base is None:
        base = count_labels(labels, ignore_index=ignore_index) if weights is None else weights.sum()
    if number is None:
        counted = terms.counted(labels, number_vocab, ignore_index)
        number = counted.sum() if weights is None else (weights.view_as(labels) * counted).sum()
    return torch.as_tensor(base), torch.as_tensor(number)


def _reference(
    terms: Terms,
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    ignore_index: int,
    reduction: Reduction,
    scales: Scales,
    denominators: tuple[Tensor, Tensor],
    weights: Tensor | None,
) -> JointLoss:
    first: Reduction = "none" if reduction == "none" or weights is not None else "sum"
    base = terms.base(logits, labels, number_vocab, ignore_index=ignore_index, reduction=first)
    number = torch.zeros_like(base)
    if terms.numbers:
        number = terms.number(logits, labels, number_vocab, ignore_index=ignore_index, reduction=first)
    if weights is not None:
        base, number = weighted(base, weights), weighted(number, weights)
        if reduction != "none":
            base, number = base.sum(), number.sum()
    total = scales.total(base, number)
    return joint_of_sums(total, base.detach().sum(), number.detach().sum(), denominators)


# Done on import and not in ``ce_ntl``, because torch.compile cannot trace imports.
import_all()
