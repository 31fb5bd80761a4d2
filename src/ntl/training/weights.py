"""The weights of a checkpoint: a model that ``from_pretrained`` reads, and the adapters that a resume needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch.distributed.fsdp import FSDPModule

from ntl.models.lora import LORA, load_trained, merged_state, trained_state
from ntl.training.checkpoints import WEIGHTS

ADAPTERS = "trained.safetensors"


def has_adapters(model: Any) -> bool:
    """Return whether the model has LoRA adapters."""
    return any(LORA in name for name, _ in model.named_parameters())


def save_model(model: Any, folder: Path, state: dict[str, torch.Tensor] | None = None) -> None:
    """Write config and weights; for a model with adapters, the merged weights and the adapters.

    ``state`` passes the full weights of a sharded model.
    """
    if has_adapters(model):
        folder.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(_contiguous(trained_state(model)), folder / ADAPTERS)
        state = merged_state(model)
    model.save_pretrained(folder, state_dict=state)


def load_model(model: Any, folder: Path) -> None:
    """Load what ``save_model`` wrote into the model.

    Raises:
        RuntimeError: The weights are those of another model.
    """
    if not has_adapters(model):
        _load_full(model, folder)
    elif (folder / ADAPTERS).is_file():
        load_trained(model, safetensors.torch.load_file(folder / ADAPTERS))
    else:
        raise RuntimeError("no adapters")


def read_weights(model: Any, folder: Path) -> Mapping[str, torch.Tensor]:
    """Return the full weights of a checkpoint under the parameter names of ``model``, which may be sharded.

    Raises:
        RuntimeError: The weights are those of another model.
    """
    state = safetensors.torch.load_file(folder / WEIGHTS)
    return state if {name for name, _ in model.named_parameters()} <= state.keys() else _renamed_state(model, folder)


def _load_full(model: Any, folder: Path) -> None:
    try:
        safetensors.torch.load_model(model, folder / WEIGHTS)
    except RuntimeError:
        model.load_state_dict(_renamed_state(model, folder))


def _renamed_state(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    # Some architectures, such as mixtures of experts, are saved under the names of their published checkpoints.
    options = {"config": model.config, "dtype": model.dtype, "output_loading_info": True}
    # FSDP replaces the class of a sharded model with a subclass; this is the original class.
    model_class = next(each for each in type(model).__mro__ if not issubclass(each, FSDPModule))
    saved, info = model_class.from_pretrained(folder, **options)
    if info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"]:
        raise RuntimeError("other names or shapes")
    return saved.state_dict()


def _contiguous(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.contiguous() for name, tensor in state.items()}
