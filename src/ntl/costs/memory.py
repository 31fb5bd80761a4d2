"""The memory of one training step: every tensor of a real forward and backward pass, on shapes alone.

Shapes: B batch, S and T lengths, H heads, D size of a head, E experts.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
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

# Shapes are traced as those of CPU tensors: they have autocast, which tensors of the meta device have not.
DEVICE = "cpu"


# The backward pass adds to a gradient in its place if nobody else holds it and it is no view; of shapes, which are a
# subclass of tensors, it makes a new one each time.
VIEW = "_ntl_view"
IN_PLACE = {
    torch.ops.aten.add.Tensor: torch.ops.aten.add_.Tensor,
    torch.ops.aten.index_put.default: torch.ops.aten.index_put_.default,
}


class LiveBytes(TorchDispatchMode):
    """Records when each storage comes and goes: ``events`` are (storage, bytes), the bytes negative where it goes.

    Real tensors that meet shapes become shapes; what depends on real tensors alone, such as which positions are
    labelled, is computed.
    """

    def __init__(self, weights: Iterable[Tensor]) -> None:
        """``weights`` are there all the time and count for nothing."""
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
        if tensors and not any(isinstance(tensor, FakeTensor) for tensor in tensors):
            with unset_fake_temporarily():
                result = func(*args, **(kwargs or {}))
        else:
            result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.see(leaf)
                if func.is_view:
                    setattr(leaf, VIEW, True)
        return result

    def see(self, tensor: Tensor) -> None:
        """Count the tensor's storage from now on, once."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self.living and address not in self.weights:
            self.living[address] = len(self.events)
            self.events.append((len(self.events), storage.nbytes()))
            weakref.finalize(storage, self._gone, address)

    def _gone(self, address: int) -> None:
        key = self.living.pop(address)
        self.events.append((key, -self.events[key][1]))

    def key(self, tensor: Tensor) -> int:
        """The name of the tensor's storage in ``events``."""
        return self.living[tensor.untyped_storage()._cdata]


def _positions(index: Tensor | None) -> tuple[Tensor | None, ...]:
    # What a mask chooses has a shape only where the mask is real.
    if index is None or index.dtype != torch.bool or isinstance(index, FakeTensor):
        return (index,)
    with unset_fake_temporarily():
        return index.nonzero(as_tuple=True)


class _OneKernel(torch.autograd.Function):
    """What a fused kernel keeps: its inputs, its output, and ``extra`` bytes; in return a gradient for each input."""

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
        needed = zip(inputs, ctx.needs_input_grad[2:], strict=True)
        return None, None, *(torch.empty_like(one) if needs else None for one, needs in needed)


def kernels(*, fused: bool) -> ExitStack:
    """A context with kernels that shapes cannot choose: torch has no float32 shapes for grouped matrix products.

    With ``fused``, those of a GPU: attention that keeps no scores, and dropout that keeps one byte an element. They
    take the place of torch's functions: a mode that intercepts calls is off while checkpointing computes again.
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
    # query (B, H, T, D), key and value (B, H, S, D); beside the output one float32 a row of scores is kept.
    inputs = [query, key, value, attn_mask]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        inputs[3] = attn_mask.to(query.dtype)
    if torch.is_autocast_enabled(DEVICE):
        dtype = torch.get_autocast_dtype(DEVICE)
        inputs = [None if one is None else one.to(dtype) for one in inputs]
    return _OneKernel.apply((*query.shape[:-1], value.shape[-1]), tuple(query.shape[:-1]), *inputs)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, True)[0] if training and 0 < p < 1 else input


@dataclass(frozen=True)
class Timeline:
    """Bytes beside weights and optimizer state after each event of a step, for one batch size.

    ``all_N`` and, without those that end as gradients, ``passing_N``, both (N,) int64.
    """

    all_N: np.ndarray
    passing_N: np.ndarray


@dataclass(frozen=True)
class Growth:
    """Timelines of every batch size: each event's bytes are ``fixed`` + B x ``each``, of both kinds (2, N)."""

    fixed: np.ndarray
    each: np.ndarray

    @classmethod
    def between(cls, small: Timeline, large: Timeline, sizes: tuple[int, int]) -> "Growth":
        """From two timelines of different batch sizes. ValueError unless their events are the same."""
        first, second = (np.stack([line.all_N, line.passing_N]) for line in (small, large))
        each = (second - first) // (sizes[1] - sizes[0])
        return cls(first - sizes[0] * each, each)

    def peak(self, batch: int) -> int:
        """Most bytes at a time, gradients among them."""
        return int((self.fixed[0] + batch * self.each[0]).max())

    def activations(self, batch: int) -> int:
        """Most bytes at a time that are no gradients."""
        return int((self.fixed[1] + batch * self.each[1]).max())

    def largest_batch(self, room: int) -> int:
        """The largest batch whose peak is at most ``room`` bytes, 0 if there is none."""
        grows = self.each[0] > 0
        if room < self.peak(0):
            return 0
        return int(((room - self.fixed[0][grows]) // self.each[0][grows]).min())


@contextmanager
def _collected() -> Iterator[None]:
    # A cycle that is collected at another moment would make another timeline.
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def shapes_of(model: nn.Module, mode: FakeTensorMode) -> None:
    """Turn the parameters and buffers of a model on the meta device into shapes of ``mode``; tied ones stay tied."""
    made: dict[int, Tensor] = {}
    for module in model.modules():
        stores: list[dict[str, Any]] = [module._parameters, module._buffers]
        for store in stores:
            for name, tensor in store.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    with mode:
                        shape: Tensor = torch.empty_like(tensor, device=DEVICE)
                    if isinstance(tensor, nn.Parameter):
                        shape = nn.Parameter(shape, requires_grad=tensor.requires_grad)
                    made[id(tensor)] = shape
                store[name] = made[id(tensor)]


def trace(
    objective: nn.Module,
    batch: Mapping[str, Tensor],
    mode: FakeTensorMode,
    *,
    bf16: bool = False,
    fused: bool = True,
    accumulate: bool = False,
) -> Timeline:
    """One forward and backward pass of an objective whose parameters are shapes of ``mode``.

    With ``accumulate`` the gradients of an earlier batch are there already.
    """
    trained = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = None
    live = LiveBytes((*objective.parameters(), *objective.buffers()))
    objective.train()
    with _collected(), ExitStack() as stack:
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
    keys = {live.key(parameter.grad) for parameter in trained if parameter.grad is not None}
    deltas = np.array([size for _, size in live.events], dtype=np.int64)
    kept = np.array([key in keys for key, _ in live.events])
    return Timeline(np.cumsum(deltas), np.cumsum(np.where(kept, 0, deltas)))
