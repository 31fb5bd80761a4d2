"""The config of one run, and what the settings of every data set have; the others stand beside its code."""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ntl.config.decoding import DecodingConfig
from ntl.config.folders import check_plain
from ntl.config.loss import LossConfig, ObjectiveConfig
from ntl.config.model import HUB_ID, ModelConfig, TokenizerConfig
from ntl.config.settings import MISSING, Rule, Schema, setting
from ntl.config.trainer import TrainerConfig
from ntl.config.validation import ANSWERS, LISTS, NUMERIC, check_keep_steps, unfit_for_chat, value_of
from ntl.system.errors import UserError

BASE = re.compile(r"[^\s/@=]+@[0-9]+")


@dataclass
class DatasetConfig(Schema):
    """Settings of every data set.

    ``contents`` is computed: the sha256 of the files that other settings name (``ntl.config.identity.read_contents``).
    ``computes``: whether an answer is computed from the numbers of its question; None: where it is a number.
    """

    computes: ClassVar[bool | None] = None

    _target_: str = setting(MISSING, room="ntl.data")
    name: str = setting(MISSING, "The choice of the group, part of the run's name.")
    answers: str = setting(
        "number",
        "What an answer is: one number, a text that ends in a mark and one, a sentence whose last number counts, "
        "several numbers, or text; exact is text that counts symbol by symbol, continuation the rest of the question's "
        "text, none plain text, without questions.",
        choices=tuple(ANSWERS),
    )
    format: str = setting(
        "plain",
        "A question is put as its text, through the tokenizer's chat template, or auto: where there is one.",
        choices=("plain", "chat", "auto"),
    )
    exclude_numbers: str = setting("", "Regular expression of numbers of answers that the number loss leaves out.")
    contents: dict[str, str] = setting(dict, "Computed.")

    def __init_subclass__(cls) -> None:
        name = vars(cls).get("name", MISSING)  # a class without a name of its own takes no other's place
        super().__init_subclass__(schema="" if name == MISSING else f"dataset/{getattr(name, 'default', name)}")

    @property
    def is_computed(self) -> bool:
        """Whether an answer is computed from the numbers of its question, so that it needs every one of them."""
        return self.answers in (*NUMERIC, LISTS) if self.computes is None else self.computes

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        if self.format == "chat" and (why := unfit_for_chat(config)):
            yield ".format", f"{why}; leave dataset.format out."
        for name in ("weight", "exclude_numbers"):
            if getattr(self, name, "") and config.model.head != "lm":
                yield f".{name} model", "weights are of tokens, and this model predicts one value; leave it out."
            if getattr(self, name, "") and config.objective.mask.copy != "none":
                yield f".{name} objective.mask.copy", "a copy of an answer has no weights; leave one of the two out."
        if self.exclude_numbers and config.tokenizer.kind == "rt":
            yield ".exclude_numbers tokenizer", "no pattern matches its numbers, tokens of their places; leave it out."

    def check(self, data_dir: str) -> None:
        """UserError for a setting that does not fit the others or names nothing. Not called for a config read back."""
        try:
            re.compile(self.exclude_numbers)
        except re.error as error:
            line = f"no regular expression ({error}); correct it, or write \\ before a sign that is text."
            raise UserError(f"dataset.exclude_numbers={self.exclude_numbers}: {line}") from error


@dataclass
class ScaleConfig(Schema, schema="scale/base"):
    """The size of a run. The files of this group set values of trainer and dataset."""

    name: str = setting(MISSING, "The choice of the group.")
    positions: int = setting(128, "Question and answer together, of a `*_tiny` decoder.", "tokens", min=8)


@dataclass
class TrackingConfig(Schema, schema="tracking/base"):
    """Where metrics.jsonl is mirrored: `wandb` is Weights & Biases, offline where no key is set."""

    name: str = setting("auto", "The choice of the group; `auto` is W&B if `WANDB_API_KEY` or `WANDB_MODE` is set.")
    project: str = setting("ntl", "The project there.")
    entity: str = setting("", "The user or team there; empty: the key's own.")
    group: str = setting("", "The group of the run there; empty: the table, or what a sweep varies.")
    tags: list[str] = setting(list, "The tags of the run there.")

    @property
    def to_wandb(self) -> bool:
        """Whether runs are mirrored to Weights & Biases: as the name says, else as the environment says."""
        if self.name != "auto":
            return self.name == "wandb"
        mode = os.environ.get("WANDB_MODE", "")
        return mode != "disabled" if mode else bool(os.environ.get("WANDB_API_KEY"))

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        if self.name == "none" and replace(self, name="auto") != TrackingConfig():
            yield "tracking", "its other settings are W&B's; add tracking=wandb, or leave them out."


@dataclass
class Config(Schema):
    """One training run.

    Which settings are part of its id: ``ntl.config.identity``.
    """

    model: ModelConfig = MISSING
    tokenizer: TokenizerConfig = MISSING
    loss: LossConfig = MISSING
    objective: ObjectiveConfig = MISSING
    dataset: DatasetConfig = MISSING
    scale: ScaleConfig = MISSING
    trainer: TrainerConfig = MISSING
    decoding: DecodingConfig = MISSING
    extra_decodings: dict[str, DecodingConfig] = setting(dict, "Further decodings, whose metrics are `test/mae@NAME`.")
    base: str = setting("", "Initial weights: the id of another run, or its settings, then `@` and the step.")
    seed: int = setting(1, "Seed of weights, order and dropout.", min=0, max=2**32 - 1)
    paper_compat: bool = setting(False, "Do as the original code where that is wrong, and print the paper's scores.")
    probe_steps: int = setting(0, "Decode a few test examples every so many steps; 0: never.", "optimizer steps", min=0)
    keep_steps: list[int] = setting(list, "Checkpoints to keep, so that runs can start there.", "optimizer steps")
    tracking: TrackingConfig = setting(TrackingConfig, "Where metrics are mirrored.")
    resume: str = setting("auto", "`auto`: from the newest checkpoint; a folder: from that one; `never`: anew.")
    output_dir: str = setting("outputs", "The folder of all runs; each has one of its own in it.")
    data_dir: str = setting("data", "The folder of data files and prepared rows.")
    device: str = setting("auto", "Where; `auto` takes a GPU if there is one.", choices=("auto", "cpu", "cuda"))

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        for name in ("model.path", "tokenizer.path", "output_dir", "data_dir", "resume"):
            check_plain(value_of(self, name), f"{name}={value_of(self, name)}")
        for name, path in (("model.path", self.model.path), ("tokenizer.path", self.tokenizer.path)):
            if Path(path).is_file():
                yield name, "a file; give its folder (a GGUF file: model=hf and model.file, too)."
            if path and not Path(path).is_dir() and not HUB_ID.fullmatch(path):
                yield name, "neither an existing folder nor a hub id of the form owner/name."
        if not self.trainer.epochs:
            check_keep_steps(self)
        if self.resume not in ("auto", "never") and not Path(self.resume).is_dir():
            yield "resume", "choose auto, never, or the folder of a checkpoint."
        if self.base and not BASE.fullmatch(self.base):
            yield "base", f"give the id of a run in {self.output_dir} and a step, as ID@8000."
        if self.probe_steps and not (self.model.head == "lm" and self.dataset.answers == "number"):
            yield "probe_steps", "a probe is the relative error of generated numbers, and none is generated."
