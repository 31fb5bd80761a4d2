"""The objective of the paper: next-token prediction.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from ntl.config.loss import ObjectiveConfig
from ntl.data.collate import IGNORE_INDEX
from ntl.losses import JointLoss, ntl_was
from ntl.losses.diagnostics import diagnostic_sums
from ntl.losses.joint import is_faster, joint_loss, linear_number_rows
from ntl.losses.kinds import Terms
from ntl.losses.rows import NumberRows, number_rows
from ntl.losses.sums import SumCount, mean
from ntl.models import LMHead, embedding_rows
from ntl.models.interface import checked_lm_head, hidden_states, lm_head
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError
from ntl.training.weights import is_sharded


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
        self.number_vocab = number_vocab
        # A mixture of experts has a router loss, which balances the load of the experts.
        self.router_weight = getattr(model.config, "router_aux_loss_coef", 0.0)
        self.diagnosing = False
        self.diagnosed: torch.Tensor | None = None
        self._automatic: str | None = None
        chosen = terms.implementation
        if chosen in ("fused", "linear") and not terms.knows:
            raise UserError(f"loss.implementation={chosen}: supports only the losses of ntl.losses; use auto.")
        if chosen == "linear" and self.router_weight:
            raise UserError("loss.implementation=linear: does not support a mixture of experts; use fused.")

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        decoder_input_ids: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total.

        Without a number term (its weight is then 0), ``number`` is that of ``loss=ntl_was``, as a diagnostic without a
        graph.

        Args:
            input_ids, attention_mask: (B, S); for a decoder, (B, T).
            labels, decoder_input_ids: (B, T). Labels are shifted already, those at t are predicted at t, or -100.
            counts: (2,), the denominators of the total in training. If not given, they are the counts of this batch,
                and the implementation is ``reference``, as in evaluation.
        """
        how = self._implementation(input_ids.device) if self.training and counts is not None else "reference"
        if how == "linear":
            hidden_BTD = hidden_states(self.model, input_ids, attention_mask, decoder_input_ids)
            return self._from_hidden(hidden_BTD, labels, counts)
        more: dict[str, Any] = {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        more |= {"output_router_logits": self.training} if self.router_weight else {}
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **more)
        return self._from_logits(output.logits, labels, counts, how, output)

    def _from_hidden(self, hidden_BTD: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor | None) -> JointLoss:
        head = lm_head(self.model)
        joint = self._joint_loss(hidden_BTD, labels, counts, "linear", head)
        rows_of = partial(linear_number_rows, hidden_BTD, head)
        self._diagnose(rows_of, labels)
        return self._with_ntl_was(joint, rows_of, labels)

    def _from_logits(
        self, logits_BTV: torch.Tensor, labels: torch.Tensor, counts: torch.Tensor | None, how: str, output: Any = None
    ) -> JointLoss:
        rows_of = partial(number_rows, logits_BTV)
        self._diagnose(rows_of, labels)
        if how != "reference":
            joint = self._joint_loss(logits_BTV, labels, counts, how)
            joint = self._with_ntl_was(joint, rows_of, labels)
            aux_sum = self._router_loss(output, joint.base.sum) * joint.base.count
            total = joint.total + mean(aux_sum, cast(torch.Tensor, counts)[0])
            return joint._replace(total=total, aux_sum=aux_sum.detach())
        number_vocab, terms = self._number_vocab_on(logits_BTV.device), self.terms
        ce_sum = self._sum(terms.base, logits_BTV, labels, number_vocab)
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(terms.numbers)):
            ntl_sum = self._sum(terms.number if terms.numbers else ntl_was, logits_BTV, labels, number_vocab)
        if self.training:
            labelled, numbers = self._count(labels)
            aux_sum = self._router_loss(output, ce_sum) * labelled
        else:
            labelled, numbers = (mask.sum(-1) for mask in self._label_masks(labels))
            aux_sum, counts = torch.zeros_like(ce_sum), None
        over = None if counts is None else (counts[0], counts[1])
        return JointLoss.of(SumCount(ce_sum, labelled), SumCount(ntl_sum, numbers), aux_sum, terms.weight, over)

    def _implementation(self, device: torch.device) -> str:
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

    def _joint_loss(
        self, inputs: torch.Tensor, labels: torch.Tensor, counts: Any, how: str, head: LMHead | None = None
    ) -> JointLoss:
        joint = joint_loss(
            self.terms,
            inputs,
            labels,
            self._number_vocab_on(inputs.device),
            head=head,
            ignore_index=IGNORE_INDEX,
            counts=(counts[0], counts[1]),
            implementation=how,
        )
        # The total is divided by the given counts; the log needs the counts of this batch.
        labelled, numbers = self._count(labels)
        return joint._replace(base=SumCount(joint.base.sum, labelled), number=SumCount(joint.number.sum, numbers))

    @torch.no_grad()
    def _with_ntl_was(self, joint: JointLoss, rows_of: Callable[..., NumberRows], labels: torch.Tensor) -> JointLoss:
        if self.terms.numbers:
            return joint
        vocab = self._number_vocab_on(labels.device)
        total = ntl_was(rows_of(labels, vocab, IGNORE_INDEX), labels, vocab, reduction="sum")
        return joint._replace(number=SumCount(total, joint.number.count))

    def _diagnose(self, rows_of: Callable[..., NumberRows], labels: torch.Tensor) -> None:
        if self.diagnosing or not self.training:
            with torch.no_grad():
                rows = rows_of(labels, self._number_vocab_on(labels.device), IGNORE_INDEX)
            self.diagnosed = diagnostic_sums(rows, per_example=not self.training)

    def _router_loss(self, output: Any, ce_sum: torch.Tensor) -> torch.Tensor:
        return self.router_weight * output.aux_loss if self.router_weight else torch.zeros_like(ce_sum)

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """Return how many labels CE and NTL count, (2,)."""
        return self._count(labels)

    def _count(self, labels: torch.Tensor) -> torch.Tensor:
        return torch.stack([mask.sum() for mask in self._label_masks(labels)])

    def _label_masks(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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
