"""Cross-entropy and number losses as one function, of logits or of hidden states.

It is computed in one of two ways that agree. "reference" calls the functions of this package one by one, and autograd
computes the gradient. "fused", "linear" and "triton" compute the gradient together with the loss (`ntl.losses.fast`).
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ntl.config.loss import checked_implementation
from ntl.losses.fast import LMHead, fast_loss
from ntl.losses.registry import Terms, fast_kinds, import_all
from ntl.losses.rows import (
    NumberRows,
    Reduction,
    aligned,
    check_reduction,
    check_width,
    checked_weights,
    is_number,
    keeps_shapes,
    number_index,
    rows_of,
    weighted,
)
from ntl.losses.sums import JointLoss, SumCount, total_loss
from ntl.numbers import NumberVocabulary

# The vocabulary size from which on "fused" is faster on a CPU: the two are even at 1,024, and at 4,096 "fused" takes
# 0.6 to 0.7 of the time of "reference".
FASTER_FROM = 2048
# The GPUs, by the first number of their compute capability, of which results/benchmarks/kernels_gpu.csv has times.
TIMED: frozenset[int] = frozenset()


def ce_ntl(
    logits: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    kind: str | Terms = "was",
    weight: float = 0.3,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    base_count: Tensor | float | None = None,
    number_count: Tensor | float | None = None,
    loss_weights: Tensor | None = None,
    implementation: str = "auto",
    inplace: bool = False,
    head: LMHead | None = None,
    **options: Any,
) -> JointLoss:
    """Compute CE + weight × NTL (the paper's Eq. 3, where weight is λ), with the gradient in one pass over the logits.

    Args:
        logits: (..., V). They are not shifted against the labels.
        labels: (...).
        kind: The number loss, a registered one (`ntl.losses.registry`). "ce" is cross-entropy alone, "gce" and "emo"
            replace it. Several are joined by "+", as in "gce+was_cdf" or "was+crps"; their number losses are added. Or
            `ntl.losses.registry.Terms`, which have their own weight and options.
        reduction: "mean" divides the base loss by the number of labelled tokens and the number loss by the number of
            number labels (for number_level of numbers, for ntil of rows), or by the given counts. "sum" does not
            divide. "none" returns total, sums and counts at each position, (...); it is always computed by "reference".
        base_count, number_count: Denominators to use instead of the batch's own, such as the counts of a whole
            optimizer step.
        loss_weights: (...), finite and not negative, one for each label. The weight multiplies both losses of its
            position and replaces 1 in the denominators, so that "mean" is Σ w·CE / Σ w over labelled tokens + weight ×
            Σ w·NTL / Σ w over number labels. Given denominators are not changed. Weights get no gradient. For
            number_level and ntil, a number or row has the weight of its last digit. (..., 2) are weights of the
            two losses: with the second one 0, a number is left out of the number loss. "gce" and "ntil" take only one.
        implementation: "reference" calls the functions of this package one by one. "fused" needs a single buffer of the
            size of the logits, the gradient included, and has no second derivative; it has every kind but "emo".
            "triton" is the same with GPU kernels. "auto" takes the one that was measured to be fastest. All return
            the same values up to rounding.
        inplace: Write the gradient over the logits, which must not be read afterwards.
        head: With it, ``logits`` are the hidden states (..., D) that it reads; see `linear_ce_ntl`.
        options: The options of the kind, which are the keyword arguments of its function, such as label_smoothing (CE).

    Raises:
        ValueError: The kind, an option or the implementation is unknown, the shapes do not fit, or inplace is not
            possible.
        RuntimeError: A backward pass through "fused" has create_graph=True.
    """
    if options and not isinstance(kind, str):
        raise ValueError(f"Terms have their own weight and options: leave {', '.join(options)} out")
    terms = Terms.of(kind, weight, options) if isinstance(kind, str) else kind
    inputs, shape = logits, labels.shape
    if head is not None and (inputs.shape[:-1] != labels.shape or inputs.shape[-1:] != head.weight.shape[-1:]):
        raise ValueError(
            f"hidden_states (..., D), lm_head_weight (V, D) and labels (...) do not fit: "
            f"{tuple(inputs.shape)}, {tuple(head.weight.shape)}, {tuple(labels.shape)}"
        )
    weights = checked_weights(loss_weights, inputs, labels, ignore_index)
    inputs, labels = aligned(inputs, labels)
    weights = None if weights is None else tuple(tensor.view_as(labels) for tensor in weights)
    one_weight = [kind for kind in terms.kinds if kind.one_weight]
    if loss_weights is not None and loss_weights.shape != shape and one_weight:
        raise ValueError(f"{one_weight[0].name} knows numbers by their labels: give it one weight for each label")
    check_width(inputs if head is None else head.weight[:, 0], number_vocab)
    check_reduction(reduction)
    given: dict[str, Any] = {"number_vocab": number_vocab, "ignore_index": ignore_index, "reduction": "none"}
    is_each = reduction == "none"
    if is_each or base_count is None or number_count is None:
        counts = [part if is_each else part.sum() for part in terms.counts(labels, number_vocab, ignore_index, weights)]
        base_count = counts[0] if is_each or base_count is None else base_count
        number_count = counts[1] if is_each or number_count is None else number_count
    base_count, number_count = torch.as_tensor(base_count), torch.as_tensor(number_count)
    one = torch.ones((), device=inputs.device)
    over = (base_count, number_count) if reduction == "mean" else (one, one)

    def total_of(base: Tensor, number: Tensor) -> Tensor:
        return total_loss(base, number, over[0], over[1], terms.weight)

    chosen = _chosen(implementation, terms, inputs, head, inplace, reduction)
    if chosen != "reference":
        kernel = triton_kernel(inputs.device) if chosen == "triton" else None
        total, *sums = fast_loss(terms, inputs, head, labels, weights, given, total_of, inplace, kernel)
    else:
        logits = inputs if head is None else head.logits(inputs)
        of_base, of_number = weights or (None, None)
        common = (logits, labels, number_vocab, ignore_index)
        base = summed(terms.base, *common, of_base, is_each, is_base=True)
        number = summed(terms.number, *common, of_number, is_each) if terms.numbers else torch.zeros_like(base)
        if is_each:
            parts = (base, number, base_count, number_count)
            base, number, base_count, number_count = (part.reshape(shape) for part in parts)
        total, sums = total_of(base, number), [base.detach(), number.detach()]
    return JointLoss(total, SumCount(sums[0], base_count), SumCount(sums[1], number_count), torch.zeros_like(sums[0]))


def summed(
    loss: Callable[..., Tensor],
    inputs: Tensor | NumberRows,
    labels: Tensor,
    vocab: NumberVocabulary,
    ignore_index: int,
    weights: Tensor | None = None,
    per_position: bool = False,
    is_base: bool = False,
) -> Tensor:
    """Return the sum of a loss times the weights (...) of its positions, (); its summands, (...), ``per_position``."""
    call = partial(loss, inputs, labels, vocab, ignore_index=ignore_index)
    if weights is None and not per_position:
        return call(reduction="sum")
    losses = weighted(call(reduction="none"), weights)
    if per_position:
        return losses
    # In the order of a sum without weights, so that weights of 1 change no bit.
    if keeps_shapes(labels):
        return losses.sum()
    return losses[labels != ignore_index if is_base else is_number(labels, vocab, ignore_index)].sum()


def linear_ce_ntl(
    hidden_states: Tensor,
    lm_head_weight: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    *,
    bias: Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
    **arguments: Any,
) -> JointLoss:
    """Compute `ce_ntl` from hidden states and the weights of the head.

    The logits are softcap · tanh(z / softcap) with z = logit_scale · (hidden_states · lm_head_weightᵀ + bias).
    The logits and their gradient are computed for one chunk of rows at a time, so that the peak memory holds the
    gradients of hidden states and weight, and one chunk. Ignored rows are dropped before the product. The gradient of
    the weight is accumulated in float32, and not computed if the weight is frozen. Under autocast the products are
    computed in the autocast type, as in the model itself.

    Args:
        hidden_states: (..., D). They are not shifted against the labels.
        lm_head_weight: (V, D). It may be a computed tensor, such as a LoRA layer's, or the tied embedding matrix.
        labels: (...).
        bias: (V,).
        arguments: As in `ce_ntl`, except inplace. The implementation "reference" computes all logits at once;
            "fused" and "linear" are the same here, and "triton" is by kernels of a GPU.
    """
    head = LMHead(lm_head_weight, bias, logit_scale, softcap)
    return ce_ntl(hidden_states, labels, number_vocab, head=head, **arguments)


def is_faster(device: torch.device, width: int) -> bool:
    """Return whether the fast way was measured to be faster than "reference": on a CPU, except for small vocabularies.

    It has not been measured on a GPU, and torch.compile fuses the reference by itself.
    """
    return device.type == "cpu" and width >= FASTER_FROM and not torch.compiler.is_compiling()


def linear_number_rows(
    hidden_states: Tensor, head: LMHead, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int
) -> NumberRows:
    """Return the `number_rows` of hidden_states (..., D): only the logits of the number tokens are computed."""
    index, counts_N = number_index(labels, number_vocab, ignore_index)
    hidden_ND = hidden_states.flatten(0, -2) if index is None else hidden_states[index]
    return rows_of(head.logits(hidden_ND, number_vocab.token_ids), labels, number_vocab, index, counts_N)


def triton_kernel(device: torch.device | None) -> ModuleType:
    """Return the module `ntl.losses.kernel`. Raises ValueError if its kernels cannot compute, or not on the device."""
    name = "implementation='triton'"
    try:
        from ntl.losses import kernel
    except ImportError as error:
        raise ValueError(f"{name} needs the package triton ({error}): install it, or take 'fused'") from None
    if device is not None and device.type != "cuda" and not kernel.INTERPRETED:
        raise ValueError(
            f"{name} computes on a GPU, not on a {device.type}: take 'fused', or for tests, which are slow, "
            "set TRITON_INTERPRET=1 in the environment before Python starts"
        )
    return kernel


@cache
def is_timed(device: torch.device) -> bool:
    """Return whether the kernels were measured on this family of GPUs, and run. A warning says why they do not."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] not in TIMED:
        return False
    try:
        triton_kernel(device)
        leaf = torch.zeros(1, 1, device=device, requires_grad=True)
        vocab = NumberVocabulary.from_values(torch.zeros(1)).to(device)
        ce_ntl(leaf, vocab.token_ids, vocab, implementation="triton").total.backward()
    except Exception as error:
        line = str(error).partition("\n")[0]
        warnings.warn(f"implementation='auto' does without 'triton', which fails here: {line}", stacklevel=2)
        return False
    return True


def _chosen(
    implementation: str, terms: Terms, inputs: Tensor, head: LMHead | None, inplace: bool, reduction: str
) -> str:
    """Return "reference", "fused", also for hidden states, or "triton"."""
    chosen = checked_implementation(implementation)
    if chosen == "linear" and head is None:
        raise ValueError("implementation='linear' needs hidden states: give them to linear_ce_ntl, or take 'fused'")
    if (chosen in ("fused", "linear", "triton") or inplace) and not terms.knows:
        how = "implementation='fused', 'triton', 'linear' and inplace=True"
        raise ValueError(f"{how} are for the kinds {fast_kinds()}; take 'reference', not in place")
    if inplace:
        if chosen == "reference" or reduction == "none" or head is not None:
            raise ValueError("inplace=True needs implementation='fused', logits, and the reduction 'mean' or 'sum'")
        if not inputs.is_contiguous():
            raise ValueError("inplace=True needs contiguous logits: shift the labels, not the logits")
        if inputs.dtype == torch.float16 and chosen != "triton":
            raise ValueError("inplace=True: an unscaled gradient underflows in float16; use bfloat16 or float32")
    if reduction == "none":  # a gradient per position would need a pass of its own
        return "reference"
    if chosen != "auto":
        return chosen.replace("linear", "fused")
    is_compiling = torch.compiler.is_compiling()
    if terms.knows and not is_compiling and is_timed(inputs.device):
        return "triton"
    width = inputs.shape[-1] if head is None else len(head.weight)
    from_hidden = head is not None and inputs.device.type != "cpu" and not is_compiling
    faster = inplace or from_hidden or is_faster(inputs.device, width)  # all logits at once are large
    return "fused" if terms.knows and faster else "reference"


# Done on import and not in ``ce_ntl``, because torch.compile cannot trace imports.
import_all()
