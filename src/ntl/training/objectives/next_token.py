"""The paper's objective: every label is the next token.

Shapes: B batch, T target length, V vocabulary.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ntl.config.loss import NextTokenConfig
from ntl.data.collate import IGNORE_INDEX
from ntl.losses import JointLoss, ntl_was
from ntl.losses.fused.joint import is_faster, joint_loss, triton_pass_for
from ntl.losses.fused.linear import linear_joint_loss, linear_was
from ntl.losses.fused.terms import Terms
from ntl.losses.sums import SumCount, mean
from ntl.models import embedding_rows
from ntl.models.interface import checked_lm_head, hidden_states, lm_head
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError
from ntl.training.ranks import is_sharded


class NextToken(nn.Module):
    """Wraps a model so that DDP and FSDP see the loss inside the forward they wrap."""

    def __init__(
        self, config: NextTokenConfig, *, model: PreTrainedModel, terms: Terms, number_vocab: NumberVocabulary
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
        if chosen in ("fused", "linear", "triton") and not terms.knows:
            raise UserError(f"loss.implementation={chosen}: knows the losses of ntl.losses alone; take auto.")
        if chosen == "linear" and self.router_weight:
            raise UserError("loss.implementation=linear: a mixture of experts needs its logits' forward; take fused.")
        if chosen == "triton":
            self._check_triton(torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        decoder_input_ids: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
    ) -> JointLoss:
        """Sums and counts of both terms, and their total.

        Where the loss has no number term, and so the weight 0, ``number`` is a diagnostic without a graph: that of
        ``loss=ntl_was``.

        Args:
            input_ids: (B, S) or, for a decoder, (B, T).
            attention_mask: Like ``input_ids``.
            labels: (B, T), -100 where nothing is to be predicted; position t is what the logits at t predict, so
                that nothing is shifted here (``ntl.data.collate`` did it).
            decoder_input_ids: (B, T) for an encoder-decoder.
            counts: (2,), the denominators of the total in training. Without them they are those of this batch, and the
                implementation is ``reference``, as it is in evaluation.
        """
        how = self._implementation(input_ids.device) if self.training and counts is not None else "reference"
        if how == "linear":
            hidden_BTD = hidden_states(self.model, input_ids, attention_mask, decoder_input_ids)
            head = lm_head(self.model)
            joint = self._at_once(partial(linear_joint_loss, head=head), hidden_BTD, labels, counts, how)
            return self._with_diagnostic(joint, partial(linear_was, hidden_BTD, head), labels)
        decoder = {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **decoder, **self._of_experts()
        )
        logits_BTV = output.logits
        if how != "reference":
            assert counts is not None
            joint = self._at_once(joint_loss, logits_BTV, labels, counts, how)
            joint = self._with_diagnostic(joint, partial(ntl_was, logits_BTV, reduction="sum"), labels)
            aux_sum = self._router_loss(output, joint.base.sum) * joint.base.count
            return joint._replace(total=joint.total + mean(aux_sum, counts[0]), aux_sum=aux_sum.detach())
        number_vocab, terms = self._number_vocab_on(logits_BTV.device), self.terms
        ce_sum = self._sum(terms.base, logits_BTV, labels, number_vocab)
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(terms.numbers)):
            ntl_sum = self._sum(terms.number if terms.numbers else ntl_was, logits_BTV, labels, number_vocab)
        if self.training:
            labelled, numbers = self.count(labels)
            aux_sum, over = self._router_loss(output, ce_sum) * labelled, counts
        else:
            labelled, numbers = (counted.sum(-1) for counted in self._counted(labels))
            aux_sum, over = torch.zeros_like(ce_sum), None
        over = None if over is None else (over[0], over[1])
        return JointLoss.of(SumCount(ce_sum, labelled), SumCount(ntl_sum, numbers), aux_sum, terms.weight, over)

    def _implementation(self, device: torch.device) -> str:
        chosen = self.terms.implementation
        if chosen == "triton":
            self._check_triton(device)
        if chosen != "auto":
            return chosen
        if self._automatic is None:
            self._automatic = "linear" if self._linear_is_faster(device) else "reference"
        return self._automatic

    def _check_triton(self, device: torch.device) -> None:
        try:
            triton_pass_for(device)
        except ValueError as error:
            raise UserError(f"loss.{error}, or auto.") from None

    def _linear_is_faster(self, device: torch.device) -> bool:
        if self.router_weight or not self.terms.knows or is_sharded(self.model):
            return False
        if not is_faster(device, embedding_rows(self.model)):
            return False
        try:
            checked_lm_head(self.model)
        except UserError:  # its logits are made in another way
            return False
        return True

    def _at_once(
        self, loss: Any, of: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor | None, how: str
    ) -> JointLoss:
        assert counts is not None
        joint = loss(
            self.terms,
            of,
            labels=labels,
            number_vocab=self._number_vocab_on(of.device),
            ignore_index=IGNORE_INDEX,
            counts=tuple(counts),
            implementation=how,
        )
        # The total is over the counts that were given; what is logged are those of this batch.
        labelled, numbers = self.count(labels)
        return joint._replace(base=SumCount(joint.base.sum, labelled), number=SumCount(joint.number.sum, numbers))

    def _with_diagnostic(self, joint: JointLoss, was: Callable[..., torch.Tensor], labels: torch.Tensor) -> JointLoss:
        if self.terms.numbers:
            return joint
        with torch.no_grad():
            ntl_sum = was(labels=labels, number_vocab=self._number_vocab_on(labels.device), ignore_index=IGNORE_INDEX)
        return joint._replace(number=SumCount(ntl_sum, joint.number.count))

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

    def _sum(
        self, loss: Callable[..., torch.Tensor], logits_BTV: torch.Tensor, labels: torch.Tensor, vocab: NumberVocabulary
    ) -> torch.Tensor:
        if self.training:
            return loss(logits_BTV, labels, vocab, reduction="sum")
        return loss(logits_BTV, labels, vocab, reduction="none").sum(-1)

    def _number_vocab_on(self, device: torch.device) -> NumberVocabulary:
        if self.number_vocab.values.device != device:
            self.number_vocab = self.number_vocab.to(device)
        return self.number_vocab
