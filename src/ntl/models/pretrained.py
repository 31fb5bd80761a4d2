"""Models of transformers: T5 and GPT-2 of our shapes, any other decoder from scratch, and any with its weights.

T5 v1.0: Raffel et al., 2020. GPT-2: Radford et al., 2019. A vocabulary grows while every row is kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from ntl.config import model as configs
from ntl.config.model import ModelConfig, gguf_file, source
from ntl.config.settings import nearest
from ntl.models.interface import own_end_ids, pad_id
from ntl.system.errors import UserError
from ntl.system.hub import require

# A regression head of transformers: one output per sequence.
ONE_OUTPUT = {"num_labels": 1, "problem_type": "regression"}
# The shape of a T5 from scratch.
SHAPE = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "initializer_factor")


def build_t5(config: configs.T5Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build an encoder-decoder whose embedding has a row for every token of ``tokenizer``."""
    if config.pretrained:
        return build(config, tokenizer=tokenizer)
    return fit_vocabulary(transformers.T5ForConditionalGeneration(t5_config(config, tokenizer)), tokenizer)


def build_t5_regression(config: configs.T5RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a T5 with one output, a small network that reads the decoder's state at the end token (paper, Table 4).

    The decoder reads the question as well.
    """
    settings: dict[str, Any] = {"classifier_dropout": config.dropout, **ONE_OUTPUT}
    if not config.pretrained:
        network = t5_config(config, tokenizer, **settings)
        return fit_vocabulary(transformers.T5ForSequenceClassification(network), tokenizer)
    if config.dropout is None:  # the head is new, and as the model
        settings["classifier_dropout"] = pretrained_config(config).dropout_rate
    head = "classification_head."
    return load(config, transformers.AutoModelForSequenceClassification, tokenizer, new_weights=head, **settings)


def t5_config(
    config: configs.T5Config, tokenizer: Any, *, config_class: Any = transformers.T5Config, **settings: Any
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


def build_causal(config: configs.CausalConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a decoder whose embedding has a row for every token of ``tokenizer``.

    UserError: the architecture or a setting is unknown, or there is no such dropout.
    """
    if config.pretrained:
        return build(config, tokenizer=tokenizer)
    chosen, where = config.settings, f"model.architecture={config.architecture}"
    try:
        defaults = AutoConfig.for_model(config.architecture)
        settings = {**_vocabulary(config, tokenizer), **dropout_rates(config, defaults), **chosen}
        model = transformers.AutoModelForCausalLM.from_config(AutoConfig.for_model(config.architecture, **settings))
    except UserError:
        raise
    except Exception as error:  # an unknown architecture, a wrong setting and inconsistent shapes differ in type
        raise UserError(f"model={config.name} {where}: {' '.join(str(error).split())[:300]}") from error
    for name in chosen:
        # transformers keeps this one under a private name.
        if name != "attn_implementation" and not hasattr(defaults, name):
            hint = nearest(name, defaults.to_dict())
            raise UserError(f"{where} model.settings.{name}: there is no such setting.{hint}")
    return fit_vocabulary(model, tokenizer)


def build_gpt2(config: configs.GPT2Config, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 whose embedding has a row for every token of ``tokenizer``, including a new one for padding."""
    if config.pretrained:
        return build(config, tokenizer=tokenizer)
    return fit_vocabulary(transformers.GPT2LMHeadModel(_gpt2_config(config, tokenizer)), tokenizer)


def build_gpt2_regression(config: configs.GPT2RegressionConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Build a GPT-2 with one output, a linear function of the hidden state at the last token that is not padding."""
    if config.pretrained:
        return build_regression(config, tokenizer=tokenizer)
    network = _gpt2_config(config, tokenizer, **ONE_OUTPUT)
    return fit_vocabulary(transformers.GPT2ForSequenceClassification(network), tokenizer)


def _vocabulary(config: configs.CausalConfig | configs.GPT2Config, tokenizer: Any) -> dict[str, Any]:
    end = tokenizer.eos_token_id
    roles = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": pad_id(tokenizer)}
    return {"vocab_size": max(config.vocab_size, len(tokenizer)), **roles}


def _gpt2_config(config: configs.GPT2Config, tokenizer: Any, **settings: Any) -> transformers.GPT2Config:
    if config.n_embd % config.n_head:
        raise UserError(f"model.n_embd={config.n_embd}: must be a multiple of model.n_head={config.n_head}.")
    settings |= {name: getattr(config, name) for name in ("n_positions", "n_embd", "n_layer", "n_head")}
    settings |= {**_vocabulary(config, tokenizer), **dropout_rates(config, transformers.GPT2Config())}
    # The same function as the published gelu_new, in one kernel instead of seven.
    return transformers.GPT2Config(activation_function="gelu_pytorch_tanh", **settings)


def build(config: ModelConfig, *, tokenizer: Any) -> PreTrainedModel:
    """Load any decoder or encoder-decoder with its own config: dropout, positions and router.

    Without ``config.pretrained``, the weights are random: of use for sizes alone. UserError: they cannot be read.
    """
    auto_class: Any = transformers.AutoModelForSeq2SeqLM if config.family == "t5" else transformers.AutoModelForCausalLM
    if config.pretrained:
        return load(config, auto_class, tokenizer)
    return auto_class.from_config(pretrained_config(config))


def build_regression(config: ModelConfig, *, tokenizer: Any) -> PreTrainedModel:
    """As ``build``, with a new head, one output: a linear function of the state at the last token before padding."""
    auto_class: Any = transformers.AutoModelForSequenceClassification
    if config.pretrained:
        return load(config, auto_class, tokenizer, new_weights="score.", **ONE_OUTPUT)
    own = pretrained_config(config)
    own.update(ONE_OUTPUT)
    return auto_class.from_config(own)


@contextmanager
def _weights_of(config: ModelConfig) -> Iterator[str]:
    """Yield the folder or hub id of the weights; what fails while they are read becomes one line."""
    name = source(config)
    require(name, gguf_file(config))
    try:
        yield name
    except Exception as error:  # transformers, safetensors and torch raise errors of different types
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if reason.startswith("Unrecognized configuration class"):
            reason = "transformers has no decoder or encoder-decoder of this architecture that writes text."
        raise UserError(f"model {name}: {reason} Give another folder by model.path=.") from error


def pretrained_config(config: ModelConfig) -> Any:
    """Return transformers' config of the pretrained weights. Raises UserError if it cannot be read."""
    with _weights_of(config) as name:
        settings = {"gguf_file": file} if (file := gguf_file(config)) else {}
        return AutoConfig.from_pretrained(name, trust_remote_code=False, **settings)


def dropout_rates(config: ModelConfig, own: Any = None) -> dict[str, Any]:
    """Return ``config.dropout`` under each of the architecture's names for it; {} if it is None: the rates stay.

    ``own`` is transformers' config, by default of the pretrained weights. UserError: there is no dropout to set.
    """
    if config.dropout is None:
        return {}
    own = pretrained_config(config) if own is None else own
    rates = {name: rate for name, rate in own.to_dict().items() if type(rate) in (int, float)}  # a boolean is a switch
    names = [name for name in rates if "drop" in name and "layer" not in name]  # layer dropout is something else
    if config.dropout and not names:
        raise UserError(f"model.dropout={config.dropout}: {own.model_type} has no dropout; set model.dropout=0.")
    return dict.fromkeys(names, config.dropout)


def load(
    config: ModelConfig, auto_class: Any, tokenizer: Any, *, new_weights: str | None = None, **overrides: Any
) -> PreTrainedModel:
    """Load the published or local weights of ``config``, with a row of the embedding for every token of ``tokenizer``.

    ``auto_class`` is one of transformers; ``new_weights`` is the prefix of weights that may be missing from the
    checkpoint, such as a new head's; ``overrides`` replace settings of the checkpoint's config, as
    ``dropout_rates`` do; the weights are float32. UserError: the checkpoint cannot be read, is damaged, or belongs to
    another architecture.
    """
    # transformers 5 would keep the type of the file: in bfloat16 small updates are rounded away.
    settings: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, **dropout_rates(config), **overrides}
    if file := gguf_file(config):
        del settings["use_safetensors"]
        settings |= {"gguf_file": file, "quantization_config": transformers.GgufConfig(dequantize=True)}
    with _weights_of(config) as name:
        model, info = auto_class.from_pretrained(name, output_loading_info=True, trust_remote_code=False, **settings)
    if getattr(model, "peft_config", None):
        raise UserError(f"model {name}: an adapter; merge it with its base model, and give that folder by model.path=.")
    absent = sorted(name for name in info["missing_keys"] if new_weights is None or not name.startswith(new_weights))
    if absent:
        raise UserError(
            f"model {name}: the checkpoint lacks {len(absent)} weights that {config.family} models have, "
            f"{absent[0]} first; give a checkpoint of this architecture by model.path=."
        )
    return fit_vocabulary(model, tokenizer)


def fit_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Add embedding rows for tokens that the checkpoint does not have; its own rows and special tokens stay.

    Special tokens are replaced if the tokenizer's end token is none of theirs: it is not the checkpoint's tokenizer.
    """
    if len(tokenizer) > embedding_rows(model):
        # A head of its own stays, though the config may say that it is tied, as every T5's does.
        model._tied_weights_keys = model.all_tied_weights_keys
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    if tokenizer.eos_token_id not in own_end_ids(model):
        for settings in (model.config, *([model.generation_config] if model.can_generate() else [])):
            settings.pad_token_id, settings.eos_token_id = pad_id(tokenizer), tokenizer.eos_token_id
    elif not model.can_generate():
        model.config.pad_token_id = pad_id(tokenizer)  # a sequence classifier reads the last token before padding
    return model


def embedding_rows(model: Any) -> int:
    """Return V, the width of the model's logits."""
    return int(model.get_input_embeddings().weight.shape[0])
