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
    """The labelled positions: `logits_NV`, `labels_N`, and their `index` into `labels`."""

    logits_NV: Tensor
    labels_N: Tensor
    index: Index


class NumberRows(NamedTuple):
    """The positions whose label is a number, with everything in the type the loss is computed in.

    logits_NK: the number-token logits; a row that is -inf throughout is all 0, cut off from the graph
    tokens_N: the label as a position among the number tokens, 0 <= k < K
    targets_N: the value of the label
    values_K: the values of the number tokens
    index: the positions in `labels`
    """

    logits_NK: Tensor
    tokens_N: Tensor
    targets_N: Tensor
    values_K: Tensor
    index: Index


def label_rows(logits: Tensor, labels: Tensor, ignore_index: int) -> LabelRows:
    """The labelled positions of logits (..., V) and labels (...)."""
    logits, labels = _aligned(logits, labels)
    index = (labels != ignore_index).nonzero(as_tuple=True)
    if index[0].numel() == labels.numel():  # copying all of the logits would cost as much as the loss itself
        return LabelRows(_upcast(logits.reshape(-1, logits.shape[-1])), labels.reshape(-1), index)
    return LabelRows(_upcast(logits[index]), labels[index], index)


def number_rows(logits: Tensor, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int) -> NumberRows:
    """The number-labelled positions of logits (..., V) and labels (...); copies N×K logits and no more."""
    logits, labels = _aligned(logits, labels)
    check_width(logits, number_vocab)
    index = is_number(labels, number_vocab, ignore_index).nonzero(as_tuple=True)
    logits_NK = _upcast(logits[(*(i.unsqueeze(-1) for i in index), number_vocab.token_ids)])
    if logits.dtype == torch.float16 and logits_NK.requires_grad:
        # A squared error over values in the hundreds has gradients that float16 cannot hold: they saturate.
        limit = torch.finfo(torch.float16).max
        logits_NK.register_hook(lambda gradient: gradient.clamp(-limit, limit))
    nothing_left_N1 = (logits_NK == -torch.inf).all(dim=-1, keepdim=True)
    logits_NK = logits_NK.masked_fill(nothing_left_N1, 0.0)
    tokens_N = torch.searchsorted(number_vocab.token_ids, labels[index])
    values_K = number_vocab.token_values.to(logits_NK.dtype)
    return NumberRows(logits_NK, tokens_N, values_K[tokens_N], values_K, index)


def check_width(logits: Tensor, number_vocab: NumberVocabulary) -> None:
    """Raises ValueError for logits (..., V) too narrow to hold every number token."""
    if logits.shape[-1] < number_vocab.min_logits:
        raise ValueError(
            f"logits have width {logits.shape[-1]}, but the largest number-token id is {number_vocab.min_logits - 1}: "
            "build the NumberVocabulary from the tokenizer the model was trained with, or resize the model's embedding"
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


def reduce(losses_N: Tensor, index: Index, labels: Tensor, reduction: Reduction) -> Tensor:
    """The loss per position, reduced; without positions an exact 0 whose gradient is 0, in the graph all the same."""
    if reduction == "none":
        return losses_N.new_zeros(labels.shape or (1,)).index_put(index, losses_N).reshape(labels.shape)
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', not {reduction!r}")
    total = losses_N.sum()
    return total if reduction == "sum" else total / max(losses_N.numel(), 1)


def _aligned(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Both, checked against each other, and with one batch dimension where `labels` is a scalar."""
    if logits.shape[:-1] != labels.shape or logits.dim() == 0:
        raise ValueError(f"logits (..., V) and labels (...) do not fit: {tuple(logits.shape)}, {tuple(labels.shape)}")
    labels = labels.long()
    return (logits, labels) if labels.dim() else (logits.unsqueeze(0), labels.unsqueeze(0))


def _upcast(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
