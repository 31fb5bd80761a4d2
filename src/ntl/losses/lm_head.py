"""A language model's head as its weights: all that a loss from hidden states asks of a model.

Shape suffixes: V vocabulary, D hidden size, K number tokens.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.rows import upcast


class LMHead(NamedTuple):
    """logits = cap · tanh(z / cap) with z = scale · (hidden · weightᵀ + bias); without a cap, z itself.

    weight (V, D), the embedding's own where the two are tied; bias (V,) or None; scale is T5's d_model^-0.5, Granite's
    1 / logits_scaling, Cohere's logit_scale; cap is Gemma 2's final_logit_softcapping. ``ntl.models.lm_head`` finds it.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    cap: float | None = None

    def logits(self, hidden: Tensor, tokens: Tensor | None = None) -> Tensor:
        """hidden (..., D) -> (..., V), or (..., K) for the K token ids ``tokens`` alone; half types become float32."""
        weight, bias = self.weight, self.bias
        if tokens is not None:
            weight, bias = weight[tokens], None if bias is None else bias[tokens]
        logits = upcast(F.linear(hidden, weight, bias))
        logits = logits if self.scale == 1 else logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)
