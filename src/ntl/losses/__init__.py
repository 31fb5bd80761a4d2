"""Losses on tokens and number tokens, as pure functions of tensors.

Every loss is `f(logits, labels, number_vocab, *, ignore_index=-100, reduction="mean", ...)` of logits (..., V) and
labels (...), or (..., T, V) and (..., T) where digits make numbers. No loss shifts the labels: for a decoder,
`logits[..., t, :]` must already be the prediction of `labels[..., t]`. Half-precision inputs are computed and returned
in float32; float32 and float64 inputs keep their type. Positions that do not count are dropped before anything is
computed on them, so that NaN or inf in their logits reaches neither the loss nor the gradient.

Number losses count the positions whose label is a number, cross-entropies all labels. A row whose number logits are all
-inf counts as uniform among them, and has no gradient. A loss says where it differs.

Reductions: "sum" adds the losses of the positions that count. "mean" divides this sum by the number of these positions,
or by 1 if there are none: it is then an exact 0 that still has a graph. "none" returns a tensor of the shape of
`labels`, with 0 at positions that do not count. `count_labels` and `count_number_labels` return the denominators.

`ce_ntl` computes cross-entropy and number loss together from logits, `linear_ce_ntl` from hidden states, in less time
and memory. `NumberTokenLoss` wraps both as a module for use with any trainer.

Shape suffixes in all modules: V vocabulary, K number tokens, D hidden size, N the positions that count, in the order of
the labels, M the positions whose label is a number.
"""

from typing import TYPE_CHECKING

from ntl.system import exports

if TYPE_CHECKING:
    from ntl.losses.categorical import cross_entropy as cross_entropy
    from ntl.losses.categorical import digit_cross_entropy as digit_cross_entropy
    from ntl.losses.categorical import gaussian_cross_entropy as gaussian_cross_entropy
    from ntl.losses.categorical import gaussian_target as gaussian_target
    from ntl.losses.cdf import ntl_crps as ntl_crps
    from ntl.losses.cdf import ntl_was_cdf as ntl_was_cdf
    from ntl.losses.digit_positions import count_numbers as count_numbers
    from ntl.losses.digit_positions import ntl_number_level as ntl_number_level
    from ntl.losses.digit_positions import place_weighted as place_weighted
    from ntl.losses.joint import ce_ntl as ce_ntl
    from ntl.losses.joint import linear_ce_ntl as linear_ce_ntl
    from ntl.losses.lp import ntl_huber as ntl_huber
    from ntl.losses.lp import ntl_mae as ntl_mae
    from ntl.losses.lp import ntl_mse as ntl_mse
    from ntl.losses.lp import squared_error as squared_error
    from ntl.losses.module import NumberTokenLoss as NumberTokenLoss
    from ntl.losses.related_losses import digit_entropy as digit_entropy
    from ntl.losses.related_losses import dist2 as dist2
    from ntl.losses.related_losses import emo as emo
    from ntl.losses.related_losses import ntil as ntil
    from ntl.losses.related_losses import smmd as smmd
    from ntl.losses.rows import count_labels as count_labels
    from ntl.losses.rows import count_number_labels as count_number_labels
    from ntl.losses.sums import JointLoss as JointLoss
    from ntl.losses.trainer import NumberTokenLossMixin as NumberTokenLossMixin
    from ntl.losses.wasserstein import euclidean_cost as euclidean_cost
    from ntl.losses.wasserstein import ntl_was as ntl_was
    from ntl.losses.wasserstein import ntl_was_vocab as ntl_was_vocab
    from ntl.losses.wasserstein import squashed_cost as squashed_cost

__getattr__, __all__ = exports(__name__, __file__)
