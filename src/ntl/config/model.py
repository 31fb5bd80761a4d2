"""Schemas of the models: where the weights come from, and the shape when they do not."""

from dataclasses import dataclass, field

from omegaconf import MISSING


def _size(default: int) -> int:
    return field(default=default, metadata={"min": 1})


@dataclass
class ModelConfig:
    """What every model has.

    ``family`` decides which tokenizers and losses fit (``ntl.config.legality``). ``hub_id`` is the published
    checkpoint, empty for a stand-in that has none. ``path``, a local folder or ``owner/name``, takes its place.
    ``pretrained=false`` builds the architecture from this config with random weights.
    """

    _target_: str = MISSING
    name: str = MISSING
    family: str = MISSING
    hub_id: str = ""
    path: str = ""
    pretrained: bool = True
    dropout: float = field(default=0.1, metadata={"min": 0, "max": 0.9})


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
class GPT2Config(ModelConfig):
    """GPT-2: learned positions, tied embeddings, GELU."""

    _target_: str = "ntl.models.gpt2.build"
    family: str = "decoder"
    n_embd: int = _size(768)
    n_layer: int = _size(12)
    n_head: int = _size(12)
    n_positions: int = _size(1024)
    vocab_size: int = field(default=0, metadata={"min": 0})
