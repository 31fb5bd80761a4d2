"""Objectives of models with a number head, which predict a value, with or without a token.

Shapes: B batch, S sequence length.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ntl.config.loss import ObjectiveConfig, RegressionConfig
from ntl.losses import JointLoss, cross_entropy, squared_error
from ntl.losses.sums import SumCount
from ntl.models.interface import target_scale
from ntl.system.messages import logger

# A mean or a spread of the answers from which a head that begins near 0 takes most of a short run to get there.
FAR_FROM_ZERO = 20.0


def scale_targets(model_config: Any, objective: RegressionConfig, targets: np.ndarray) -> None:
    """Write the mean and the spread of the training answers (N,) to a model's config, where the objective wants it.

    Else warn of what is far from the 0 at which a head begins.
    """
    mean, sd = float(targets.mean()), float(targets.std())
    if objective.standardize:
        model_config.update({"target_mean": mean, "target_sd": sd or 1.0})
    elif max(abs(mean), sd) > FAR_FROM_ZERO:
        logger.warning(
            f"The training answers have a mean of {mean:.4g} and a standard deviation of {sd:.4g}, and a head begins "
            "near 0: objective.standardize=true takes both out."
        )


class _NumberHead(nn.Module):
    """Base class; the number term is `squared_error` of predictions and targets (B,), times ``weight``.

    ``labels`` (B,) and ``counts`` (2,), the denominators of the total, are as of `NextToken`: the counts are by
    default the batch's.
    """

    predicts_tokens = True

    def __init__(self, config: ObjectiveConfig, *, model: PreTrainedModel, weight: float) -> None:
        super().__init__()
        self.config, self.model, self.number_weight = model.config, model, weight

    def _joint(self, ce_B: Tensor, labelled_B: Tensor, errors_B: Tensor, counts: Tensor | None) -> JointLoss:
        parts = (ce_B, labelled_B, errors_B, torch.ones_like(labelled_B), torch.zeros_like(ce_B))
        ce, labelled, errors, count, none = (part.sum() for part in parts) if self.training else parts
        return JointLoss.of(SumCount(ce, labelled), SumCount(errors, count), none, self.number_weight, counts)

    def count(self, labels: Tensor) -> Tensor:
        """Return how many labels CE and the squared error count, (2,)."""
        count = torch.full((), labels.numel(), device=labels.device)  # a copy from the host would wait for a GPU
        return torch.stack([count * self.predicts_tokens, count])


class Regression(_NumberHead):
    """Squared error of a sequence-classification model with one label (paper, Table 4); it predicts no token."""

    predicts_tokens = False

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor, counts: Tensor | None = None
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total; CE is 0 with a count of 0.

        ``input_ids`` and ``attention_mask`` are (B, S), ``labels`` float: the answers' values in their own unit.
        """
        outputs_B = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits.squeeze(-1)
        mean, unit = target_scale(self.config)
        errors_B = squared_error(outputs_B, (labels - mean) / unit, reduction="none")
        none_B = torch.zeros_like(errors_B)
        return self._joint(none_B, none_B.long(), errors_B, counts)


class MaskedNumber(_NumberHead):
    """Prediction of the answer's last number, which is masked (Golkar et al., 2023).

    The loss is the CE of the token head plus the squared error of the number head, both at the mask alone.
    """

    def forward(
        self, labels: Tensor, number_labels: Tensor, counts: Tensor | None = None, **inputs: Tensor
    ) -> JointLoss:
        """Compute sums and counts of both terms, and their total.

        ``labels`` are the tokens that were masked, ``number_labels`` (B,) their values on the scale of the inputs,
        sign(x) ln(1 + |x|), and ``inputs`` are as in ``XValForMaskedNumber``.
        """
        output = self.model(**inputs)
        ce_B = cross_entropy(output.logits, labels, reduction="none")
        errors_B = squared_error(output.numbers, number_labels, reduction="none")
        return self._joint(ce_B, torch.ones_like(labels), errors_B, counts)
