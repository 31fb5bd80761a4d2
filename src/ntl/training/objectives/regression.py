"""One output for a sequence, against the number that its answer is.

Shapes: B batch, S sequence length.
"""

import torch
from torch import nn
from transformers import PreTrainedModel

from ntl.config.objective import RegressionConfig
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.parts import Parts
from ntl.training.objectives.terms import LossTerms


class Regression(nn.Module):
    """The squared error of a sequence-classification model with one label (paper, Table 4): no token is predicted."""

    takes_counts = False

    def __init__(
        self,
        config: RegressionConfig,
        *,
        model: PreTrainedModel,
        terms: LossTerms,
        number_vocab: NumberVocabulary | None = None,
    ) -> None:
        super().__init__()
        self.config = model.config
        self.model = model
        self.terms = terms
        self.squared_error = terms.number_term()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Parts:
        """Sums and counts; CE has none.

        Args:
            input_ids: (B, S).
            attention_mask: Like ``input_ids``.
            labels: (B,) float, the answers' values in their own unit.
        """
        outputs_B = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits.squeeze(-1)
        errors_B = self.squared_error(outputs_B, labels, reduction="none")
        none_B, one_B = torch.zeros_like(errors_B), torch.ones_like(labels, dtype=torch.int64)
        parts = Parts(none_B, none_B.long(), errors_B, one_B, none_B)
        return Parts(*(part.sum() for part in parts)) if self.training else parts

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """(2,): how many labels CE and the squared error count."""
        return torch.tensor([0, labels.numel()], device=labels.device)
