"""Work that is shared by the processes of one run; alone, a process does it all."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor, distribute_tensor

Item = TypeVar("Item")
_ABSENT = object()


def rank_and_size() -> tuple[int, int]:
    """Of this process and of how many."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def is_first() -> bool:
    """Whether this process writes and speaks for all."""
    return rank_and_size()[0] == 0


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds a part of the weights alone."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def my_share(count: int) -> range:
    """The indices below ``count`` that this process does: every n-th, so that all have equally long ones."""
    rank, size = rank_and_size()
    return range(rank, count, size)


def from_all(mine: Sequence[Item]) -> list[Item] | None:
    """The items of ``my_share`` of every process in the order of their indices, for the first; None for the others."""
    rank, size = rank_and_size()
    if size == 1:
        return list(mine)
    shares: list[Any] | None = [None] * size if rank == 0 else None
    distributed.gather_object(list(mine), shares)
    if shares is None:
        return None
    return [item for row in zip_longest(*shares, fillvalue=_ABSENT) for item in row if item is not _ABSENT]


def whole_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a sharded model, whole, on the CPU of every process; tied ones are one tensor.

    Every process must call this.
    """
    whole: dict[tuple[int, torch.Size], torch.Tensor] = {}
    state = {}
    for name, value in model.state_dict().items():
        sharded = isinstance(value, DTensor)
        key = (value.to_local() if sharded else value).data_ptr(), value.shape
        if key not in whole:
            # One after the other: together they may not fit one device.
            whole[key] = (value.full_tensor() if sharded else value).cpu()
        state[name] = whole[key]
    return state


def all_finite(model: nn.Module) -> bool:
    """Whether no parameter, on any process, holds a NaN or an infinity. Every process must call this."""
    parts = [parameter.to_local() if isinstance(parameter, DTensor) else parameter for parameter in model.parameters()]
    count = torch.stack([(~torch.isfinite(part)).sum() for part in parts]).sum()
    if distributed.is_initialized():
        distributed.all_reduce(count)
    return not count


def load_sharded(model: nn.Module, whole: Mapping[str, torch.Tensor]) -> None:
    """Put whole weights, the same on every process, into a sharded model. RuntimeError for those of another one.

    Nothing is sent: each process keeps its part of what it has read.
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
