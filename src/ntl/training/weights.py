"""The weights of a model: in a checkpoint, and sharded over the ranks of a run."""

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

from ntl.models.lora import LORA, merged_state, trained_state
from ntl.runs.folder import WEIGHTS
from ntl.system.errors import one_line_when_edited

ADAPTERS = "trained.safetensors"


def _has_adapters(model: nn.Module) -> bool:
    return any(LORA in name for name, _ in model.named_parameters())


def save_model(model: Any, folder: Path, state: dict[str, torch.Tensor] | None = None) -> None:
    """Write config and weights; for a model with adapters, the merged weights and the adapters.

    ``state`` passes the full weights of a sharded model.
    """
    if _has_adapters(model):
        folder.mkdir(parents=True, exist_ok=True)
        adapters = {name: tensor.contiguous() for name, tensor in trained_state(model).items()}
        safetensors.torch.save_file(adapters, folder / ADAPTERS)
        state = merged_state(model)
    model.save_pretrained(folder, state_dict=state)


def load_model(model: Any, folder: Path) -> None:
    """Load what ``save_model`` wrote of the same model. UserError: it is something else."""
    with one_line_when_edited(folder, ADAPTERS if _has_adapters(model) else WEIGHTS):
        if _has_adapters(model):
            state = safetensors.torch.load_file(folder / ADAPTERS)
            for name, tensor in trained_state(model).items():
                tensor.copy_(state[name].reshape(tensor.shape))  # copy_ alone would broadcast
            return
        try:
            safetensors.torch.load_model(model, folder / WEIGHTS)
        except RuntimeError:
            model.load_state_dict(_renamed_state(model, folder))


def _renamed_state(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    # Some architectures, such as mixtures of experts, are saved under the names of their published checkpoints.
    # FSDP replaces the class of a sharded model with a subclass; this is the original class.
    model_class = next(base for base in type(model).__mro__ if not issubclass(base, FSDPModule))
    settings = {"config": model.config, "dtype": model.dtype, "output_loading_info": True}
    loaded, info = model_class.from_pretrained(folder, **settings)
    if info["missing_keys"]:  # they would stay random
        raise ValueError(f"it lacks {min(info['missing_keys'])}")
    return loaded.state_dict()


@torch.no_grad()
def load_sharded(model: nn.Module, folder: Path) -> None:
    """Load the weights of a checkpoint of the same model, which every rank reads itself, into a sharded model."""
    whole, parameters = safetensors.torch.load_file(folder / WEIGHTS), dict(model.named_parameters())
    if not parameters.keys() <= whole.keys():
        whole = _renamed_state(model, folder)
    for name, parameter in parameters.items():
        value = whole[name].reshape(parameter.shape).to(parameter.device)
        if isinstance(parameter, DTensor):
            value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.copy_(value)


def whole_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the full weights of a sharded model, on the CPU of every rank; tied weights share one tensor.

    Every rank must call this.
    """
    # The module says which are tied: an empty shard has no address.
    owner = {name: id(parameter) for name, parameter in model.named_parameters(remove_duplicate=False)}
    whole: dict[Any, torch.Tensor] = {}
    state = {}
    for name, value in model.state_dict().items():
        key = owner.get(name, name)
        if key not in whole:
            # Moved to the CPU one by one: all full tensors together may not fit on one device.
            whole[key] = (value.full_tensor() if isinstance(value, DTensor) else value).cpu()
        state[name] = whole[key]
    return state


def all_finite(model: nn.Module) -> bool:
    """Return whether every parameter is finite on every rank. Every rank must call this."""
    parts = [parameter.to_local() if isinstance(parameter, DTensor) else parameter for parameter in model.parameters()]
    count = torch.stack([(~torch.isfinite(part)).sum() for part in parts]).sum()
    if distributed.is_initialized():
        distributed.all_reduce(count)
    return not count
