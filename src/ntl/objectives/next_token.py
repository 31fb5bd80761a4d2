"""The objective of the paper, next-token prediction, and the loss terms that a config names.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ntl.config.kinds import SQUARED_ERROR
from ntl.config.loss import LossConfig, ObjectiveConfig
from ntl.losses import JointLoss, ce_ntl, cross_entropy, ntl_was, squared_error, squashed_cost
from ntl.losses.joint import is_faster, linear_number_rows, summed
from ntl.losses.kinds import Terms, fast_kinds, named
from ntl.losses.rows import IGNORE_INDEX, NumberRows, checked_weights, number_rows
from ntl.losses.sums import SumCount, diagnostic_sums, mean
from ntl.models import LMHead, embedding_rows
from ntl.models.interface import checked_lm_head, hidden_states, is_sharded, lm_head
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError


def terms_of(
    config: LossConfig, number_vocab: NumberVocabulary | None, known: Mapping[str, Any] | None = None
) -> Terms:
    """Build the loss terms. ``known`` are values of options that no config can name, such as the output layer.

    UserError: the kind lacks an option.
    """
    if config.kind == SQUARED_ERROR:
        return Terms(partial(cross_entropy), (partial(squared_error),), config.weight)
    needed = {option for each in config.kind.split("+") for option in named(each).required}
    options = {name: value for name, value in (known or {}).items() if name in needed} | config.options
    if config.squash is not None and number_vocab is not None:
        options["cost"] = squashed_cost(number_vocab.token_values, config.squash)
    try:
        return replace(Terms.of(config.kind, config.weight, options), implementation=config.implementation)
    except ValueError as error:
        raise UserError(f"loss={config.name}: {error}.") from error


class NextToken(nn.Module):
    """Next-token prediction with CE and a number loss.

    The loss is computed in the forward, so that DDP and FSDP wrap model and loss together.

    Attributes:
        diagnosing: Whether a forward in training computes `diagnostic_sums`, too; one in evaluation always does.
        diagnosed: Those of the last such forward, (4,) in training and (B, 4) in evaluation.
    """

    def __init__(
        self, config: ObjectiveConfig, *, model: PreTrainedModel, terms: Terms, number_vocab: NumberVocabulary
    ) -> None:
        super().__init__()
        self.config = model.config
        self.model = model
        self.terms = terms
        self.number_weight = terms.weight  # that of the number term in the total
        self.number_vocab = number_vocab
        # A mixture of experts has a router loss, which balances the load of the experts.
        self.router_weight = getattr(model.config, "router_aux_loss_coef", 0.0)
        self.diagnosing = False
        self.diagnosed: Tensor | None = None
        self._automatic: str | None = None
        chosen = terms.implementation
        if chosen in ("fused", "linear") and not terms.knows:
            raise UserError(f"loss.implementation={chosen}: is for the kinds of loss {fast_kinds()}; use auto.")
        if chosen == "linear" and self.router_weight:
            raise UserError("loss.implementation=linear: does not support a mixture of experts; use fused.")

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        labels: Tensor,
        decoder_input_ids: Tensor | None = None,
        counts: Tensor | None = None,
        loss_weights: Tensor | None = None,
        given: Mapping[str, Any] | None = None,
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total.

        Without a number term (its weight is then 0), ``number`` is that of ``loss=ntl_was``, as a diagnostic without a
        graph.

        Args:
            input_ids, attention_mask: (B, S); for a decoder, (B, T).
            labels, decoder_input_ids: (B, T). Labels are shifted already, those at t are predicted at t, or -100.
            counts: (2,), the denominators of the total in training. If not given, they are the counts of this batch,
                and the implementation is ``reference``, as in evaluation.
            loss_weights: (B, T) or (B, T, 2), as of ``ntl.losses.ce_ntl``; the counts are then sums of weights.
            given: Further inputs of the model.
        """
        how = self.implementation(input_ids.device) if self.training and counts is not None else "reference"
        if how == "linear":
            hidden_BTD = hidden_states(self.model, input_ids, attention_mask, decoder_input_ids, **(given or {}))
            return self._joint(hidden_BTD, labels, counts, loss_weights, how, lm_head(self.model))
        more: dict[str, Any] = {"use_cache": False, **(given or {})}
        more |= {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        more |= {"output_router_logits": self.training} if self.router_weight else {}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, **more)
        router_loss = self.router_weight * output.aux_loss if self.router_weight and self.training else None
        return self._joint(output.logits, labels, counts, loss_weights, how, router_loss=router_loss)

    def implementation(self, device: torch.device) -> str:
        chosen = self.terms.implementation
        if chosen != "auto":
            return chosen
        if self._automatic is None:
            is_plain = self.terms.knows and not self.router_weight and not is_sharded(self.model)
            self._automatic = "reference"
            if is_plain and is_faster(device, embedding_rows(self.model)):
                with suppress(UserError):  # the model does not compute its logits by a plain linear head
                    checked_lm_head(self.model)
                    self._automatic = "linear"
        return self._automatic

    def _joint(
        self,
        inputs: Tensor,
        labels: Tensor,
        counts: Any,
        weights: Tensor | None,
        how: str,
        head: LMHead | None = None,
        router_loss: Tensor | None = None,
    ) -> JointLoss:
        """Compute both terms by `ce_ntl`: of logits, or of the hidden states (B, T, D) that ``head`` reads."""
        rows_of = partial(number_rows, inputs) if head is None else partial(linear_number_rows, inputs, head)
        self._diagnose(rows_of, labels)
        vocab, each = self._number_vocab_on(labels.device), not self.training
        how_to: dict[str, Any] = {"kind": self.terms, "head": head, "loss_weights": weights, "implementation": how}
        how_to |= {"reduction": "none"} if each else {}
        how_to |= {} if each or counts is None else {"base_count": counts[0], "number_count": counts[1]}
        joint = ce_ntl(inputs, labels, vocab, **how_to)
        number_sum = joint.number.sum
        if not self.terms.numbers:
            of_labels = checked_weights(weights, vocab.token_values, labels, IGNORE_INDEX)
            with torch.no_grad():
                rows, own = rows_of(labels, vocab, IGNORE_INDEX), of_labels[1] if of_labels else None
                number_sum = summed(ntl_was, rows, labels, vocab, IGNORE_INDEX, own, each)
        if each:
            parts = (joint.base.sum, number_sum, *self._counted(labels, weights))
            ce, ntl, labelled, numbers = (part.sum(-1) for part in parts)
            return JointLoss.of(SumCount(ce, labelled), SumCount(ntl, numbers), torch.zeros_like(ce), self.terms.weight)
        # The total is divided by the given counts; the log needs the counts of this batch.
        labelled, numbers = NextToken.count(self, labels, weights)
        joint = joint._replace(base=SumCount(joint.base.sum, labelled), number=SumCount(number_sum, numbers))
        if router_loss is None:
            return joint
        aux_sum = router_loss * labelled
        total = joint.total + mean(aux_sum, labelled if counts is None else counts[0])
        return joint._replace(total=total, aux_sum=aux_sum.detach())

    def _diagnose(self, rows_of: Callable[..., NumberRows], labels: Tensor) -> None:
        if self.diagnosing or not self.training:
            with torch.no_grad():
                rows = rows_of(labels, self._number_vocab_on(labels.device), IGNORE_INDEX)
            self.diagnosed = diagnostic_sums(rows, per_example=not self.training)

    def count(self, labels: Tensor, loss_weights: Tensor | None = None) -> Tensor:
        """Return how many labels CE and NTL count, (2,), or the sums of their weights."""
        return torch.stack([each.sum() for each in self._counted(labels, loss_weights)])

    def _counted(self, labels: Tensor, loss_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what each position counts in the denominators of CE and NTL, (B, T) each."""
        vocab = self._number_vocab_on(labels.device)
        weights = checked_weights(loss_weights, vocab.token_values, labels, IGNORE_INDEX)
        return self.terms.counts(labels, vocab, IGNORE_INDEX, weights)

    def _number_vocab_on(self, device: torch.device) -> NumberVocabulary:
        if self.number_vocab.values.device != device:
            self.number_vocab, self.terms = self.number_vocab.to(device), self.terms.to(device)
        return self.number_vocab
