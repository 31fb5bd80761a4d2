"""T5 v1.0 (Raffel et al., 2020): published weights, or the same architecture from scratch."""

from typing import Any

import transformers
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel, T5ForConditionalGeneration

from ntl.config.model import T5Config
from ntl.models.pretrained import fit_vocabulary, load_pretrained, vocabulary_rows


def build(config: T5Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build an encoder-decoder whose embedding has a row for every token of ``tokenizer``."""
    if config.pretrained:
        model = load_pretrained(config, AutoModelForSeq2SeqLM, dropout_rate=config.dropout)
    else:
        model = T5ForConditionalGeneration(t5_config(config, tokenizer))
    return fit_vocabulary(model, tokenizer)


def t5_config(
    config: T5Config, tokenizer: Any, *, config_class: Any = transformers.T5Config, **settings: Any
) -> transformers.T5Config:
    """Return transformers' config of these shapes, of the class ``config_class``, with additional ``settings``."""
    tokens: dict[str, Any] = {
        "decoder_start_token_id": tokenizer.pad_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return config_class(
        vocab_size=vocabulary_rows(config.vocab_size, tokenizer),
        d_model=config.d_model,
        d_kv=config.d_kv,
        d_ff=config.d_ff,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        dropout_rate=config.dropout,
        initializer_factor=config.initializer_factor,
        **tokens,
        **settings,
    )
