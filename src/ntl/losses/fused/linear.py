"""Base and number terms of hidden states: the logits of a few rows at a time, never all of them.

Shape suffixes: V vocabulary, D hidden size, K number tokens, N the rows that count, C rows of a chunk, M the rows whose
number-token logits are read.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ntl.config.implementation import checked_implementation
from ntl.losses.fused.chunks import RowBatch, to_gradient, without_gradient
from ntl.losses.fused.joint import denominators_of, is_faster, joint_loss, joint_of_sums
from ntl.losses.fused.passes import number_losses, rows_to_pass
from ntl.losses.fused.plan import FusedInputs, NumberPositions, check_labels
from ntl.losses.fused.terms import Terms
from ntl.losses.lm_head import LMHead
from ntl.losses.rows import Reduction, check_width, checked_weights, is_number, number_index, reduce, rows_of
from ntl.losses.sums import JointLoss, Scales, scales_of
from ntl.losses.wasserstein import was_rows
from ntl.numbers import NumberVocabulary


def linear_ce_ntl(
    hidden_states: Tensor,
    lm_head_weight: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    kind: str = "was",
    weight: float = 0.3,
    bias: Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    base_count: Tensor | float | None = None,
    number_count: Tensor | float | None = None,
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
    **options: Any,
) -> JointLoss:
    """`ce_ntl` of the logits softcap · tanh(z / softcap), z = logit_scale · (hidden_states · lm_head_weightᵀ + bias).

    They are made for a few rows at a time, with their gradient, and forgotten: beside the gradients of hidden states
    and weight it needs one such chunk. Ignored rows are dropped before the product. The weight's gradient is
    summed in float32 and skipped where the weight is frozen. Under autocast the products are in its type, as the
    model's own would be. One backward or several, no double backward.

    Args:
        hidden_states: (..., D); nothing is shifted.
        lm_head_weight: (V, D), also a computed one such as that of a LoRA layer, and the embedding's where it is tied.
        labels: (...).
        bias: (V,).
        implementation: "reference" makes all logits at once; "fused" and "linear", which are the same here, do not, and
            know no reduction "none".

    The other arguments, and the errors, are those of `ce_ntl`.
    """
    head = LMHead(lm_head_weight, bias, logit_scale, softcap)
    return linear_joint_loss(
        Terms.of(kind, weight, options),
        hidden_states,
        head,
        labels,
        number_vocab,
        ignore_index=ignore_index,
        reduction=reduction,
        counts=(base_count, number_count),
        loss_weights=loss_weights,
        implementation=implementation,
    )


def linear_joint_loss(
    terms: Terms,
    hidden_states: Tensor,
    head: LMHead,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    counts: tuple[Tensor | float | None, Tensor | float | None] = (None, None),
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
) -> JointLoss:
    """`linear_ce_ntl` of terms and a head that are made already."""
    if hidden_states.shape[:-1] != labels.shape or hidden_states.shape[-1:] != head.weight.shape[-1:]:
        raise ValueError(
            f"hidden_states (..., D), lm_head_weight (V, D) and labels (...) do not fit: "
            f"{tuple(hidden_states.shape)}, {tuple(head.weight.shape)}, {tuple(labels.shape)}"
        )
    if checked_implementation(implementation) == "triton":
        raise ValueError("implementation='triton' needs logits: give them to ce_ntl, or take 'fused'")
    if implementation in ("fused", "linear") and (reduction == "none" or not terms.knows):
        raise ValueError(
            f"implementation='{implementation}' needs a reduction to one number and this package's own losses"
        )
    faster = is_faster(hidden_states.device, len(head.weight)) and terms.knows and reduction != "none"
    if implementation == "reference" or (implementation == "auto" and not faster):
        how = {"ignore_index": ignore_index, "reduction": reduction, "counts": counts, "loss_weights": loss_weights}
        logits = head.logits(hidden_states)
        return joint_loss(terms, logits, labels, number_vocab, implementation="reference", **how)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    check_width(head.weight[:, 0], number_vocab)
    hidden_states, head = _in_autocast_type(hidden_states, head)
    weights = checked_weights(loss_weights, hidden_states, labels, ignore_index)
    labels = labels.long() if labels.dim() else labels.long().unsqueeze(0)
    denominators = denominators_of(terms, labels, number_vocab, ignore_index, counts, weights)
    scales = scales_of(terms.weight, hidden_states, denominators, reduction)
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    hidden_ND, inputs = _inputs_from_hidden(terms, hidden, head, labels, number_vocab, ignore_index, weights)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        total, base_sum, number_sum = _LinearTotal.apply(
            hidden_ND, head.weight, head.bias, head.scale, head.cap, inputs, scales, torch.is_grad_enabled()
        )
    return joint_of_sums(total, base_sum, number_sum, denominators)


def linear_was(
    hidden_states: Tensor, head: LMHead, labels: Tensor, number_vocab: NumberVocabulary, *, ignore_index: int = -100
) -> Tensor:
    """The sum () of `ntl_was` over the number labels of labels (...), from hidden_states (..., D).

    It reads the logits of the number tokens alone, and makes no others.
    """
    index, counts_N = number_index(labels, number_vocab, ignore_index)
    hidden_ND = hidden_states.flatten(0, -2) if index is None else hidden_states[index]
    rows = rows_of(head.logits(hidden_ND, number_vocab.token_ids), labels, number_vocab, index, counts_N)
    return reduce(was_rows(rows), rows, labels, "sum")


def _in_autocast_type(hidden_states: Tensor, head: LMHead) -> tuple[Tensor, LMHead]:
    device = hidden_states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_states.dtype
    bias = None if head.bias is None else head.bias.to(dtype)
    return hidden_states.to(dtype), head._replace(weight=head.weight.to(dtype), bias=bias)


def _inputs_from_hidden(
    terms: Terms,
    hidden: Tensor,
    head: LMHead,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    ignore_index: int,
    weights: Tensor | None,
) -> tuple[Tensor, FusedInputs]:
    """The rows that count, (N, D) with their graph, and what is to be computed on them."""
    counted = labels != ignore_index
    kept_N = counted.flatten().nonzero().squeeze(-1)
    hidden_ND = hidden if len(kept_N) == labels.numel() else hidden.index_select(0, kept_N)
    labels_N = labels.flatten()[kept_N]
    check_labels(labels_N, len(head.weight))
    numbers_N = is_number(labels, number_vocab, ignore_index).flatten()[kept_N]
    at_N = torch.arange(len(kept_N), device=labels.device)
    if labels.device.type == "cpu":
        at_M, counts_M = at_N[numbers_N], None
    else:  # all rows: how many are numbers would have to be waited for
        at_M, counts_M = at_N, numbers_N
    index = torch.unravel_index(kept_N[at_M], labels.shape)
    with torch.no_grad():
        logits_MK = head.logits(hidden_ND[at_M], number_vocab.token_ids)
    where = NumberPositions(index, counts_M, at_M)
    weights_N = None if weights is None else weights.flatten()[kept_N]
    return hidden_ND, FusedInputs(terms, number_vocab, labels, labels_N, None, where, logits_MK, weights_N)


class _LinearTotal(torch.autograd.Function):
    """(hidden (N, D), weight (V, D), bias (V,), ...) -> total (), base sum (), number sum (); the total has a gradient.

    It is computed here, with the loss, for those of the three inputs that ask for one.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        scale: float,
        cap: float | None,
        inputs: FusedInputs,
        scales: Scales,
        with_gradient: bool,
    ) -> tuple[Tensor, ...]:
        head = LMHead(weight_VD, bias_V, scale, cap)
        wanted = [with_gradient and wants for wants in ctx.needs_input_grad[:3]]
        rows = rows_to_pass(inputs, scales, gradient=any(wanted))
        gradients = _Gradients(hidden_ND, head, wanted)
        base_N, lse_2N = scales.base.new_zeros(len(hidden_ND)), scales.base.new_zeros(2, len(hidden_ND))
        step = max(64, weight_VD.shape[1])  # then a chunk of logits is as large as the weight
        for start in range(0, len(hidden_ND), step):
            stop = min(start + step, len(hidden_ND))
            chunk = slice(start, stop)
            logits_CV = head.logits(hidden_ND[chunk])
            base_N[chunk], lse_2N[:, chunk] = _losses(logits_CV, rows.between(start, stop), head.cap, any(wanted))
            if any(wanted):
                gradients.add(logits_CV, chunk)
            del logits_CV  # before the next chunk's are made
        number_M = number_losses(rows, lse_2N)
        ctx.save_for_backward(*gradients.done())
        base_sum, number_sum = base_N.sum(), number_M.sum()
        ctx.mark_non_differentiable(base_sum, number_sum)
        return scales.total(base_sum, number_sum), base_sum, number_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        same = grad.device.type == "cpu" and bool(grad == 1)
        scaled = [
            gradient if gradient is None or same else (gradient * grad).to(gradient.dtype)
            for gradient in ctx.saved_tensors
        ]
        return (*scaled, None, None, None, None, None)


def _losses(logits_CV: Tensor, rows: RowBatch, cap: float | None, with_gradient: bool) -> tuple[Tensor, Tensor]:
    """(C,) and (2, C), base losses and log-sum-exps; ``logits_CV`` become the gradient before the cap."""
    if not with_gradient:
        return without_gradient(logits_CV, rows)
    if cap is None:
        return to_gradient(logits_CV, logits_CV, rows)
    base_C, lse_2C = logits_CV.new_empty(len(logits_CV)), logits_CV.new_empty(2, len(logits_CV))
    length = rows.chunk_length(logits_CV.shape[-1])  # a slope as large as all of them would double the memory
    for start in range(0, len(logits_CV), length):
        here = slice(start, min(start + length, len(logits_CV)))
        part_CV = logits_CV[here]
        slope_CV = 1 - (part_CV / cap).square()
        base_C[here], lse_2C[:, here] = to_gradient(part_CV, part_CV, rows.between(here.start, here.stop))
        part_CV.mul_(slope_CV)
    return base_C, lse_2C


class _Gradients:
    """Of hidden states, weight and bias, summed over the chunks; in float32 where the inputs are of a half type."""

    def __init__(self, hidden_ND: Tensor, head: LMHead, wanted: list[bool]) -> None:
        self.inputs, self.head, self.hidden_ND = (hidden_ND, head.weight, head.bias), head, hidden_ND
        exact = torch.promote_types(hidden_ND.dtype, torch.float32)
        self.of_hidden = torch.empty_like(hidden_ND) if wanted[0] else None
        # Filled by the first product; zeros where there is none.
        make = torch.empty_like if len(hidden_ND) else torch.zeros_like
        self.of_weight = make(head.weight, dtype=exact) if wanted[1] else None
        self.of_bias = torch.zeros_like(head.bias, dtype=exact) if wanted[2] and head.bias is not None else None

    def add(self, gradient_CV: Tensor, chunk: slice) -> None:
        """gradient_CV: of these rows' logits, before the cap and after the scale."""
        if self.head.scale != 1:
            gradient_CV.mul_(self.head.scale)
        if self.of_bias is not None:
            self.of_bias += gradient_CV.sum(0)
        gradient_CV = gradient_CV.to(self.hidden_ND.dtype)
        if self.of_hidden is not None:
            torch.mm(gradient_CV, self.head.weight, out=self.of_hidden[chunk])
        if self.of_weight is None:
            return
        if self.of_weight.dtype == gradient_CV.dtype:
            self.of_weight.addmm_(gradient_CV.t(), self.hidden_ND[chunk], beta=0 if chunk.start == 0 else 1)
        elif chunk.start == 0:
            self.of_weight.copy_(gradient_CV.t() @ self.hidden_ND[chunk])
        else:
            self.of_weight += gradient_CV.t() @ self.hidden_ND[chunk]

    def done(self) -> list[Tensor | None]:
        """In the inputs' types; None for what is not wanted."""
        found = (self.of_hidden, self.of_weight, self.of_bias)
        return [
            None if gradient is None or given is None else gradient.to(given.dtype)
            for gradient, given in zip(found, self.inputs, strict=True)
        ]
