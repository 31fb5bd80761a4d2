"""The Regression Transformer as in the paper: a T5 whose embedding adds frozen encodings to the number tokens.

Shapes: V vocabulary, K number tokens, D hidden size.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel, T5ForConditionalGeneration

from ntl.config.model import RTConfig
from ntl.models.pretrained import fit_vocabulary, load, t5_config
from ntl.numbers.text import find_place_tokens, parse_place_token, place_token, place_tokens
from ntl.system.errors import UserError


def encode_numbers(
    places: Sequence[tuple[int, int]], width: int, *, log_scale: bool = True, max_value: float = 3e9
) -> Tensor:
    """Return the encodings (K, D), float32, of the values x = d x 10^e of (digit d, place e); D is ``width``.

    E_i = x / (i + 1) and E_{i+1} = -x / (i + 1) for even i. The encoding is sign(E) log10(|E| + 1) /
    (log10(max_value) / 10) with ``log_scale``, otherwise E / (max_value / 10). The original's float32 loses values
    below about 1e-7; float64 and log1p lose none.
    """
    # On the CPU, even if the model is built on the meta device.
    values = torch.tensor([digit * 10.0**place for digit, place in places], dtype=torch.float64, device="cpu")
    columns = torch.arange(width, device="cpu")
    divisors = (columns - columns % 2 + 1) * (1 - 2 * (columns % 2))
    encodings_KD = values[:, None] / divisors
    if not log_scale:
        return (encodings_KD * (10 / max_value)).float()
    return (encodings_KD.sign() * encodings_KD.abs().log1p() * (10 / math.log(max_value))).float()


class NumberEmbedding(nn.Embedding):
    """A learned embedding (V, D) plus the frozen encodings of number tokens.

    A head tied to ``weight`` does not see the encodings. A checkpoint does not store them: they follow from the config.
    """

    encodings: Tensor
    index: Tensor

    def __init__(self, weight: Any, config: "RTNetworkConfig") -> None:
        with torch.device("meta"):
            super().__init__(*weight.shape)
        self.weight = weight
        self.set_numbers(config)

    def set_numbers(self, config: "RTNetworkConfig") -> None:
        """Register ``encodings`` (K + 1, D), whose first row is 0, and ``index`` (V,), the row of each token."""
        tokens = config.number_tokens or {}
        places = [parsed for token in tokens if (parsed := parse_place_token(token))]
        scale = {"log_scale": config.log_scale, "max_value": config.max_value}
        encodings = nn.functional.pad(encode_numbers(places, self.embedding_dim, **scale), (0, 0, 1, 0))
        index_V = torch.zeros(self.num_embeddings, dtype=torch.int64, device="cpu")
        index_V[list(tokens.values())] = torch.arange(1, len(tokens) + 1, device="cpu")
        self.register_buffer("encodings", encodings.to(self.weight), persistent=False)
        self.register_buffer("index", index_V.to(self.weight.device), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return the embeddings (..., D) of token ids (...)."""
        return super().forward(input) + nn.functional.embedding(self.index[input], self.encodings)


class RTNetworkConfig(transformers.T5Config):
    """T5's config with the settings of the encodings; ``number_tokens`` maps the tokens ``_d_e_`` to their ids."""

    model_type = "ntl_rt"

    number_tokens: dict[str, int] | None = None
    log_scale: bool = True
    max_value: float = 3e9


class RTForConditionalGeneration(T5ForConditionalGeneration):
    """A T5 whose encoder and decoder share a ``NumberEmbedding``; its head is tied to the learned part."""

    config_class = RTNetworkConfig
    config: RTNetworkConfig

    def __init__(self, config: RTNetworkConfig) -> None:
        super().__init__(config)
        self.set_input_embeddings(NumberEmbedding(self.shared.weight, config))

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NumberEmbedding):  # ``from_pretrained`` leaves buffers uninitialized
            module.set_numbers(self.config)

    def resize_token_embeddings(self, *args: Any, **options: Any) -> nn.Embedding:
        embedding: Any = super().resize_token_embeddings(*args, **options)
        embedding.set_numbers(self.config)
        return embedding


AutoConfig.register(RTNetworkConfig.model_type, RTNetworkConfig)
AutoModelForSeq2SeqLM.register(RTNetworkConfig, RTForConditionalGeneration)


def build(config: RTConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a T5 with an encoding for every token ``_d_e_`` of ``tokenizer``, or else for the paper's, behind its own.

    Pretrained weights may come from a T5, all of whose rows are kept, or from a model built here.
    """
    if config.log_scale and config.max_value <= 1:
        raise UserError(
            f"model.max_value={config.max_value} model.log_scale=true: must be above 1, as its logarithm divides."
        )
    places = find_place_tokens(getattr(tokenizer, "get_vocab", dict)())
    tokens = {place_token(*place): token_id for token_id, place in places.items()}
    tokens = tokens or {token: len(tokenizer) + index for index, token in enumerate(place_tokens())}
    settings = {"log_scale": config.log_scale, "max_value": config.max_value}
    model: Any
    if config.pretrained:
        model = load(config, RTForConditionalGeneration, tokenizer, **settings)
    else:
        network: Any = t5_config(config, tokenizer, config_class=RTNetworkConfig, **settings)
        network.vocab_size = max(network.vocab_size, *(token_id + 1 for token_id in tokens.values()))
        model = fit_vocabulary(RTForConditionalGeneration(network), tokenizer)
    model.config.number_tokens = tokens
    model.get_input_embeddings().set_numbers(model.config)
    return model
