"""Objectives of models with a number head, which predict a value, with or without a token.

Shapes: B batch, S sequence length.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from ntl.config.loss import ObjectiveConfig, RegressionConfig
from ntl.losses import JointLoss
from ntl.losses.kinds import Terms
from ntl.losses.sums import SumCount
from ntl.models.interface import target_scale
from ntl.models.xval import XValForMaskedNumber
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.terms import number_term

# A mean or a spread of the answers from which a head that begins near 0 takes most of a short run to get there.
FAR_FROM_ZERO = 20.0


def scale_targets(
    model_config: Any, objective: RegressionConfig, targets: np.ndarray, say: Callable[[str], None]
) -> None:
    """Write the mean and the spread of the training answers (N,) to a model's config, where the objective wants it.

    Else ``say`` what is far from the 0 at which a head begins.
    """
    mean, sd = float(targets.mean()), float(targets.std())
    if objective.standardize:
        model_config.update({"target_mean": mean, "target_sd": sd or 1.0})
    elif max(abs(mean), sd) > FAR_FROM_ZERO:
        say(
            f"The training answers have a mean of {mean:.4g} and a standard deviation of {sd:.4g}, and a head begins "
            "near 0: objective.standardize=true takes both out."
        )


class _NumberHead(nn.Module):
    """Base class; the number term is a function of predictions and targets (B,), such as ``squared_error``."""

    def __init__(
        self,
        config: ObjectiveConfig,
        *,
        model: PreTrainedModel | XValForMaskedNumber,
        terms: Terms,
        number_vocab: NumberVocabulary | None = None,
    ) -> None:
        super().__init__()
        self.config = model.config
        self.model = model
        self.terms = terms
        self.squared_error = number_term(terms)

    def _joint(
        self,
        ce_B: torch.Tensor,
        labelled_B: torch.Tensor,
        errors_B: torch.Tensor,
        one_B: torch.Tensor,
        counts: torch.Tensor | None,
    ) -> JointLoss:
        parts = (ce_B, labelled_B, errors_B, one_B, torch.zeros_like(ce_B))
        ce, labelled, errors, one, none = (part.sum() for part in parts) if self.training else parts
        over = None if counts is None else (counts[0], counts[1])
        return JointLoss.of(SumCount(ce, labelled), SumCount(errors, one), none, self.terms.weight, over)


class Regression(_NumberHead):
    """Squared error of a sequence-classification model with one label (paper, Table 4); it predicts no token."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor,
        counts: torch.Tensor | None = None,
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total; CE is 0 with a count of 0.

        Args:
            input_ids: (B, S).
            attention_mask: Like ``input_ids``.
            labels: (B,) float, the answers' values in their own unit.
            counts: (2,), the denominators of the total; by default those of this batch.
        """
        outputs_B = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits.squeeze(-1)
        mean, unit = target_scale(self.config)
        errors_B = self.squared_error(outputs_B, (labels - mean) / unit, reduction="none")
        none_B, one_B = torch.zeros_like(errors_B), torch.ones_like(labels, dtype=torch.int64)
        return self._joint(none_B, none_B.long(), errors_B, one_B, counts)

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """Return how many labels CE and the squared error count, (2,)."""
        return torch.tensor([0, labels.numel()], device=labels.device)


class MaskedNumber(_NumberHead):
    """Prediction of the answer's last number, which is masked (Golkar et al., 2023).

    The loss is the CE of the token head plus the squared error of the number head, both at the mask alone.
    """

    def forward(
        self,
        labels: torch.Tensor,
        number_labels: torch.Tensor,
        counts: torch.Tensor | None = None,
        **inputs: torch.Tensor,
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total.

        Args:
            labels: (B,), the token that was masked.
            number_labels: (B,) float, its value on the scale of the inputs, sign(x) ln(1 + |x|).
            counts: (2,), the denominators of the total; by default those of this batch.
            inputs: The inputs of ``XValForMaskedNumber``.
        """
        output = self.model(**inputs)
        ce_B = self.terms.base(output.logits, labels, reduction="none")
        errors_B = self.squared_error(output.numbers, number_labels, reduction="none")
        one_B = torch.ones_like(labels)
        return self._joint(ce_B, one_B, errors_B, one_B, counts)

    def count(self, labels: torch.Tensor) -> torch.Tensor:
        """Return how many labels CE and the squared error count, (2,)."""
        return torch.full((2,), labels.numel(), device=labels.device)
