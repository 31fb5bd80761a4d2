"""The answer's last number is masked; its token and its value are predicted.

Shapes: B batch, S sequence length, V vocabulary.
"""

import torch
from torch import nn

from ntl.config.objective import MaskedNumberConfig
from ntl.models.xval import XValForMaskedNumber
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.parts import Parts
from ntl.training.objectives.terms import LossTerms


class MaskedNumber(nn.Module):
    """CE of the token head plus the squared error of the number head, both at the mask alone (Golkar et al., 2023)."""

    takes_counts = False

    def __init__(
        self,
        config: MaskedNumberConfig,
        *,
        model: XValForMaskedNumber,
        terms: LossTerms,
        number_vocab: NumberVocabulary | None = None,
    ) -> None:
        super().__init__()
        self.config = model.config
        self.model = model
        self.terms = terms
        self.squared_error = terms.number_term()

    def forward(self, labels: torch.Tensor, number_labels: torch.Tensor, **inputs: torch.Tensor) -> Parts:
        """Sums and counts of both terms.

        Args:
            labels: (B,), the token that was masked.
            number_labels: (B,) float, its value on the scale of the inputs, sign(x) ln(1 + |x|).
            inputs: What ``XValForMaskedNumber`` reads.
        """
        output = self.model(**inputs)
        ce_B = self.terms.base(output.logits, labels, reduction="none")
        errors_B = self.squared_error(output.numbers, number_labels, reduction="none")
        one_B = torch.ones_like(labels)
        parts = Parts(ce_B, one_B, errors_B, one_B, torch.zeros_like(ce_B))
        return Parts(*(part.sum() for part in parts)) if self.training else parts

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """(2,): how many labels CE and the squared error count."""
        return torch.full((2,), labels.numel(), device=labels.device)
