"""The objective of the paper, next-token prediction: a model and a `NumberTokenLoss` in one module.

Shapes: B batch, S source length, T target length.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ntl.config.loss import LossConfig, ObjectiveConfig
from ntl.losses import JointLoss, NumberTokenLoss, ntl_was, squashed_cost
from ntl.losses.joint import is_faster, linear_number_rows, summed, triton_kernel
from ntl.losses.registry import named
from ntl.losses.rows import IGNORE_INDEX, LOSS_WEIGHTS, checked_weights, number_rows
from ntl.losses.sums import SumCount, diagnostic_sums, mean
from ntl.models import LMHead, embedding_rows
from ntl.models.interface import checked_lm_head, hidden_states, is_sharded, lm_head
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError


def loss_of(config: LossConfig, number_vocab: NumberVocabulary, known: Mapping[str, Any]) -> NumberTokenLoss:
    """Build the loss of labels that are shifted already.

    ``known`` are values of options that no config can name, such as the output layer. UserError: the kind lacks an
    option, or is not of the implementation.
    """
    needed = {option for name in config.kind.split("+") for option in named(name).required}
    options = {name: value for name, value in known.items() if name in needed} | config.options
    if config.squash is not None:
        options["cost"] = squashed_cost(number_vocab.token_values, config.squash)
    how: dict[str, Any] = {"kind": config.kind, "weight": config.weight}
    how["implementation"] = config.implementation.replace("linear", "fused")  # NextToken has the hidden states
    try:
        return NumberTokenLoss(number_vocab, shift=False, **how, **options)
    except ValueError as error:
        raise UserError(f"loss={config.name}: {error}.") from error


class NextToken(nn.Module):
    """A language model and its loss in one forward, so that DDP and FSDP wrap both together.

    Attributes:
        diagnosing: Whether a forward in training computes `diagnostic_sums`, too; one in evaluation always does.
        diagnosed: Those of the last such forward, (4,) in training and (B, 4) in evaluation.
    """

    loss: NumberTokenLoss

    def __init__(
        self, config: ObjectiveConfig, *, model: PreTrainedModel, loss: NumberTokenLoss, implementation: str = "auto"
    ) -> None:
        super().__init__()
        self.config, self.model, self.chosen = model.config, model, implementation
        vars(self)["loss"] = loss  # no submodule: it moves by itself, and has nothing to shard
        self.number_weight = loss.terms.weight
        # A mixture of experts has a router loss, which balances the load of the experts.
        self.router_weight = getattr(model.config, "router_aux_loss_coef", 0.0)
        self.diagnosing = False
        self.diagnosed: Tensor | None = None
        self._automatic: str | None = None
        if implementation == "linear" and self.router_weight:
            raise UserError("loss.implementation=linear: does not support a mixture of experts; use fused.")

    def forward(
        self, labels: Tensor, counts: Tensor | None = None, loss_weights: Tensor | None = None, **inputs: Any
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total; in evaluation of each row, (B,).

        Without a number term (its weight is then 0), ``number`` is NTL-WAS, as a diagnostic without a graph.

        Args:
            labels: (B, T), shifted already: those at t are predicted at t, or -100.
            counts: (2,), the denominators of the total in training. If not given, they are the counts of this batch,
                and the implementation is ``reference``, as in evaluation.
            loss_weights: (B, T) or (B, T, 2), as of ``ntl.losses.ce_ntl``; the counts are then sums of weights.
            inputs: Those of the model, ``input_ids`` and ``attention_mask`` (B, S), of an encoder-decoder also
                ``decoder_input_ids`` (B, T).
        """
        how = self.implementation(labels.device) if self.training and counts is not None else "reference"
        if how == "linear":
            hidden_BTD = hidden_states(self.model, **inputs)
            return self._joint(hidden_BTD, labels, counts, loss_weights, how, lm_head(self.model))
        router = {"output_router_logits": self.training} if self.router_weight else {}
        output = self.model(**{"use_cache": False, **inputs}, **router)
        joint = self._joint(output.logits, labels, counts, loss_weights, how)
        if not (self.router_weight and self.training):
            return joint
        aux_sum = self.router_weight * output.aux_loss * joint.base.count
        total = joint.total + mean(aux_sum, joint.base.count if counts is None else counts[0])
        return joint._replace(total=total, aux_sum=aux_sum.detach())

    def implementation(self, device: torch.device) -> str:
        if self.chosen == "triton":
            try:
                triton_kernel(device)
            except ValueError as error:
                raise UserError(f"loss.{error}.") from error
        if self.chosen != "auto":
            return self.chosen
        if self._automatic is None:
            is_plain = self.loss.terms.knows and not self.router_weight and not is_sharded(self.model)
            self._automatic = "reference"
            if is_plain and is_faster(device, embedding_rows(self.model)):
                with suppress(UserError):  # the model does not compute its logits by a plain linear head
                    checked_lm_head(self.model)
                    self._automatic = "linear"
        return self._automatic

    def _joint(
        self, inputs: Tensor, labels: Tensor, counts: Any, weights: Tensor | None, how: str, head: LMHead | None = None
    ) -> JointLoss:
        """Compute both terms of logits, or of the hidden states (B, T, D) that ``head`` reads."""
        per_row = not self.training
        given = {"loss_weights": weights, "num_items_in_batch": None if per_row else counts}
        joint = self.loss.parts(inputs, labels, **given, per_row=per_row, implementation=how, head=head)
        rows_of = partial(number_rows, inputs) if head is None else partial(linear_number_rows, inputs, head)
        with torch.no_grad():
            self._diagnose(rows_of, labels)
            return joint if self.loss.terms.numbers else joint._replace(number=self._was(rows_of, labels, weights))

    def _diagnose(self, rows_of: Any, labels: Tensor) -> None:
        if self.diagnosing or not self.training:
            rows = rows_of(labels, self.loss.number_vocab, IGNORE_INDEX)
            self.diagnosed = diagnostic_sums(rows, per_example=not self.training)

    def _was(self, rows_of: Any, labels: Tensor, weights: Tensor | None) -> SumCount:
        """Return sum and count of ``ntl_was``, in evaluation of each row."""
        vocab, per_row = self.loss.number_vocab, not self.training
        checked = checked_weights(weights, vocab.token_values, labels, IGNORE_INDEX)
        rows, counted = rows_of(labels, vocab, IGNORE_INDEX), self.loss.counted(labels, weights)[1]
        total = summed(ntl_was, rows, labels, vocab, IGNORE_INDEX, checked[1] if checked else None, per_row)
        return SumCount(total.sum(-1), counted.sum(-1)) if per_row else SumCount(total, counted.sum())

    def count(self, labels: Tensor, loss_weights: Tensor | None = None) -> Tensor:
        """Return how many labels CE and NTL count, (2,), or the sums of their weights."""
        return self.loss.counts({"labels": labels, LOSS_WEIGHTS: loss_weights})
