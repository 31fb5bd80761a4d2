"""A model that no run of ours describes: a folder written by ``save_pretrained``, or a hub id."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

import ntl.models.rt
import ntl.models.xval  # noqa: F401 - transformers then knows both
from ntl.config import compose
from ntl.config.composition import CHANGEABLE
from ntl.config.model import ModelConfig
from ntl.decoding.batches import Example
from ntl.models.pretrained import fit_vocabulary, load_pretrained, pretrained_config
from ntl.system.errors import UserError
from ntl.system.hub import require
from ntl.training.parts import RunParts, Say

ANY_LENGTH = 1 << 20  # tokens; the positions of a model are checked apart from this
# Our own models, which bring tokenizers of their own, by transformers' model_type.
OWN = {"ntl_rt": "rt", "ntl_xval": "xval"}


class PlainParts(RunParts):
    """A language model and its tokenizer as they are stored, with the special tokens that it puts before a text."""

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer as it is stored; padding is the end token where it has none."""
        name = self.config.model.path
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:  # transformers and tokenizers raise errors of different types
            raise UserError(
                f"{name}: its tokenizer cannot be read ({str(error).splitlines()[0][:200]}); save it there with "
                "save_pretrained."
            ) from error
        if not tokenizer.is_fast:
            raise UserError(f"{name}: its tokenizer has no tokenizer.json; save a fast tokenizer there.")
        if tokenizer.eos_token is None:
            raise UserError(f"{name}: its tokenizer names no end token; set eos_token in its tokenizer_config.json.")
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    @cached_property
    def prefix(self) -> Sequence[int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The special tokens before every text."""
        whole, bare = (self.tokenizer("0", add_special_tokens=special)["input_ids"] for special in (True, False))
        starts = (start for start in range(len(whole)) if whole[start : start + len(bare)] == bare)
        return whole[: next(starts, 0)]

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model of the class that its config asks for."""
        config = self.config.model
        if config.head != "lm":
            return super().model
        decoder = config.family == "decoder"
        auto_class = AutoModelForCausalLM if decoder else AutoModelForSeq2SeqLM
        return fit_vocabulary(load_pretrained(config, auto_class, dtype="auto"), self.tokenizer)

    @cached_property
    def collator(self) -> Any:
        """As of a run, with the special tokens before each question."""
        return _Prefixed(super().collator, self.prefix)


class _Prefixed:
    """A collator whose prompts begin with some special tokens."""

    def __init__(self, inner: Any, prefix: Sequence[int]) -> None:
        self.inner, self.prefix = inner, np.array(prefix, dtype=np.int64)

    def longest_input(self, about: Mapping[str, int]) -> int:
        return self.inner.longest_input(about)

    def prompts(self, examples: Sequence[Example]) -> Mapping[str, torch.Tensor]:
        longer = [{**each, "question_ids": np.concatenate([self.prefix, each["question_ids"]])} for each in examples]
        return self.inner.prompts(longer)


def _choice(name: str) -> str:
    """The model of ``config/model`` whose settings fit a stored model."""
    require(name)
    config = pretrained_config(ModelConfig(name=name, path=name))
    made_by = (getattr(config, "architectures", None) or [""])[0]
    if config.model_type in OWN:
        return OWN[config.model_type]
    kind = "t5_small" if config.is_encoder_decoder else "gpt2_small"
    if made_by.endswith("ForSequenceClassification") and config.num_labels == 1:
        return f"{kind}_regression"
    if not made_by.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        raise UserError(
            f"{name}: {made_by or config.model_type} writes no text; give a decoder (ForCausalLM), an encoder-decoder "
            "(ForConditionalGeneration) or a regression head with one output."
        )
    return kind


def plain_parts(name: str, overrides: Sequence[str] = (), say: Say = print) -> RunParts:
    """The parts of a stored model, by default decoded greedily; ``overrides`` as for a run, at the data's full size.

    UserError: the model or its tokenizer cannot be read, or does not fit a setting.
    """
    for override in overrides:
        if override.partition("=")[0].split(".")[0] not in CHANGEABLE:
            raise UserError(f"{override}: only {', '.join(CHANGEABLE)} may be set for a trained model.")
    chosen = _choice(name)
    greedy = [] if chosen.endswith(("regression", "xval")) or "decoding=" in "".join(overrides) else ["decoding=greedy"]
    config = compose([f"model={chosen}", "scale=paper", *greedy, *overrides])
    config.model.name, config.model.path, config.model.pretrained = Path(name).name, name, True
    config.model.dropout, config.trainer.max_input_length = 0.0, ANY_LENGTH
    parts = RunParts(config, say) if chosen in OWN.values() else PlainParts(config, say)
    model: Any = parts.model
    model.to(parts.device)
    return parts
