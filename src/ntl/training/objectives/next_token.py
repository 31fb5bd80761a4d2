"""The paper's objective: every label is the next token.

Shapes: B batch, T target length, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ntl.config import UserError
from ntl.config.loss import Implementation
from ntl.config.objective import NextTokenConfig
from ntl.data.collate import IGNORE_INDEX
from ntl.losses import ntl_was
from ntl.losses.joint import is_faster, joint_loss
from ntl.losses.linear import Head, linear_joint_loss, linear_was
from ntl.models import embedding_rows
from ntl.models.interface import checked_lm_head, hidden_states, lm_head
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.parts import Joint, Parts
from ntl.training.objectives.terms import Loss, LossTerms
from ntl.training.ranks import is_sharded


class NextToken(nn.Module):
    """Wraps a model so that DDP and FSDP see the loss inside the forward they wrap."""

    takes_counts = True

    def __init__(
        self, config: NextTokenConfig, *, model: PreTrainedModel, terms: LossTerms, number_vocab: NumberVocabulary
    ) -> None:
        super().__init__()
        self.config = model.config
        self.model = model
        self.terms = terms
        self.number_vocab = number_vocab
        # A mixture of experts balances their load by a loss of its own.
        self.router_weight = getattr(model.config, "router_aux_loss_coef", 0.0)
        self._automatic: str | None = None
        chosen = terms.implementation
        if chosen in (Implementation.fused, Implementation.linear) and not terms.joint.knows:
            raise UserError(f"loss.implementation={chosen.name}: knows the losses of ntl.losses alone; take auto.")
        if chosen is Implementation.linear and self.router_weight:
            raise UserError("loss.implementation=linear: a mixture of experts needs its logits' forward; take fused.")

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        decoder_input_ids: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
    ) -> Parts | Joint:
        """Sums and counts of both terms, and in training, where an implementation computes both at once, their total.

        Args:
            input_ids: (B, S) or, for a decoder, (B, T).
            attention_mask: Like ``input_ids``.
            labels: (B, T), -100 where nothing is to be predicted; position t is what the logits at t predict, so
                that nothing is shifted here (``ntl.data.collate`` did it).
            decoder_input_ids: (B, T) for an encoder-decoder.
            counts: (2,), the denominators of the total.
        """
        how = self._implementation(input_ids.device) if self.training and counts is not None else "reference"
        if how == "linear":
            hidden_BTD = hidden_states(self.model, input_ids, attention_mask, decoder_input_ids)
            head = Head(*lm_head(self.model))
            joint = self._total(partial(linear_joint_loss, head=head), hidden_BTD, labels, counts)
            return self._with_diagnostic(joint, partial(linear_was, hidden_BTD, head), labels)
        decoder = {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **decoder, **self._of_experts()
        )
        logits_BTV = output.logits
        if how == "fused":
            joint = self._total(joint_loss, logits_BTV, labels, counts)
            parts, total = self._with_diagnostic(joint, partial(ntl_was, logits_BTV, reduction="sum"), labels)
            router = self._router_loss(output, parts.ce_sum) * parts.ce_count
            return Joint(parts._replace(aux_sum=router), total)
        number_vocab = self._number_vocab_on(logits_BTV.device)
        ce_sum = self._sum(self.terms.base, logits_BTV, labels, number_vocab)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.terms.number is not None):
            ntl_sum = self._sum(self.terms.number or ntl_was, logits_BTV, labels, number_vocab)
        if self.training:
            count, number_count = self.count(labels)
            return Parts(ce_sum, count, ntl_sum, number_count, self._router_loss(output, ce_sum) * count)
        labelled_B, numbers_B = (counted.sum(-1) for counted in self._counted(labels))
        return Parts(ce_sum, labelled_B, ntl_sum, numbers_B, torch.zeros_like(ce_sum))

    def _implementation(self, device: torch.device) -> str:
        chosen = self.terms.implementation
        if chosen is not Implementation.auto:
            return chosen.name
        if self._automatic is None:
            self._automatic = "linear" if self._linear_is_faster(device) else "reference"
        return self._automatic

    def _linear_is_faster(self, device: torch.device) -> bool:
        if self.router_weight or not self.terms.joint.knows or is_sharded(self.model):
            return False
        if not is_faster(device, embedding_rows(self.model)):
            return False
        try:
            checked_lm_head(self.model)
        except UserError:  # its logits are made in another way
            return False
        return True

    def _total(self, loss: Any, of: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor | None) -> Joint:
        assert counts is not None
        vocab = self._number_vocab_on(of.device)
        joint = loss(
            self.terms.joint,
            of,
            labels=labels,
            number_vocab=vocab,
            ignore_index=IGNORE_INDEX,
            counts=tuple(counts),
            implementation="fused",
        )
        ce_count, ntl_count = self.count(labels)
        none = torch.zeros_like(joint.base.sum)
        return Joint(Parts(joint.base.sum, ce_count, joint.number.sum, ntl_count, none), joint.total)

    def _with_diagnostic(self, joint: Joint, was: Callable[..., torch.Tensor], labels: torch.Tensor) -> Joint:
        if self.terms.number is not None:
            return joint
        with torch.no_grad():
            ntl_sum = was(labels=labels, number_vocab=self._number_vocab_on(labels.device), ignore_index=IGNORE_INDEX)
        return joint._replace(parts=joint.parts._replace(ntl_sum=ntl_sum))

    def _of_experts(self) -> dict[str, bool]:
        return {"output_router_logits": self.training} if self.router_weight else {}

    def _router_loss(self, output: Any, ce_sum: torch.Tensor) -> torch.Tensor:
        return self.router_weight * output.aux_loss if self.router_weight else torch.zeros_like(ce_sum)

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """(2,): how many labels CE and NTL count."""
        return torch.stack([counted.sum() for counted in self._counted(labels)])

    def _counted(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = self.terms.counted(labels, self._number_vocab_on(labels.device), IGNORE_INDEX)
        return labels != IGNORE_INDEX, numbers

    def _sum(self, loss: Loss, logits_BTV: torch.Tensor, labels: torch.Tensor, vocab: NumberVocabulary) -> torch.Tensor:
        if self.training:
            return loss(logits_BTV, labels, vocab, reduction="sum")
        return loss(logits_BTV, labels, vocab, reduction="none").sum(-1)

    def _number_vocab_on(self, device: torch.device) -> NumberVocabulary:
        if self.number_vocab.values.device != device:
            self.number_vocab = self.number_vocab.to(device)
        return self.number_vocab
