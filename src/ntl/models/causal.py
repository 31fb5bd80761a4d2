"""Any decoder-only model of transformers: published weights, or the same architecture from scratch.

What is special about an architecture, such as Granite's multipliers, Gemma's logit cap or Llama's rotary positions, is
implemented in transformers. Nothing here depends on it.
"""

from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from ntl.config.legality import nearest
from ntl.config.model import CausalConfig
from ntl.models.pretrained import fit_vocabulary, load_pretrained, pretrained_config, vocabulary_rows
from ntl.system.errors import UserError


def build(config: CausalConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a decoder whose embedding has a row for every token of ``tokenizer``.

    ``config.dropout`` applies wherever the architecture has dropout.

    Raises:
        UserError: The architecture or a setting is unknown, the architecture has no dropout although
            ``config.dropout`` is set, or ``config.settings`` sets another rate.
    """
    if config.pretrained:
        rates = _dropout(config, pretrained_config(config))
        return fit_vocabulary(load_pretrained(config, AutoModelForCausalLM, **rates), tokenizer)
    try:
        defaults = AutoConfig.for_model(config.architecture)
        settings = AutoConfig.for_model(
            config.architecture,
            vocab_size=vocabulary_rows(config.vocab_size, tokenizer),
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            **{**_dropout(config, defaults), **config.settings},
        )
        model = AutoModelForCausalLM.from_config(settings)
    except UserError:
        raise
    except Exception as error:  # an unknown architecture, a wrong setting and inconsistent shapes differ in type
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"model={config.name} model.architecture={config.architecture}: {reason}") from error
    for name in config.settings:
        if not hasattr(defaults, name):
            raise UserError(
                f"model.architecture={config.architecture} model.settings.{name}: there is no such setting."
                f"{nearest(name, defaults.to_dict())}"
            )
    return fit_vocabulary(model, tokenizer)


def _dropout(config: CausalConfig, defaults: Any) -> dict[str, Any]:
    """Return ``config.dropout`` under each of the architecture's names for it; ``defaults`` is its default config."""
    values = defaults.to_dict().items()
    # Layer dropout is something else, and a boolean is a switch, not a rate.
    names = [name for name, rate in values if "drop" in name and "layer" not in name and type(rate) in (int, float)]
    if not config.dropout:
        return dict.fromkeys(names, 0.0)
    if not names:
        raise UserError(
            f"model.dropout={config.dropout}: {defaults.model_type} models have no dropout; set model.dropout=0."
        )
    settings = {} if config.pretrained else config.settings
    if all(settings.get(name, config.dropout) != config.dropout for name in names):
        raise UserError(
            f"model.settings.{names[0]}={settings[names[0]]} model.dropout={config.dropout}: two rates for one "
            "dropout; set model.dropout alone."
        )
    return dict.fromkeys(names, config.dropout)
