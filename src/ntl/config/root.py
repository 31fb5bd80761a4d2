"""The config of one run."""

import os
from dataclasses import dataclass, field

from omegaconf import MISSING

from ntl.config.data import DatasetConfig
from ntl.config.decoding import DecodingConfig
from ntl.config.loss import LossConfig, ObjectiveConfig
from ntl.config.model import ModelConfig, TokenizerConfig
from ntl.config.trainer import TrainerConfig


@dataclass
class ScaleConfig:
    """The size of a run: tiny, hour, small or paper. Its files set trainer and data sizes.

    ``positions`` is the context length, question and answer together, of a small decoder that replaces a published one.
    """

    name: str = MISSING
    positions: int = field(default=128, metadata={"min": 8})


@dataclass
class TrackingConfig:
    """Where metrics.jsonl is mirrored. The default, ``auto``: to Weights & Biases if the environment asks for it.

    ``project``, ``entity``, ``group`` and ``tags`` are settings of Weights & Biases.
    """

    _target_: str = "ntl.training.tracking.auto"
    name: str = "auto"
    project: str = "ntl"
    entity: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)

    @property
    def to_wandb(self) -> bool:
        """Whether runs are mirrored to Weights & Biases: as the name says, else as the environment says."""
        if self.name != "auto":
            return self.name == "wandb"
        mode = os.environ.get("WANDB_MODE", "")
        return mode != "disabled" if mode else bool(os.environ.get("WANDB_API_KEY"))


@dataclass
class Config:
    """One training run. Which settings are part of its id: ``ntl.config.identity``.

    ``base``: initial weights ``ID@STEP`` from another run in ``output_dir``. Instead of its id, overrides may describe
    it: ``"base='loss=ce trainer.max_steps=8000@8000'"`` (``ntl.config.composition.base_words``).
    ``keep_steps``: checkpoints of these steps are written and never deleted, so that other runs can start from them.
    ``probe_steps``: a few test examples are decoded every so many steps (``ntl.training.callbacks``); 0 means never.
    """

    model: ModelConfig = MISSING
    tokenizer: TokenizerConfig = MISSING
    loss: LossConfig = MISSING
    objective: ObjectiveConfig = MISSING
    dataset: DatasetConfig = MISSING
    scale: ScaleConfig = MISSING
    trainer: TrainerConfig = MISSING
    decoding: DecodingConfig = MISSING
    # Further decodings of the trained model; the record has their scores as "<split>/<metric>@<name>".
    beside: dict[str, DecodingConfig] = field(default_factory=dict)
    base: str = ""
    seed: int = field(default=1, metadata={"min": 0, "max": 2**32 - 1})
    paper_compat: bool = False
    probe_steps: int = field(default=0, metadata={"min": 0})
    keep_steps: list[int] = field(default_factory=list)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    resume: str = "auto"
    output_dir: str = "outputs"
    data_dir: str = "data"
    device: str = "auto"
