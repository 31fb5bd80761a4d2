"""T5 v1.0 (Raffel et al., 2020): published weights, or the same architecture from scratch."""

from typing import Any

import transformers
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    T5ForConditionalGeneration,
    T5ForSequenceClassification,
)

from ntl.config.model import T5Config, T5RegressionConfig
from ntl.models.interface import pad_id
from ntl.models.pretrained import ONE_OUTPUT, fit_vocabulary, load, pretrained_config

SHAPE = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "initializer_factor")


def build(config: T5Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build an encoder-decoder whose embedding has a row for every token of ``tokenizer``."""
    if config.pretrained:
        return load(config, AutoModelForSeq2SeqLM, tokenizer)
    return fit_vocabulary(T5ForConditionalGeneration(t5_config(config, tokenizer)), tokenizer)


def build_regression(config: T5RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a T5 with one output, a small network that reads the decoder's state at the end token (paper, Table 4).

    The decoder reads the question as well.
    """
    settings: dict[str, Any] = {"classifier_dropout": config.dropout, **ONE_OUTPUT}
    if not config.pretrained:
        return fit_vocabulary(T5ForSequenceClassification(t5_config(config, tokenizer, **settings)), tokenizer)
    if config.dropout is None:  # the head is new, and as the model
        settings["classifier_dropout"] = pretrained_config(config).dropout_rate
    head = "classification_head."
    return load(config, AutoModelForSequenceClassification, tokenizer, new_weights=head, **settings)


def t5_config(
    config: T5Config, tokenizer: Any, *, config_class: Any = transformers.T5Config, **settings: Any
) -> transformers.T5Config:
    """Return transformers' config of these shapes, of the class ``config_class``, with additional ``settings``."""
    return config_class(
        vocab_size=max(config.vocab_size, len(tokenizer)),
        dropout_rate=config.dropout,
        decoder_start_token_id=pad_id(tokenizer),
        pad_token_id=pad_id(tokenizer),
        eos_token_id=tokenizer.eos_token_id,
        **{name: getattr(config, name) for name in SHAPE},
        **settings,
    )
