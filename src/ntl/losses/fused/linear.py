"""Base and number losses computed from hidden states, without ever holding the logits of all rows.

Shape suffixes: V vocabulary, D hidden size, K number tokens, N the rows that count, C rows of a chunk, M the rows whose
number-token logits are read.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ntl.config.loss import checked_implementation
from ntl.losses.fused.chunks import RowBatch, compute_losses, compute_losses_and_gradient, number_losses
from ntl.losses.fused.joint import is_faster, joint_loss
from ntl.losses.fused.plan import Counts, NumberPositions, Targets, check_labels
from ntl.losses.fused.terms import Terms
from ntl.losses.rows import (
    NumberRows,
    Reduction,
    check_reduction,
    check_width,
    is_number,
    number_index,
    rows_of,
    upcast,
)
from ntl.losses.sums import JointLoss
from ntl.numbers import NumberVocabulary


class LMHead(NamedTuple):
    """The head logits = cap · tanh(z / cap) with z = scale · (hidden · weightᵀ + bias), or z itself without a cap.

    ``ntl.models.lm_head`` returns the head of a transformers model.

    Attributes:
        weight: (V, D); the embedding matrix itself if the two are tied.
        bias: (V,) or None.
        scale: T5's d_model^-0.5, Granite's 1 / logits_scaling or Cohere's logit_scale.
        cap: Gemma 2's final_logit_softcapping.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    cap: float | None = None

    def logits(self, hidden: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of hidden (..., D), or only those of K token ids, (..., K).

        Half-precision logits are converted to float32.
        """
        weight, bias = self.weight, self.bias
        if tokens is not None:
            weight, bias = weight[tokens], None if bias is None else bias[tokens]
        logits = upcast(F.linear(hidden, weight, bias))
        logits = logits if self.scale == 1 else logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


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
    """Compute `ce_ntl` from hidden states and the weights of the head.

    The logits are softcap · tanh(z / softcap) with z = logit_scale · (hidden_states · lm_head_weightᵀ + bias).
    The logits and their gradient are computed for one chunk of rows at a time, so that the peak memory is that of the
    gradients of hidden states and weight and of one chunk. Ignored rows are dropped before the product. The gradient of
    the weight is accumulated in float32, and not computed if the weight is frozen. Under autocast the products are
    computed in the autocast type, as in the model itself. Several backward passes are allowed, a double backward is
    not.

    Args:
        hidden_states: (..., D). They are not shifted against the labels.
        lm_head_weight: (V, D). It may be a computed tensor, such as that of a LoRA layer, or the tied embedding matrix.
        labels: (...).
        bias: (V,).
        implementation: "reference" computes all logits at once. "fused" and "linear" are the same here; they work in
            chunks and do not support the reduction "none".

    The other arguments, and the errors, are those of `ce_ntl`.
    """
    return linear_joint_loss(
        Terms.of(kind, weight, options),
        hidden_states,
        LMHead(lm_head_weight, bias, logit_scale, softcap),
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
    counts: Counts = (None, None),
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
) -> JointLoss:
    """Compute `linear_ce_ntl` for given terms and a given head; ``counts`` are base_count and number_count."""
    if hidden_states.shape[:-1] != labels.shape or hidden_states.shape[-1:] != head.weight.shape[-1:]:
        raise ValueError(
            f"hidden_states (..., D), lm_head_weight (V, D) and labels (...) do not fit: "
            f"{tuple(hidden_states.shape)}, {tuple(head.weight.shape)}, {tuple(labels.shape)}"
        )
    checked_implementation(implementation)
    if implementation in ("fused", "linear") and (reduction == "none" or not terms.knows):
        raise ValueError(
            f"implementation='{implementation}' needs the reduction 'mean' or 'sum', and the losses of this package"
        )
    faster = is_faster(hidden_states.device, len(head.weight)) and terms.knows and reduction != "none"
    if implementation == "reference" or (implementation == "auto" and not faster):
        kwargs = {"ignore_index": ignore_index, "reduction": reduction, "counts": counts, "loss_weights": loss_weights}
        logits = head.logits(hidden_states)
        return joint_loss(terms, logits, labels, number_vocab, implementation="reference", **kwargs)
    check_reduction(reduction)
    check_width(head.weight[:, 0], number_vocab)
    hidden_states, head = _cast_for_autocast(hidden_states, head)
    targets = Targets.of(terms, hidden_states, labels, number_vocab, ignore_index, reduction, counts, loss_weights)
    gradient = torch.is_grad_enabled()
    with torch.autocast(hidden_states.device.type, enabled=False):
        hidden_ND, rows = _rows_of_hidden(targets, hidden_states.reshape(-1, hidden_states.shape[-1]), head, gradient)
        total, base_sum, number_sum = _LinearTotal.apply(
            hidden_ND, head.weight, head.bias, head.scale, head.cap, rows, gradient
        )
    return targets.joint(total, base_sum, number_sum)


def linear_number_rows(
    hidden_states: Tensor, head: LMHead, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int
) -> NumberRows:
    """Return the `number_rows` of hidden_states (..., D): only the logits of the number tokens are computed."""
    index, counts_N = number_index(labels, number_vocab, ignore_index)
    hidden_ND = hidden_states.flatten(0, -2) if index is None else hidden_states[index]
    return rows_of(head.logits(hidden_ND, number_vocab.token_ids), labels, number_vocab, index, counts_N)


def _cast_for_autocast(hidden_states: Tensor, head: LMHead) -> tuple[Tensor, LMHead]:
    device = hidden_states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_states.dtype
    bias = None if head.bias is None else head.bias.to(dtype)
    return hidden_states.to(dtype), head._replace(weight=head.weight.to(dtype), bias=bias)


def _rows_of_hidden(targets: Targets, hidden: Tensor, head: LMHead, gradient: bool) -> tuple[Tensor, RowBatch]:
    """Return the hidden states of the rows that count, (N, D) with their graph, and the inputs of the passes."""
    labels, vocab, ignore_index = targets.labels, targets.number_vocab, targets.ignore_index
    kept_N = (labels != ignore_index).flatten().nonzero().squeeze(-1)
    hidden_ND = hidden if len(kept_N) == labels.numel() else hidden.index_select(0, kept_N)
    labels_N = labels.flatten()[kept_N]
    check_labels(labels_N, len(head.weight))
    numbers_N = is_number(labels, vocab, ignore_index).flatten()[kept_N]
    rows_N = torch.arange(len(kept_N), device=labels.device)
    if labels.device.type == "cpu":
        rows_M, counts_M = rows_N[numbers_N], None
    else:  # all rows: counting the number rows would synchronise with the host
        rows_M, counts_M = rows_N, numbers_N
    positions = NumberPositions(torch.unravel_index(kept_N[rows_M], labels.shape), counts_M, rows_M)
    with torch.no_grad():
        logits_MK = head.logits(hidden_ND[rows_M], vocab.token_ids)
    weights_N = None if targets.weights is None else targets.weights.flatten()[kept_N]
    needed = gradient and any(each is not None and each.requires_grad for each in (hidden, head.weight, head.bias))
    return hidden_ND, targets.rows(labels_N, None, weights_N, positions, logits_MK, needed)


class _LinearTotal(torch.autograd.Function):
    """Map hidden (N, D), weight (V, D) and bias (V,) to the total (), the base sum () and the number sum ().

    Only the total is differentiable. Its gradient, for those of the three inputs that require one, is computed in the
    forward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        scale: float,
        cap: float | None,
        rows: RowBatch,
        with_gradient: bool,
    ) -> tuple[Tensor, ...]:
        head = LMHead(weight_VD, bias_V, scale, cap)
        needed = [with_gradient and is_needed for is_needed in ctx.needs_input_grad[:3]]
        gradients = _Gradients(hidden_ND, head, needed)
        base_N = rows.scales.base.new_zeros(len(hidden_ND))
        lse_2N = base_N.new_zeros(2, len(hidden_ND))
        step = max(64, weight_VD.shape[1])  # with D rows, a chunk of logits is as large as the weight
        for start in range(0, len(hidden_ND), step):
            chunk = slice(start, min(start + step, len(hidden_ND)))
            logits_CV = head.logits(hidden_ND[chunk])
            base_N[chunk], lse_2N[:, chunk] = _losses(logits_CV, rows[chunk], head.cap, any(needed))
            if any(needed):
                gradients.add(logits_CV, chunk)
            del logits_CV  # frees them before the next chunk is computed
        number_M = number_losses(rows, lse_2N)
        ctx.save_for_backward(*gradients.results())
        base_sum, number_sum = base_N.sum(), number_M.sum()
        ctx.mark_non_differentiable(base_sum, number_sum)
        return rows.scales.total(base_sum, number_sum), base_sum, number_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        is_one = grad.device.type == "cpu" and bool(grad == 1)
        scaled = [
            gradient if gradient is None or is_one else (gradient * grad).to(gradient.dtype)
            for gradient in ctx.saved_tensors
        ]
        return (*scaled, None, None, None, None)


def _losses(logits_CV: Tensor, rows: RowBatch, cap: float | None, with_gradient: bool) -> tuple[Tensor, Tensor]:
    """Return the base losses (C,) and the log-sum-exps (2, C).

    With a gradient, ``logits_CV`` is overwritten by the gradient with respect to the logits before the cap.
    """
    if not with_gradient:
        return compute_losses(logits_CV, rows)
    if cap is None:
        return compute_losses_and_gradient(logits_CV, logits_CV, rows)
    base_C, lse_2C = logits_CV.new_empty(len(logits_CV)), logits_CV.new_empty(2, len(logits_CV))
    length = rows.chunk_length(logits_CV.shape[-1])  # the slopes of all rows at once would double the memory
    for start in range(0, len(logits_CV), length):
        chunk = slice(start, min(start + length, len(logits_CV)))
        logits_BV = logits_CV[chunk]
        slope_BV = 1 - (logits_BV / cap).square()
        base_C[chunk], lse_2C[:, chunk] = compute_losses_and_gradient(logits_BV, logits_BV, rows[chunk])
        logits_BV.mul_(slope_BV)
    return base_C, lse_2C


class _Gradients:
    """The gradients of hidden states, weight and bias, accumulated over the chunks.

    Those of weight and bias are in float32 if the inputs are in half precision.
    """

    def __init__(self, hidden_ND: Tensor, head: LMHead, needed: list[bool]) -> None:
        self.head, self.hidden_ND = head, hidden_ND
        dtype = torch.promote_types(hidden_ND.dtype, torch.float32)
        self.hidden_grad = torch.empty_like(hidden_ND) if needed[0] else None
        # The first product fills the weight's gradient; without rows there is none.
        create = torch.empty_like if len(hidden_ND) else torch.zeros_like
        self.weight_grad = create(head.weight, dtype=dtype) if needed[1] else None
        self.bias_grad = torch.zeros_like(head.bias, dtype=dtype) if needed[2] and head.bias is not None else None

    def add(self, gradient_CV: Tensor, chunk: slice) -> None:
        """Add a chunk, given the gradient with respect to its logits before the cap and after the scale."""
        if self.head.scale != 1:
            gradient_CV.mul_(self.head.scale)
        if self.bias_grad is not None:
            self.bias_grad += gradient_CV.sum(0)
        gradient_CV = gradient_CV.to(self.hidden_ND.dtype)
        if self.hidden_grad is not None:
            torch.mm(gradient_CV, self.head.weight, out=self.hidden_grad[chunk])
        if self.weight_grad is None:
            return
        if self.weight_grad.dtype == gradient_CV.dtype:
            self.weight_grad.addmm_(gradient_CV.t(), self.hidden_ND[chunk], beta=0 if chunk.start == 0 else 1)
        elif chunk.start == 0:
            self.weight_grad.copy_(gradient_CV.t() @ self.hidden_ND[chunk])
        else:
            self.weight_grad += gradient_CV.t() @ self.hidden_ND[chunk]

    def results(self) -> list[Tensor | None]:
        """Return the gradients in the type of the inputs, None for those that are not needed."""
        gradients = (self.hidden_grad, self.weight_grad, self.bias_grad)
        return [None if gradient is None else gradient.to(self.hidden_ND.dtype) for gradient in gradients]
