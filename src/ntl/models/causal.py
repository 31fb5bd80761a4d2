"""Any decoder-only model of transformers: published weights, or its architecture from scratch.

Granite's multipliers, logit scaling and router loss, a Gemma's cap, a Llama's rotary positions: all of it is the
model's own code, and nothing here knows of it.
"""

from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ntl.config import UserError
from ntl.config.model import CausalConfig
from ntl.models.pretrained import fit_vocabulary, load_pretrained, vocabulary_rows


def build(config: CausalConfig, *, tokenizer: Any) -> PreTrainedModel:
    """A decoder whose embedding has a row for every token of ``tokenizer``."""
    if config.pretrained:
        return fit_vocabulary(load_pretrained(config, AutoModelForCausalLM), tokenizer)
    try:
        settings = AutoConfig.for_model(
            config.architecture,
            vocab_size=vocabulary_rows(config.vocab_size, tokenizer),
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **config.settings,
        )
        model = AutoModelForCausalLM.from_config(settings)
    except Exception as error:  # an unknown type, a wrong setting and shapes that do not fit are of three kinds
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"model={config.name} model.architecture={config.architecture}: {reason}") from error
    return fit_vocabulary(model, tokenizer)
