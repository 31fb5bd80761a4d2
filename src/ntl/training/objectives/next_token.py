"""The paper's objective: every label is the next token.

Shapes: B batch, T target length, V vocabulary.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ntl.config.objective import NextTokenConfig
from ntl.data.collate import IGNORE_INDEX
from ntl.losses.rows import is_number
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.parts import Parts
from ntl.training.objectives.terms import Loss, LossTerms


class NextToken(nn.Module):
    """Wraps a model so that DDP and FSDP see the loss inside the forward they wrap."""

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

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        decoder_input_ids: torch.Tensor | None = None,
    ) -> Parts:
        """Sums and counts of both terms.

        Args:
            input_ids: (B, S) or, for a decoder, (B, T).
            attention_mask: Like ``input_ids``.
            labels: (B, T), -100 where nothing is to be predicted; position t is what the logits at t predict, so
                that nothing is shifted here (``ntl.data.collate`` did it).
            decoder_input_ids: (B, T) for an encoder-decoder.
        """
        decoder = {} if decoder_input_ids is None else {"decoder_input_ids": decoder_input_ids}
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **decoder, **self._of_experts()
        )
        logits_BTV = output.logits
        number_vocab = self._number_vocab_on(logits_BTV.device)
        counted_BT, numbers_BT = self._counted(labels)
        ce_sum = self._sum(self.terms.base, logits_BTV, labels, number_vocab)
        if self.terms.number is None:
            ntl_sum = torch.zeros_like(ce_sum)
        else:
            ntl_sum = self._sum(self.terms.number, logits_BTV, labels, number_vocab)
        if self.training:
            count = counted_BT.sum()
            return Parts(ce_sum, count, ntl_sum, numbers_BT.sum(), self._router_loss(output, ce_sum) * count)
        return Parts(ce_sum, counted_BT.sum(-1), ntl_sum, numbers_BT.sum(-1), torch.zeros_like(ce_sum))

    def _of_experts(self) -> dict[str, bool]:
        return {"output_router_logits": self.training} if self.router_weight else {}

    def _router_loss(self, output: Any, ce_sum: torch.Tensor) -> torch.Tensor:
        return self.router_weight * output.aux_loss if self.router_weight else torch.zeros_like(ce_sum)

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """(2,): how many labels CE and NTL count."""
        return torch.stack([counted.sum() for counted in self._counted(labels)])

    def _counted(self, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = is_number(labels, self._number_vocab_on(labels.device), IGNORE_INDEX)
        return labels != IGNORE_INDEX, numbers

    def _sum(self, loss: Loss, logits_BTV: torch.Tensor, labels: torch.Tensor, vocab: NumberVocabulary) -> torch.Tensor:
        if self.training:
            return loss(logits_BTV, labels, vocab, reduction="sum")
        return loss(logits_BTV, labels, vocab, reduction="none").sum(-1)

    def _number_vocab_on(self, device: torch.device) -> NumberVocabulary:
        if self.number_vocab.values.device != device:
            self.number_vocab = self.number_vocab.to(device)
        return self.number_vocab
