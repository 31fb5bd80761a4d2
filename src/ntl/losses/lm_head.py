"""The output head of a language model: all that a loss computed from hidden states needs to know of the model.

Shape suffixes: V vocabulary, D hidden size, K number tokens.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.rows import upcast


class LMHead(NamedTuple):
    """The head logits = cap · tanh(z / cap) with z = scale · (hidden · weightᵀ + bias), or z itself without a cap.

    ``ntl.models.lm_head`` returns the head of a transformers model.

    Attributes:
        weight: (V, D); the embedding matrix itself if the two are tied.
        bias: (V,) or None.
        scale: T5's d_model^-0.5, Granite's 1 / logits_scaling or Cohere's logit_scale.
        cap: Gemma 2's final_logit_softcapping.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    cap: float | None = None

    def logits(self, hidden: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of hidden (..., D), or only those of K token ids, (..., K).

        Half-precision logits are converted to float32.
        """
        weight, bias = self.weight, self.bias
        if tokens is not None:
            weight, bias = weight[tokens], None if bias is None else bias[tokens]
        logits = upcast(F.linear(hidden, weight, bias))
        logits = logits if self.scale == 1 else logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)
