"""Any decoder-only model of transformers: published weights, or its architecture from scratch.

Granite's multipliers, logit scaling and router loss, a Gemma's cap, a Llama's rotary positions: all of it is the
model's own code, and nothing here knows of it.
"""

from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ntl.config.legality import nearest
from ntl.config.model import CausalConfig
from ntl.models.pretrained import fit_vocabulary, load_pretrained, pretrained_config, vocabulary_rows
from ntl.system.errors import UserError


def build(config: CausalConfig, *, tokenizer: Any) -> PreTrainedModel:
    """A decoder whose embedding has a row for every token of ``tokenizer``.

    ``config.dropout`` is that of each place where the architecture has dropout. UserError: it has none, or a setting
    of that name.
    """
    if config.pretrained:
        rates = _dropout(config, pretrained_config(config))
        return fit_vocabulary(load_pretrained(config, AutoModelForCausalLM, **rates), tokenizer)
    try:
        known = AutoConfig.for_model(config.architecture)
        settings = AutoConfig.for_model(
            config.architecture,
            vocab_size=vocabulary_rows(config.vocab_size, tokenizer),
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **{**_dropout(config, known), **config.settings},
        )
        model = AutoModelForCausalLM.from_config(settings)
    except UserError:
        raise
    except Exception as error:  # an unknown type, a wrong setting and shapes that do not fit are of three kinds
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"model={config.name} model.architecture={config.architecture}: {reason}") from error
    for name in config.settings:
        if not hasattr(known, name):
            raise UserError(
                f"model.architecture={config.architecture} model.settings.{name}: there is no such setting."
                f"{nearest(name, known.to_dict())}"
            )
    return fit_vocabulary(model, tokenizer)


def _dropout(config: CausalConfig, known: Any) -> dict[str, Any]:
    """``config.dropout`` under every name that an architecture has for it; ``known`` is its config."""
    values = known.to_dict().items()
    # A layer that is left out as a whole is something else, and so is a switch.
    names = [name for name, rate in values if "drop" in name and "layer" not in name and type(rate) in (int, float)]
    if not config.dropout:
        return dict.fromkeys(names, 0.0)
    if not names:
        raise UserError(
            f"model.dropout={config.dropout}: {known.model_type} models have no dropout; set model.dropout=0."
        )
    settings = {} if config.pretrained else config.settings
    if all(settings.get(name, config.dropout) != config.dropout for name in names):
        raise UserError(
            f"model.settings.{names[0]}={settings[names[0]]} model.dropout={config.dropout}: two rates for one "
            "dropout; set model.dropout alone."
        )
    return dict.fromkeys(names, config.dropout)
