"""The bytes that the Triton kernels, and all operations beside them, read and write."""

import math
import os
import platform
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, KINDS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ntl.losses import categorical, ce_ntl, joint, linear_ce_ntl, rows
from ntl.losses.registry import kinds

if platform.system() != "Linux":
    pytest.skip("Triton has no wheel here", allow_module_level=True)

interpreted = pytest.mark.skipif("TRITON_INTERPRET" not in os.environ, reason="kernels are compiled for the GPU here")
FAST = [kind for kind in sorted({*kinds(), *KINDS}) if kind != "emo"]


class Moved(TorchDispatchMode):
    """Counts the bytes that operations read and write; of an indexed tensor only what is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.made: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name.startswith(("empty", "detach", "alias")):
            return result
        read = args[1:] if name in ("index", "gather", "index_select") else args
        again = [result] if read is not args else []
        tensors = [each for each in tree_leaves((read, kwargs, again, result)) if isinstance(each, Tensor)]
        self.bytes += sum(each.numel() * each.itemsize for each in tensors)
        if "out" not in (kwargs or {}) and not name.endswith("_"):
            self.made += [tuple(each.shape) for each in tree_leaves(result) if isinstance(each, Tensor)]
        return result

    def launch(self, each: Any, logits: Tensor, out: Tensor, columns: Any, *_: Any) -> None:
        """Count what `test_a_kernel_reads_each_logit_once` finds, and compute nothing."""
        passes = [logits, out] if each.__name__ == "gradient" else [logits]
        self.bytes += sum(tensor.numel() * tensor.itemsize for tensor in (*passes, *columns))


@interpreted
def test_a_kernel_reads_each_logit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = joint.triton_kernel(None)
    from triton.runtime.interpreter import InterpreterBuilder

    moved: dict[str, int] = {}

    def counting(name: str) -> Callable[..., Any]:
        original, place = getattr(InterpreterBuilder, name), {"create_masked_load": 1, "create_masked_store": 2}[name]

        def call(builder: Any, *args: Any) -> Any:
            size = args[0].dtype.scalar.element_ty.primitive_bitwidth // 8
            moved[name] = moved.get(name, 0) + int(args[place].data.sum()) * size
            return original(builder, *args)

        return call

    for name in ("create_masked_load", "create_masked_store"):
        monkeypatch.setattr(InterpreterBuilder, name, counting(name))
    logits = torch.randn(2, 32_128, dtype=torch.bfloat16).requires_grad_()
    labels, each = torch.tensor([4, -100]), 32_128 * 2
    total = ce_ntl(logits, labels, DIGITS, implementation="triton").total
    assert each < moved.pop("create_masked_load") < 1.01 * each  # of one row: the other is ignored
    assert moved.pop("create_masked_store") < 0.01 * each
    total.backward()
    assert each < moved.pop("create_masked_load") < 1.01 * each
    assert 2 * each <= moved.pop("create_masked_store") < 2.01 * each  # zeros in the other
    assert kernel.INTERPRETED


@pytest.mark.parametrize("kind", FAST)
def test_three_times_the_logits_are_moved(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On tensors without data, by the operations of a GPU, where the number rows are all positions."""
    for module in (rows, categorical, joint):
        monkeypatch.setattr(module, "keeps_shapes", lambda labels: True)
    times = {}
    for how in ("triton", "fused"):
        moved = Moved()
        monkeypatch.setattr(joint.triton_kernel(None), "launch", moved.launch)
        logits = torch.empty(32, 64, 32_128, dtype=torch.bfloat16, device="meta").requires_grad_()
        labels = torch.empty(32, 64, dtype=torch.long, device="meta")
        with moved:
            ce_ntl(
                logits, labels, DIGITS.to("meta"), kind=kind, implementation=how, **KINDS.get(kind, {})
            ).total.backward()
        times[how] = moved.bytes / (logits.numel() * logits.itemsize)
    assert 3.0 < times["triton"] < 3.3
    assert times["fused"] > 15  # the counter does count


@interpreted
def test_of_each_chunk_there_is_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, moved = joint.triton_kernel(None), Moved()
    monkeypatch.setattr(kernel, "launch", moved.launch)
    monkeypatch.setattr(kernel, "cache_bytes", lambda device: 64 * 4096 * 2)
    hidden, weight = (torch.zeros(size, 8, dtype=torch.bfloat16, requires_grad=True) for size in (256, 4096))
    with moved:
        linear_ce_ntl(hidden, weight, torch.full((256,), 5), DIGITS, implementation="triton").total.backward()
    made = sum(math.prod(shape) for shape in moved.made if shape != weight.shape)  # but the product for its gradient
    assert moved.made.count((64, 4096)) == 1
    assert made < 1.2 * 64 * 4096
