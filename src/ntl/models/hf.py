"""Any decoder or encoder-decoder that transformers loads, with the config of its own weights."""

from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from ntl.config.model import HFConfig, HFRegressionConfig
from ntl.models.pretrained import ONE_OUTPUT, load, pretrained_config


def build(config: HFConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Load the weights with their own dropout, positions and router, or with ``config.dropout`` where that is set.

    With ``config.pretrained`` false, the model has random weights: of use for its sizes alone. UserError: the weights
    cannot be read, or are of no language model that transformers has.
    """
    auto_class: Any = AutoModelForSeq2SeqLM if config.family == "t5" else AutoModelForCausalLM
    if config.pretrained:
        return load(config, auto_class, tokenizer)
    return auto_class.from_config(pretrained_config(config))


def build_regression(config: HFRegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """As ``build``, with a new head, one output: a linear function of the state at the last token before padding."""
    if config.pretrained:
        return load(config, AutoModelForSequenceClassification, tokenizer, new_weights="score.", **ONE_OUTPUT)
    own = pretrained_config(config)
    own.update(ONE_OUTPUT)
    return AutoModelForSequenceClassification.from_config(own)
