"""Language models with a regression head, one output per sequence, from transformers' own classes (paper, Table 4)."""

from typing import Any

from transformers import (
    AutoModelForSequenceClassification,
    GPT2ForSequenceClassification,
    PreTrainedModel,
    T5ForSequenceClassification,
)

from ntl.config.model import GPT2RegressionConfig, T5RegressionConfig
from ntl.models.gpt2 import fuse_activation, gpt2_config, gpt2_dropout
from ntl.models.pretrained import fit_vocabulary, load_pretrained
from ntl.models.t5 import t5_config

ONE_OUTPUT = {"num_labels": 1, "problem_type": "regression"}


def build_t5(config: T5RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a T5 whose head, a small network, reads the decoder's state at the end token.

    The decoder reads the question as well.
    """
    if config.pretrained:
        model = load_pretrained(
            config,
            AutoModelForSequenceClassification,
            new_weights="classification_head.",
            dropout_rate=config.dropout,
            classifier_dropout=config.dropout,
            **ONE_OUTPUT,
        )
    else:
        model = T5ForSequenceClassification(
            t5_config(config, tokenizer, classifier_dropout=config.dropout, **ONE_OUTPUT)
        )
    return fit_vocabulary(model, tokenizer)


def build_gpt2(config: GPT2RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 whose head is a linear function of the hidden state at the last token that is not padding."""
    if config.pretrained:
        settings = {**gpt2_dropout(config), **ONE_OUTPUT}
        model = load_pretrained(config, AutoModelForSequenceClassification, new_weights="score.", **settings)
        model = fuse_activation(model)
    else:
        model = GPT2ForSequenceClassification(gpt2_config(config, tokenizer, **ONE_OUTPUT))
    return fit_vocabulary(model, tokenizer)
