"""Helpers for the ranks of a run; without torch.distributed there is one rank, which does all work."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor, distribute_tensor

Item = TypeVar("Item")
_ABSENT = object()


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def is_first() -> bool:
    """Return whether this is the first rank, which writes files and prints for all."""
    return rank_and_size()[0] == 0


def is_sharded(model: nn.Module) -> bool:
    """Return whether the weights are sharded over the ranks."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def my_share(count: int) -> range:
    """Return the indices below ``count`` that this rank works on.

    Indices are dealt in turn, so that examples sorted by length are spread evenly over the ranks.
    """
    rank, size = rank_and_size()
    return range(rank, count, size)


def from_all(mine: Sequence[Item]) -> list[Item] | None:
    """Gather every rank's results of ``my_share``, in the order of the indices; None on all ranks but the first."""
    rank, size = rank_and_size()
    if size == 1:
        return list(mine)
    shares: list[Any] | None = [None] * size if rank == 0 else None
    distributed.gather_object(list(mine), shares)
    if shares is None:
        return None
    return [item for row in zip_longest(*shares, fillvalue=_ABSENT) for item in row if item is not _ABSENT]


def whole_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the full weights of a sharded model, on the CPU of every rank; tied weights share one tensor.

    Every rank must call this.
    """
    whole: dict[tuple[int, torch.Size], torch.Tensor] = {}
    state = {}
    for name, value in model.state_dict().items():
        sharded = isinstance(value, DTensor)
        key = (value.to_local() if sharded else value).data_ptr(), value.shape
        if key not in whole:
            # Moved to the CPU one by one: all full tensors together may not fit on one device.
            whole[key] = (value.full_tensor() if sharded else value).cpu()
        state[name] = whole[key]
    return state


def all_finite(model: nn.Module) -> bool:
    """Return whether every parameter is finite on every rank. Every rank must call this."""
    parts = [parameter.to_local() if isinstance(parameter, DTensor) else parameter for parameter in model.parameters()]
    count = torch.stack([(~torch.isfinite(part)).sum() for part in parts]).sum()
    if distributed.is_initialized():
        distributed.all_reduce(count)
    return not count


def load_sharded(model: nn.Module, whole: Mapping[str, torch.Tensor]) -> None:
    """Load full weights, which every rank has read itself, into a sharded model. Ranks do not communicate.

    Raises:
        RuntimeError: The weights are those of another model.
    """
    try:
        for name, parameter in model.named_parameters():
            value = whole[name].to(parameter.device)
            if isinstance(parameter, DTensor):
                value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
            with torch.no_grad():
                parameter.copy_(value)
    except KeyError as error:
        raise RuntimeError(f"no weight {error}") from error
