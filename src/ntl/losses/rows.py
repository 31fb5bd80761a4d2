"""The steps that all losses share: selecting the positions that count and their logits, and the reduction."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from inspect import Signature, signature
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ntl.numbers import NumberVocabulary

Reduction = Literal["mean", "sum", "none"]
Index = tuple[Tensor, ...]
LOSS_WEIGHTS = "loss_weights"  # in batches
IGNORE_INDEX = -100
Weights = tuple[Tensor, ...]  # two: of the base loss and of the number loss at each position


class LabelRows(NamedTuple):
    """The labelled positions, with their logits and labels; `index` and `counts_N` as in `NumberRows`."""

    logits_NV: Tensor
    labels_N: Tensor
    index: Index | None
    counts_N: Tensor | None = None


class NumberRows(NamedTuple):
    """The positions whose label is a number, with floating-point tensors in the type the loss is computed in.

    Attributes:
        logits_NK: The number-token logits. A row in which all are -inf is replaced by zeros, without a gradient.
        tokens_N: The label as an index into the number tokens, 0 <= k < K.
        targets_N: The value of the label.
        values_K: The values of the number tokens.
        labels: The labels of all positions, (...).
        index: The positions of the rows in `labels`, or None if every position is a row.
        counts_N: Which rows are number-labelled, or None if all are. The logits of the others are zeros.
        log_p_NK: The number tokens' log-probabilities over the whole vocabulary, or None if nothing reads them.
    """

    logits_NK: Tensor
    tokens_N: Tensor
    targets_N: Tensor
    values_K: Tensor
    labels: Tensor
    index: Index | None = None
    counts_N: Tensor | None = None
    log_p_NK: Tensor | None = None

    def select(self, grid: Tensor) -> Tensor:
        """Return the rows' entries of a tensor with the leading dimensions of `labels`."""
        return grid.flatten(0, self.labels.dim() - 1) if self.index is None else grid[self.index]


# What number losses take: logits (..., V), or the rows that `number_rows` makes of them.
Logits = Tensor | NumberRows


def keeps_shapes(labels: Tensor) -> bool:
    """Return whether all positions are rows, with a mask of those that count.

    On a GPU and under torch.compile, because counting them would synchronise with the host or break the graph. On a
    CPU the rows are the positions that count alone.
    """
    return labels.is_cuda or torch.compiler.is_compiling()


def label_rows(logits: Tensor, labels: Tensor, ignore_index: int) -> LabelRows:
    """Return the labelled positions of logits (..., V) and labels (...), or all of them (`keeps_shapes`)."""
    logits, labels = aligned(logits, labels)
    counts = labels != ignore_index
    if keeps_shapes(labels):
        zeroed = logits.masked_fill(~counts.unsqueeze(-1), 0.0).flatten(0, -2)
        return LabelRows(upcast(zeroed), labels.flatten(), None, counts.flatten())
    index = counts.nonzero(as_tuple=True)
    if index[0].numel() == labels.numel():  # avoid a copy of all logits, which takes as long as the loss itself
        return LabelRows(upcast(logits.reshape(-1, logits.shape[-1])), labels.reshape(-1), index)
    return LabelRows(upcast(logits[index]), labels[index], index)


def number_rows(logits: Logits, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> NumberRows:
    """Return the number-labelled positions of logits (..., V) and labels (...). Only N × K logits are copied.

    Rows in place of logits are returned as they are.
    """
    if isinstance(logits, NumberRows):
        return logits
    logits, labels = aligned(logits, labels)
    check_width(logits, number_vocab)
    index, counts_N = number_index(labels, number_vocab, ignore_index)
    if index is None:
        picked_NK = logits.index_select(-1, number_vocab.token_ids).flatten(0, -2)
    else:
        picked_NK = logits[(*(i.unsqueeze(-1) for i in index), number_vocab.token_ids)]
    logits_NK = upcast(picked_NK)
    if logits.dtype == torch.float16 and logits_NK.requires_grad and not torch.compiler.is_compiling():
        # The gradient of a squared error of values in the hundreds overflows float16, so it is clamped.
        limit = torch.finfo(torch.float16).max
        logits_NK.register_hook(lambda gradient: gradient.clamp(-limit, limit))
    return rows_of(logits_NK, labels, number_vocab, index, counts_N)


def number_index(
    labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int
) -> tuple[Index | None, Tensor | None]:
    """Return the `index` and `counts_N` of `NumberRows`, whose rows are the number labels or all (`keeps_shapes`)."""
    numbers = is_number(labels, number_vocab, ignore_index)
    if keeps_shapes(labels):
        return None, numbers.flatten()
    return numbers.nonzero(as_tuple=True), None


def rows_of(
    logits_NK: Tensor, labels: Tensor, number_vocab: NumberVocabulary, index: Index | None, counts_N: Tensor | None
) -> NumberRows:
    """Return the rows at `index` of labels, given their number-token logits in the type the loss is computed in."""
    masked_N1 = (logits_NK == -torch.inf).all(dim=-1, keepdim=True)
    labels_N = labels.flatten() if index is None else labels[index]
    if counts_N is not None:
        masked_N1 = masked_N1 | ~counts_N.unsqueeze(-1)
        labels_N = labels_N.where(counts_N, number_vocab.token_ids[0])
    logits_NK = logits_NK.masked_fill(masked_N1, 0.0)
    tokens_N = torch.searchsorted(number_vocab.token_ids, labels_N)
    values_K = number_vocab.token_values.to(logits_NK.dtype)
    return NumberRows(logits_NK, tokens_N, values_K[tokens_N], values_K, labels, index, counts_N)


def check_width(logits: Tensor, number_vocab: NumberVocabulary) -> None:
    """Check that the number vocabulary fits logits (..., V).

    Raises TypeError if it is no NumberVocabulary, and ValueError if it was made for logits of another width.
    """
    check_vocabulary(number_vocab)
    width, expected = logits.shape[-1], number_vocab.vocab_size
    if expected is not None and width != expected:
        raise ValueError(
            f"logits have width {width}, but the number vocabulary was made with vocab_size={expected}: "
            f"make it with vocab_size={width}, from the tokenizer the model was trained with"
        )
    if width < number_vocab.min_logits:
        raise ValueError(
            f"logits have width {width}, but the largest number-token id is {number_vocab.min_logits - 1}: "
            "build the NumberVocabulary from the tokenizer the model was trained with, or resize the model's embedding"
        )


def check_vocabulary(number_vocab: object) -> None:
    """Raise TypeError for anything but a NumberVocabulary."""
    if not isinstance(number_vocab, NumberVocabulary):
        raise TypeError(
            f"number_vocab must be a NumberVocabulary, not a {type(number_vocab).__name__}: "
            "NumberVocabulary.from_tokenizer(tokenizer) makes it, NumberTokenLoss.from_tokenizer(tokenizer, ...) a loss"
        )


def is_number(labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> Tensor:
    """Return the mask (...) of the labels that are number tokens. Ids beyond the number vocabulary count as text."""
    ids = labels.clamp(0, number_vocab.values.numel() - 1)
    return (labels != ignore_index) & (labels == ids) & ~number_vocab.values[ids].isnan()


def count_labels(labels: Tensor, number_vocab: NumberVocabulary | None = None, *, ignore_index: int = -100) -> Tensor:
    """Count the labelled tokens in labels (...), () int64: the denominator of the cross-entropies."""
    return (labels != ignore_index).sum()


def count_number_labels(labels: Tensor, number_vocab: NumberVocabulary, *, ignore_index: int = -100) -> Tensor:
    """Count the number labels in labels (...), () int64: the denominator of the number losses."""
    return is_number(labels, number_vocab, ignore_index).sum()


def checked_weights(weights: Tensor | None, logits: Tensor, labels: Tensor, ignore_index: int) -> Weights | None:
    """Return the weights of base loss and number loss, (...) each, in the type the losses are computed in.

    They are loss_weights (...) or (..., 2), with 0 at ignored labels. Raises ValueError for another shape and, on a
    CPU, for weights that are negative or not finite. On a GPU the values are not checked, since that would
    synchronise with the host.
    """
    if weights is None:
        return None
    shape = tuple(labels.shape)
    if tuple(weights.shape) not in (shape, (*shape, 2)):
        given = tuple(weights.shape)
        raise ValueError(f"loss_weights must have labels' shape {shape}, not {given}, or two for each label")
    dtype, counts = torch.promote_types(logits.dtype, torch.float32), labels != ignore_index
    counts = counts if weights.dim() == labels.dim() else counts.unsqueeze(-1)
    weights = weights.detach().to(logits.device, dtype).where(counts, 0.0)
    if weights.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = ~(weights.isfinite() & (weights >= 0))
        if wrong.any():
            raise ValueError(f"loss_weights must be finite and not negative, not {weights[wrong][0].item()}")
    return (weights, weights) if weights.dim() == labels.dim() else weights.unbind(-1)


def weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return losses × weights, (...) each. A weight of 0 gives 0 even if the loss is infinite."""
    return losses if weights is None else losses.masked_fill(weights == 0, 0.0) * weights


def reduce(
    losses_N: Tensor, rows: LabelRows | NumberRows, labels: Tensor, reduction: Reduction, count: Tensor | None = None
) -> Tensor:
    """Reduce the losses of the rows. Without any rows the result is an exact 0 that still has a graph.

    ``count`` is the denominator of the mean, by default the number of positions that count.
    """
    check_reduction(reduction)
    if rows.counts_N is not None:
        losses_N = losses_N.where(rows.counts_N, 0.0)
        count = rows.counts_N.sum() if count is None else count
    if reduction == "none":
        if rows.index is None:
            return losses_N.reshape(labels.shape)
        return losses_N.new_zeros(labels.shape or (1,)).index_put(rows.index, losses_N).reshape(labels.shape)
    total = losses_N.sum()
    if reduction == "sum":
        return total
    return total / (max(losses_N.numel(), 1) if count is None else count.clamp(min=1))


def of_number_rows(function: Callable[..., Tensor]):  # what it returns is inferred, so that arguments are checked
    """Make a number loss, as `ntl.losses` says, of a function of (rows, *, options) that returns (N,), a loss each."""

    @wraps(function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def loss(
        logits: Logits,
        labels: Tensor,
        number_vocab: NumberVocabulary,
        *,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        **options: Any,
    ) -> Tensor:
        rows = number_rows(logits, labels, number_vocab, ignore_index)
        losses_N = function(rows, **options)
        if losses_N.shape != rows.targets_N.shape:
            name = getattr(function, "__name__", function)
            shapes = f"{tuple(rows.targets_N.shape)}, not {tuple(losses_N.shape)}"
            raise ValueError(f"{name} must return one loss for each number label, {shapes}")
        return reduce(losses_N, rows, labels, reduction)

    *shared, _ = signature(loss, follow_wrapped=False).parameters.values()
    _, *options = signature(function).parameters.values()
    vars(loss)["__signature__"] = Signature([*shared[:3], *options, *shared[3:]], return_annotation=Tensor)
    return loss


def check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value}")


def check_reduction(reduction: str) -> None:
    """Raise ValueError for an unknown reduction."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")


def aligned(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Check that logits (..., V) and labels (...) fit; return both, with a batch dimension added to scalar labels."""
    if logits.shape[:-1] != labels.shape or logits.dim() == 0:
        raise ValueError(f"logits (..., V) and labels (...) do not fit: {tuple(logits.shape)}, {tuple(labels.shape)}")
    check_labels(labels)
    labels = labels.long()
    return (logits, labels) if labels.dim() else (logits.unsqueeze(0), labels.unsqueeze(0))


def check_labels(labels: Tensor) -> None:
    """Raise TypeError for labels that are no integers: 7.9 is not token 7."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be integer token ids, not {labels.dtype}: use labels.long()")


def exact(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which autocast does not compute products in half precision."""
    enabled = device.type != "meta" and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def upcast(logits: Tensor) -> Tensor:
    """Return the logits in the type the losses are computed in: half-precision types become float32."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
