"""xVal (Golkar et al., 2023) as trained in the paper: an encoder that represents numbers by scaled embeddings.

Shapes: B batch, S sequence length, D hidden size, H heads, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.generic import ModelOutput

from ntl.config.model import XValConfig
from ntl.models.pretrained import fit_vocabulary, load
from ntl.system.errors import UserError


class XValModelConfig(PretrainedConfig):
    """The shapes of the encoder, by default the paper's. ``paper_compat`` attends to padding, as the paper does."""

    model_type = "ntl_xval"

    vocab_size: int = 32101
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    max_position_embeddings: int = 512
    dropout: float = 0.1
    paper_compat: bool = False


@dataclass
class XValOutput(ModelOutput):
    """``logits`` (B, V) and ``numbers`` (B,), both at the masked position."""

    logits: torch.Tensor | None = None
    numbers: torch.Tensor | None = None


class _AttentionIn(nn.Linear):
    # Initialized as in nn.MultiheadAttention.
    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)


class _AttentionOut(nn.Linear):
    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        nn.init.zeros_(self.bias)


class XValBlock(GradientCheckpointingLayer):
    """``nn.TransformerEncoderLayer(norm_first=True)``, whose mask follows autocast and which has no fast path."""

    def __init__(self, config: XValModelConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.heads = config.num_attention_heads
        self.attention_norm = nn.LayerNorm(size)
        self.attention_in = _AttentionIn(size, 3 * size)
        self.attention_out = _AttentionOut(size, size)
        self.feed_norm = nn.LayerNorm(size)
        self.feed_in = nn.Linear(size, config.intermediate_size)
        self.feed_out = nn.Linear(config.intermediate_size, size)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_BSD: torch.Tensor, mask_B11S: torch.Tensor | None) -> torch.Tensor:
        """Return the layer's output (B, S, D); only positions whose mask is true are attended to."""
        hidden_BSD = hidden_BSD + self.dropout(self._attend(self.attention_norm(hidden_BSD), mask_B11S))
        inner_BSF = self.dropout(self.activation(self.feed_in(self.feed_norm(hidden_BSD))))
        return hidden_BSD + self.dropout(self.feed_out(inner_BSF))

    def _attend(self, normed_BSD: torch.Tensor, mask_B11S: torch.Tensor | None) -> torch.Tensor:
        split = self.attention_in(normed_BSD).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask_B11S, dropout_p=dropout)
        return self.attention_out(mixed.transpose(1, 2).flatten(-2))


class XValForMaskedNumber(PreTrainedModel):
    """A pre-norm encoder of token embedding x value + learned position, with two heads at one masked position."""

    config_class = XValModelConfig
    base_model_prefix = "xval"
    _input_embed_layer = "token_embedding"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["XValBlock"]  # noqa: RUF012 - declared like this in transformers

    def __init__(self, config: XValModelConfig) -> None:
        super().__init__(config)
        size, inner = config.hidden_size, config.intermediate_size
        self.token_embedding = nn.Embedding(config.vocab_size, size)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, size)
        self.blocks = nn.ModuleList(XValBlock(config) for _ in range(config.num_hidden_layers))
        self.token_head = nn.Sequential(
            nn.Linear(size, inner, bias=False), nn.GELU(), nn.Linear(inner, config.vocab_size, bias=False)
        )
        self.number_head = nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Linear(inner, 1))
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        number_values: torch.Tensor,
        number_positions: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> XValOutput:
        """Compute both heads at the masked position only.

        Args:
            input_ids: (B, S), with S at most ``max_position_embeddings``.
            number_values: (B, S) float: sign(x) ln(1 + |x|) at a number x, 1 elsewhere and at the mask.
            number_positions: (B,), the masked position.
            attention_mask: (B, S), 0 on padding; None without padding.
        """
        hidden_BSD = self.encode(input_ids, number_values, attention_mask)
        masked_BD = hidden_BSD[torch.arange(len(hidden_BSD), device=hidden_BSD.device), number_positions]
        return XValOutput(logits=self.token_head(masked_BD), numbers=self.number_head(masked_BD).squeeze(-1))

    def encode(
        self, input_ids: torch.Tensor, number_values: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the last layer's hidden states (B, S, D)."""
        embedded_BSD = self.token_embedding(input_ids)
        hidden_BSD = embedded_BSD * number_values.to(embedded_BSD.dtype)[..., None]
        hidden_BSD = hidden_BSD + self.position_embedding.weight[: input_ids.shape[1]]
        mask_B11S = None
        if attention_mask is not None and not self.config.paper_compat:
            mask_B11S = attention_mask[:, None, None, :].bool()
        for block in self.blocks:
            hidden_BSD = block(hidden_BSD, mask_B11S)
        return hidden_BSD

    def get_output_embeddings(self) -> nn.Module:
        return self.token_head[-1]

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.token_head[-1] = new_embeddings

    def _init_weights(self, module: nn.Module) -> None:
        # The original keeps torch's default initialization.
        if isinstance(module, (nn.Embedding, nn.Linear, nn.LayerNorm)):
            module.reset_parameters()


AutoConfig.register(XValModelConfig.model_type, XValModelConfig)
AutoModel.register(XValModelConfig, XValForMaskedNumber)


def build(config: XValConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build the encoder with a row for every token of ``tokenizer``; pretrained weights come from an earlier run."""
    if config.pretrained:
        return load(config, XValForMaskedNumber, tokenizer, paper_compat=config.paper_compat)
    if config.d_model % config.num_heads:
        raise UserError(f"model.d_model={config.d_model}: must be a multiple of model.num_heads={config.num_heads}.")
    settings: dict[str, Any] = {"dropout": config.dropout, "paper_compat": config.paper_compat}
    settings |= {"hidden_size": config.d_model, "intermediate_size": config.d_ff}
    settings |= {"num_hidden_layers": config.num_layers, "num_attention_heads": config.num_heads}
    settings |= {"max_position_embeddings": config.max_positions, "vocab_size": max(config.vocab_size, len(tokenizer))}
    return fit_vocabulary(XValForMaskedNumber(XValModelConfig(**settings)), tokenizer)
