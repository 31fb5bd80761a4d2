"""Schemas of models and tokenizers: where the weights come from, and the architecture where none are loaded."""

from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import MISSING


def _size(default: int) -> int:
    return field(default=default, metadata={"min": 1})


@dataclass
class LoraConfig:
    """Low-rank adaptation (Hu et al., 2021) of every linear layer; ``rank`` 0 trains all weights instead.

    ``full`` are prefixes of names of weights that are trained in full: those that a checkpoint does not contain.
    """

    rank: int = field(default=0, metadata={"min": 0})
    alpha: float = field(default=32.0, metadata={"above": 0})
    dropout: float = field(default=0.0, metadata={"min": 0, "max": 0.9})
    full: list[str] = field(default_factory=list)


@dataclass
class ModelConfig:
    """Settings of every model.

    ``family`` decides which tokenizers and data sets fit, ``head`` which losses, objectives and decodings
    (``ntl.config.legality``). ``hub_id`` is the published checkpoint, empty for a model that has none;
    ``tokenizer_hub_id`` that of the tokenizer alone. ``path``, a local folder or ``owner/name``, replaces both.
    ``pretrained=false`` builds the architecture from this config with random weights. ``requires`` says in words what
    the model needs.
    """

    _target_: str = MISSING
    name: str = MISSING
    family: str = MISSING
    head: str = "lm"
    hub_id: str = ""
    tokenizer_hub_id: str = ""
    path: str = ""
    requires: str = ""
    pretrained: bool = True
    dropout: float = field(default=0.1, metadata={"min": 0, "max": 0.9})
    lora: LoraConfig = field(default_factory=LoraConfig)


@dataclass
class T5Config(ModelConfig):
    """T5 v1.0: tied embeddings, ReLU, relative positions."""

    _target_: str = "ntl.models.t5.build"
    family: str = "t5"
    d_model: int = _size(512)
    d_kv: int = _size(64)
    d_ff: int = _size(2048)
    num_layers: int = _size(6)
    num_heads: int = _size(8)
    vocab_size: int = field(default=0, metadata={"min": 0})
    initializer_factor: float = field(default=1.0, metadata={"above": 0})


@dataclass
class T5RegressionConfig(T5Config):
    """T5 with one output on the decoder's last position (paper, Table 4)."""

    _target_: str = "ntl.models.t5.build_regression"
    family: str = "t5_regression"
    head: str = "regression"


@dataclass
class RTConfig(T5Config):
    """Regression Transformer (Born and Manica, 2023) as in the paper: T5 with frozen number encodings.

    The encoding of a token ``_d_e_`` is that of d x 10^e; ``log_scale`` and ``max_value`` scale it (paper: on, 3e9).
    """

    _target_: str = "ntl.models.rt.build"
    family: str = "rt"
    log_scale: bool = True
    max_value: float = field(default=3e9, metadata={"above": 0})


@dataclass
class GPT2Config(ModelConfig):
    """GPT-2: learned positions, tied embeddings, GELU."""

    _target_: str = "ntl.models.causal.build_gpt2"
    family: str = "decoder"
    n_embd: int = _size(768)
    n_layer: int = _size(12)
    n_head: int = _size(12)
    n_positions: int = _size(1024)
    vocab_size: int = field(default=0, metadata={"min": 0})


@dataclass
class GPT2RegressionConfig(GPT2Config):
    """GPT-2 with one output on the last token."""

    _target_: str = "ntl.models.causal.build_gpt2_regression"
    family: str = "decoder_regression"
    head: str = "regression"


@dataclass
class CausalConfig(ModelConfig):
    """Any decoder-only model of transformers.

    ``architecture`` is its ``model_type`` ("granite", "llama", "qwen2"), ``settings`` are those of that type's config
    class where the model is built from scratch; ``vocab_size`` is the least number of embedding rows.
    """

    _target_: str = "ntl.models.causal.build"
    family: str = "decoder"
    architecture: str = MISSING
    vocab_size: int = field(default=0, metadata={"min": 0})
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass
class XValConfig(ModelConfig):
    """xVal (Golkar et al., 2023) as the paper trains it: a pre-norm encoder whose ``[NUM]`` embedding is scaled.

    ``paper_compat`` attends to padding, as the original does.
    """

    _target_: str = "ntl.models.xval.build"
    family: str = "xval"
    head: str = "masked_number"
    pretrained: bool = False
    d_model: int = _size(768)
    d_ff: int = _size(3072)
    num_layers: int = _size(12)
    num_heads: int = _size(12)
    max_positions: int = _size(512)
    vocab_size: int = field(default=0, metadata={"min": 0})
    paper_compat: bool = False


# Settings that have an effect although weights are loaded; the weights determine all others.
NOT_IN_WEIGHTS = {*(item.name for item in fields(ModelConfig)), "log_scale", "max_value", "paper_compat"}


def source(config: ModelConfig) -> str:
    """The folder or hub id of the weights; empty for a model without published weights."""
    return config.path or config.hub_id


def tokenizer_source(config: ModelConfig) -> str:
    """The folder or hub id of the tokenizer; empty for one that is trained on the prepared text."""
    return source(config) or config.tokenizer_hub_id


@dataclass
class TokenizerConfig:
    """``kind`` is the segmentation; ``digits_only`` says which tokens the losses count as numbers.

    ``path``, a local folder or ``owner/name``, replaces the model's own tokenizer files. A model without published
    files gets one trained on the prepared text, of at most ``vocab_size`` pieces. For ``kind=xval``, ``paper_compat``
    leaves the sign of a number in the text, as the original does. For ``kind=rt``, ``max_place`` is the highest decimal
    place of a number token (paper: 19, for numbers of 20 digits).
    """

    name: str = MISSING
    kind: str = MISSING
    digits_only: bool = True
    path: str = ""
    vocab_size: int = field(default=256, metadata={"min": 32})
    paper_compat: bool = False
    # Above 37 a value is infinite in float32.
    max_place: int = field(default=19, metadata={"min": 19, "max": 37})
