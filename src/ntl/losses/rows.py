"""What all losses share: which positions count, their logits, and the reduction over them.

Shape suffixes: V vocabulary, K number tokens, N the positions that count, in the order of `labels`.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ntl.numbers import NumberVocabulary

Reduction = Literal["mean", "sum", "none"]
Index = tuple[Tensor, ...]


class LabelRows(NamedTuple):
    """The labelled positions: `logits_NV`, `labels_N`, and their `index` into `labels`, None where they are all."""

    logits_NV: Tensor
    labels_N: Tensor
    index: Index | None
    counts_N: Tensor | None = None


class NumberRows(NamedTuple):
    """The positions whose label is a number, with everything in the type the loss is computed in.

    logits_NK: the number-token logits; a row that is -inf throughout is all 0, cut off from the graph
    tokens_N: the label as a position among the number tokens, 0 <= k < K
    targets_N: the value of the label
    values_K: the values of the number tokens
    labels: all labels
    index: the positions in `labels`, None where the rows are all of them
    counts_N: which rows are number-labelled, None where they all are; the others hold zeros
    """

    logits_NK: Tensor
    tokens_N: Tensor
    targets_N: Tensor
    values_K: Tensor
    labels: Tensor
    index: Index | None = None
    counts_N: Tensor | None = None

    def at(self, grid: Tensor) -> Tensor:
        """The rows' entries of a tensor that has the shape of `labels` in front."""
        return grid.flatten(0, self.labels.dim() - 1) if self.index is None else grid[self.index]


def label_rows(logits: Tensor, labels: Tensor, ignore_index: int) -> LabelRows:
    """The labelled positions of logits (..., V) and labels (...)."""
    logits, labels = aligned(logits, labels)
    counts = labels != ignore_index
    if torch.compiler.is_compiling():  # a graph has no tensor whose shape depends on the labels
        zeroed = logits.masked_fill(~counts.unsqueeze(-1), 0.0).flatten(0, -2)
        return LabelRows(upcast(zeroed), labels.flatten(), None, counts.flatten())
    index = counts.nonzero(as_tuple=True)
    if index[0].numel() == labels.numel():  # copying all of the logits would cost as much as the loss itself
        return LabelRows(upcast(logits.reshape(-1, logits.shape[-1])), labels.reshape(-1), index)
    return LabelRows(upcast(logits[index]), labels[index], index)


def number_rows(logits: Tensor, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> NumberRows:
    """The number-labelled positions of logits (..., V) and labels (...); copies N×K logits and no more."""
    logits, labels = aligned(logits, labels)
    check_width(logits, number_vocab)
    index, counts_N = number_index(labels, number_vocab, ignore_index)
    if index is None:
        picked_NK = logits.index_select(-1, number_vocab.token_ids).flatten(0, -2)
    else:
        picked_NK = logits[(*(i.unsqueeze(-1) for i in index), number_vocab.token_ids)]
    logits_NK = upcast(picked_NK)
    if logits.dtype == torch.float16 and logits_NK.requires_grad and not torch.compiler.is_compiling():
        # A squared error over values in the hundreds has gradients that float16 cannot hold: they saturate.
        limit = torch.finfo(torch.float16).max
        logits_NK.register_hook(lambda gradient: gradient.clamp(-limit, limit))
    return rows_of(logits_NK, labels, number_vocab, index, counts_N)


def number_index(
    labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int
) -> tuple[Index | None, Tensor | None]:
    """`index` and `counts_N` of the number rows: those alone on a CPU; all positions where counting them would cost.

    It would make a GPU wait for the host, and break a compiled graph.
    """
    numbers = is_number(labels, number_vocab, ignore_index)
    if labels.is_cuda or torch.compiler.is_compiling():
        return None, numbers.flatten()
    return numbers.nonzero(as_tuple=True), None


def rows_of(
    logits_NK: Tensor,
    labels: Tensor,
    number_vocab: NumberVocabulary,
    index: Index | None,
    counts_N: Tensor | None,
) -> NumberRows:
    """The rows at `index` of labels, from their number-token logits in the type the loss is computed in."""
    left_out_N1 = (logits_NK == -torch.inf).all(dim=-1, keepdim=True)
    labels_N = labels.flatten() if index is None else labels[index]
    if counts_N is not None:
        left_out_N1 = left_out_N1 | ~counts_N.unsqueeze(-1)
        labels_N = labels_N.where(counts_N, number_vocab.token_ids[0])
    logits_NK = logits_NK.masked_fill(left_out_N1, 0.0)
    tokens_N = torch.searchsorted(number_vocab.token_ids, labels_N)
    values_K = number_vocab.token_values.to(logits_NK.dtype)
    return NumberRows(logits_NK, tokens_N, values_K[tokens_N], values_K, labels, index, counts_N)


def check_width(logits: Tensor, number_vocab: NumberVocabulary) -> None:
    """For logits (..., V): TypeError where number_vocab is none, ValueError where it was not made for that width."""
    check_vocabulary(number_vocab)
    width, said = logits.shape[-1], number_vocab.vocab_size
    if said is not None and width != said:
        raise ValueError(
            f"logits have width {width}, but the number vocabulary was made with vocab_size={said}: "
            f"make it with vocab_size={width}, from the tokenizer the model was trained with"
        )
    if width < number_vocab.min_logits:
        raise ValueError(
            f"logits have width {width}, but the largest number-token id is {number_vocab.min_logits - 1}: "
            "build the NumberVocabulary from the tokenizer the model was trained with, or resize the model's embedding"
        )


def check_vocabulary(number_vocab: object) -> None:
    """Raises TypeError for anything but a NumberVocabulary."""
    if not isinstance(number_vocab, NumberVocabulary):
        raise TypeError(
            f"number_vocab must be a NumberVocabulary, not a {type(number_vocab).__name__}: "
            "NumberVocabulary.from_tokenizer(tokenizer) makes it, NumberTokenLoss.from_tokenizer(tokenizer, ...) a loss"
        )


def is_number(labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> Tensor:
    """(...) bool: the labels that are number tokens. Ids beyond the number vocabulary (padding) are text."""
    ids = labels.clamp(0, number_vocab.values.numel() - 1)
    return (labels != ignore_index) & (labels == ids) & ~number_vocab.values[ids].isnan()


def count_labels(labels: Tensor, number_vocab: NumberVocabulary | None = None, *, ignore_index: int = -100) -> Tensor:
    """The number of labelled tokens in labels (...), () int64: the denominator of the cross-entropies."""
    return (labels != ignore_index).sum()


def count_number_labels(labels: Tensor, number_vocab: NumberVocabulary, *, ignore_index: int = -100) -> Tensor:
    """The number of number labels in labels (...), () int64: the denominator of the number losses."""
    return is_number(labels, number_vocab, ignore_index).sum()


def checked_weights(weights: Tensor | None, logits: Tensor, labels: Tensor, ignore_index: int) -> Tensor | None:
    """One of loss_weights for each of labels (...), 0 where it is ignored, in the type the losses are computed in.

    ValueError for another shape, and for one that is negative or not finite; that on a CPU alone, as a GPU would have
    to be waited for.
    """
    if weights is None:
        return None
    if weights.shape != labels.shape:
        raise ValueError(f"loss_weights must have labels' shape {tuple(labels.shape)}, not {tuple(weights.shape)}")
    dtype = torch.promote_types(logits.dtype, torch.float32)
    weights = weights.detach().to(logits.device, dtype).where(labels != ignore_index, 0.0)
    if weights.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = ~(weights.isfinite() & (weights >= 0))
        if wrong.any():
            raise ValueError(f"loss_weights must be finite and not negative, not {weights[wrong][0].item()}")
    return weights


def weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """losses × weights, (...) each; a weight of 0 also takes away an infinite loss."""
    return losses if weights is None else losses.masked_fill(weights == 0, 0.0) * weights


def reduce(
    losses_N: Tensor, rows: LabelRows | NumberRows, labels: Tensor, reduction: Reduction, count: Tensor | None = None
) -> Tensor:
    """The loss per position, reduced; without positions an exact 0 whose gradient is 0, in the graph all the same.

    count: the denominator of the mean, where that is not the number of positions.
    """
    if rows.counts_N is not None:
        losses_N = losses_N.where(rows.counts_N, 0.0)
        count = rows.counts_N.sum() if count is None else count
    if reduction == "none":
        if rows.index is None:
            return losses_N.reshape(labels.shape)
        return losses_N.new_zeros(labels.shape or (1,)).index_put(rows.index, losses_N).reshape(labels.shape)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    total = losses_N.sum()
    if reduction == "sum":
        return total
    return total / (max(losses_N.numel(), 1) if count is None else count.clamp(min=1))


def aligned(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Both, checked against each other, and with one batch dimension where `labels` is a scalar."""
    if logits.shape[:-1] != labels.shape or logits.dim() == 0:
        raise ValueError(f"logits (..., V) and labels (...) do not fit: {tuple(logits.shape)}, {tuple(labels.shape)}")
    labels = labels.long()
    return (logits, labels) if labels.dim() else (logits.unsqueeze(0), labels.unsqueeze(0))


def upcast(logits: Tensor) -> Tensor:
    """In the type the losses are computed in."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
