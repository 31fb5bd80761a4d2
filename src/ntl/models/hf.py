"""Any decoder or encoder-decoder that transformers loads, with the config of its own weights."""

from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from ntl.config.model import HFConfig, HFRegressionConfig
from ntl.models.pretrained import ONE_OUTPUT, dropout_rates, fit_vocabulary, load_pretrained, pretrained_config


def build(config: HFConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Load the weights with their own dropout, positions and router, or with ``config.dropout`` where that is set.

    With ``config.pretrained`` false, the model has random weights: of use for its sizes alone.

    Raises:
        UserError: The weights cannot be read, or are of no language model that transformers has.
    """
    return _load(config, AutoModelForSeq2SeqLM if config.family == "t5" else AutoModelForCausalLM, tokenizer)


def build_regression(config: HFRegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Load the weights with a new head, one output: a linear function of the state at the last token before padding.

    Raises:
        UserError: The weights cannot be read, or are of no decoder that transformers gives such a head.
    """
    return _load(config, AutoModelForSequenceClassification, tokenizer, new_weights="score.", **ONE_OUTPUT)


def _load(
    config: HFConfig, auto_class: Any, tokenizer: Any, *, new_weights: str | None = None, **settings: Any
) -> PreTrainedModel:
    if not config.pretrained:
        own = pretrained_config(config)
        own.update(settings)
        return auto_class.from_config(own)
    model = load_pretrained(config, auto_class, new_weights=new_weights, **dropout_rates(config), **settings)
    return fit_vocabulary(model, tokenizer)
