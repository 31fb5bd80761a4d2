"""The memory of one training step, from all tensors of its forward and backward pass, traced on shapes alone.

Shapes: B batch, S and T lengths, H heads, D size of a head, E experts.
"""

import gc
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Shapes are traced as those of CPU tensors, because tensors on the meta device do not support autocast.
DEVICE = "cpu"


# Autograd adds to a gradient in place if nothing else refers to it and it is not a view. For fake tensors, which are a
# subclass, it always allocates a new one. These operations are therefore replaced by their in-place forms.
VIEW = "_ntl_view"
IN_PLACE = {
    torch.ops.aten.add.Tensor: torch.ops.aten.add_.Tensor,
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
}


class LiveBytes(TorchDispatchMode):
    """Records when each storage is allocated and freed.

    ``events`` are (storage, bytes), with negative bytes when the storage is freed. Real tensors that are combined with
    fake ones become fake. Operations on real tensors alone, such as finding the labelled positions, are computed.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:  # which are not counted
        super().__init__()
        self.weights = {tensor.untyped_storage()._cdata for tensor in weights}
        self.events: list[tuple[int, int]] = []
        self.living: dict[int, int] = {}
        self.backward = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device
        if self.backward and not torch.is_grad_enabled() and not hasattr(args[0], VIEW):
            func = IN_PLACE.get(func, func)
        if func is torch.ops.aten.index.Tensor:
            args = args[0], [position for index in args[1] for position in _positions(index)]
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        are_real = bool(tensors) and not any(isinstance(tensor, FakeTensor) for tensor in tensors)
        with unset_fake_temporarily() if are_real else nullcontext():
            result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.see(leaf)
                if func.is_view:
                    setattr(leaf, VIEW, True)
        return result

    def see(self, tensor: Tensor) -> None:
        """Count the tensor's storage, unless it is counted already."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self.living and address not in self.weights:
            self.living[address] = len(self.events)
            self.events.append((len(self.events), storage.nbytes()))
            weakref.finalize(storage, self._free, address)

    def _free(self, address: int) -> None:
        key = self.living.pop(address)
        self.events.append((key, -self.events[key][1]))

    def key(self, tensor: Tensor) -> int:
        """Return the number of the tensor's storage in ``events``."""
        return self.living[tensor.untyped_storage()._cdata]


def _positions(index: Tensor | None) -> tuple[Tensor | None, ...]:
    # The number of positions that a mask selects is known only if the mask is real.
    if index is None or index.dtype != torch.bool or isinstance(index, FakeTensor):
        return (index,)
    with unset_fake_temporarily():
        return index.nonzero(as_tuple=True)


class _OneKernel(torch.autograd.Function):
    """The memory of a fused kernel, which saves its inputs, its output and a float32 tensor of shape ``extra``."""

    @staticmethod
    def forward(ctx: Any, shape: tuple[int, ...], extra: tuple[int, ...], *inputs: Tensor | None) -> Tensor:
        first = inputs[0]
        assert first is not None
        output, saved = first.new_empty(shape), first.new_empty(extra, dtype=torch.float32)
        ctx.save_for_backward(*inputs, output, saved)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        inputs = ctx.saved_tensors[:-2]
        pairs = zip(inputs, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(torch.empty_like(tensor) if is_needed else None for tensor, is_needed in pairs)


def kernels(*, fused: bool) -> ExitStack:
    """Return a context in which fake tensors use the kernels that real ones would use.

    Grouped matrix products are always replaced, because torch does not support them for float32 fake tensors. With
    ``fused``, so are attention and dropout, by GPU kernels that save no scores and one byte per element. torch's
    functions are patched instead of intercepted by a mode, which would be off during activation checkpointing.
    """
    stack = ExitStack()
    stack.enter_context(patch.object(torch, "_grouped_mm", _grouped))
    if fused:
        stack.enter_context(patch.multiple(F, scaled_dot_product_attention=_attention, dropout=_dropout))
    return stack


def _grouped(rows: Tensor, weights: Tensor, *_: Any, **__: Any) -> Tensor:
    # rows (N, in), weights (E, in, out) -> (N, out)
    return _OneKernel.apply((len(rows), weights.shape[-1]), (0,), rows, weights)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *_: Any, **__: Any
) -> Tensor:
    # query (B, H, T, D), key and value (B, H, S, D). One float32 per row of scores is saved in addition to the output.
    inputs = [query, key, value, attn_mask]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        inputs[3] = attn_mask.to(query.dtype)
    if torch.is_autocast_enabled(DEVICE):
        dtype = torch.get_autocast_dtype(DEVICE)
        inputs = [None if tensor is None else tensor.to(dtype) for tensor in inputs]
    return _OneKernel.apply((*query.shape[:-1], value.shape[-1]), tuple(query.shape[:-1]), *inputs)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, True)[0] if training and 0 < p < 1 else input


@dataclass(frozen=True)
class Timeline:
    """The bytes after each of the N events of a step, without weights and optimizer state, for one batch size.

    Both are (N,) int64; ``activations_N`` is without the storages of the final gradients.
    """

    total_N: np.ndarray
    activations_N: np.ndarray


@dataclass(frozen=True)
class Growth:
    """The timelines of all batch sizes B: the bytes after each event are ``fixed`` + B x ``each``.

    Both are (2, N), with the total in the first row and the activations in the second.
    """

    fixed: np.ndarray
    each: np.ndarray

    @classmethod
    def between(cls, small: Timeline, large: Timeline, sizes: tuple[int, int]) -> "Growth":
        """Compute them from the timelines of two batch sizes. Raises ValueError unless their events are the same."""
        first, second = (np.stack([timeline.total_N, timeline.activations_N]) for timeline in (small, large))
        each = (second - first) // (sizes[1] - sizes[0])
        return cls(first - sizes[0] * each, each)

    def peak(self, batch: int) -> int:
        """Return the peak bytes, gradients included."""
        return int((self.fixed[0] + batch * self.each[0]).max())

    def activations(self, batch: int) -> int:
        """Return the peak bytes without gradients."""
        return int((self.fixed[1] + batch * self.each[1]).max())

    def largest_batch(self, room: int) -> int:
        """Return the largest batch size whose peak is at most ``room`` bytes, or 0."""
        grows = self.each[0] > 0
        if room < self.peak(0):
            return 0
        return int(((room - self.fixed[0][grows]) // self.each[0][grows]).min())


def shapes_of(model: nn.Module, mode: FakeTensorMode) -> None:
    """Replace the model's meta-device parameters and buffers by fake tensors of ``mode``; tied ones stay tied."""
    created: dict[int, Tensor] = {}
    for module in model.modules():
        stores: list[dict[str, Any]] = [module._parameters, module._buffers]
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None and id(tensor) not in created:
                    with mode:
                        shape: Tensor = torch.empty_like(tensor, device=DEVICE)
                    if isinstance(tensor, nn.Parameter):
                        shape = nn.Parameter(shape, requires_grad=tensor.requires_grad)
                    created[id(tensor)] = shape
                store[name] = created.get(id(tensor))


def trace(
    objective: nn.Module,
    batch: Mapping[str, Tensor],
    mode: FakeTensorMode,
    *,
    bf16: bool = False,
    fused: bool = True,
    accumulate: bool = False,
) -> Timeline:
    """Trace a forward and backward pass of an objective whose parameters are fake tensors of ``mode``.

    With ``accumulate``, the gradients of an earlier batch exist already.
    """
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = None
    live = LiveBytes((*objective.parameters(), *objective.buffers()))
    objective.train()
    gc.collect()
    with ExitStack() as stack:
        gc.disable()  # the timeline must not depend on when reference cycles are collected
        stack.callback(gc.enable)
        for context in (mode, live, kernels(fused=fused)):
            stack.enter_context(context)
        if accumulate:
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
        for tensor in batch.values():
            live.see(tensor)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=bf16):
            loss = objective(**batch).total
        live.backward = True
        loss.backward()
    gradients = {live.key(parameter.grad) for parameter in trained if parameter.grad is not None}
    deltas = np.array([size for _, size in live.events], dtype=np.int64)
    is_gradient = np.array([key in gradients for key, _ in live.events])
    return Timeline(np.cumsum(deltas), np.cumsum(np.where(is_gradient, 0, deltas)))
