"""Low-rank adaptation with peft: which weights are trained, and which of them a checkpoint stores."""

from typing import Any

import torch
from transformers import PreTrainedModel

from ntl.config.model import LoraConfig
from ntl.system.errors import UserError, needs

LORA = "lora_"


def add_lora(model: PreTrainedModel, config: LoraConfig) -> PreTrainedModel:
    """Freeze the model, in place, and add an adapter to every linear layer, except in ``config.full``, fully trained.

    Raises UserError if peft is not installed, ``config.full`` matches no weight, or the model takes no adapters.
    """
    with needs("lora"):
        import peft
    names = [name for name, _ in model.named_parameters()]
    if absent := [prefix for prefix in config.full if not any(name.startswith(prefix) for name in names)]:
        raise UserError(f"model.lora.full: no weight's name begins with {absent[0]!r}; give one such as {names[0]!r}.")
    full = tuple(config.full)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType] - peft takes any number
        lora_dropout=config.dropout,
        target_modules="all-linear",
        exclude_modules=[name for name, _ in model.named_modules() if f"{name}.".startswith(full)] if full else None,
        # GPT-2's Conv1D layers store their weight transposed; peft would warn about each of them.
        fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in model.modules()),
    )
    try:
        peft.inject_adapter_in_model(settings, model)
    except ValueError as error:  # layers whose kernels read the weights themselves, as in Mamba
        raise UserError(
            f"model.lora.rank={config.rank}: adapters do not fit a model of the type {model.config.model_type} "
            f"({str(error).splitlines()[0]}); leave model.lora out."
        ) from error
    for name, parameter in model.named_parameters():
        if name.startswith(full):
            parameter.requires_grad_(True)
    return model


def parameters(model: PreTrainedModel) -> int:
    """Return the number of weights, without adapters."""
    return sum(parameter.numel() for name, parameter in model.named_parameters() if LORA not in name)


def trained_state(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the trainable weights by their names in the model."""
    return {name: parameter.detach() for name, parameter in model.named_parameters() if parameter.requires_grad}


@torch.no_grad()
def merged_state(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return the weights with merged adapters, on the CPU: a plain model's state dict, for ``from_pretrained``."""
    from peft.tuners.lora import LoraLayer

    weights = model.state_dict().items()
    state = {name.replace(".base_layer.", "."): tensor.cpu() for name, tensor in weights if LORA not in name}
    layers: Any = [(f"{name}.weight", layer) for name, layer in model.named_modules() if isinstance(layer, LoraLayer)]
    for name, layer in layers:
        state[name] = state[name] + layer.get_delta_weight("default").cpu().to(state[name].dtype)
    return state
