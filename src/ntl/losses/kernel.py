"""The pass of `ntl.losses.fast` over the logits as two Triton kernels, which read them twice and write them once.

One program computes one row, in the type of the coefficients, and reads no logit of a row that does not count. Nothing
is added atomically, so that results are the same in every run. With TRITON_INTERPRET=1 in the environment before this
module is imported, the kernels compute tensors of a CPU, very slowly.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from ntl.losses.fast import LMHead, Pass

INTERPRETED = knobs.runtime.interpret
MAX_BLOCK = 8192  # logits of a row that are in registers at a time


@triton.jit
def _logits_at(pointers, mask, dtype: tl.constexpr, scale: tl.constexpr, cap: tl.constexpr):
    """Return cap · tanh(z / cap) with z = scale · what is stored, or z if the cap is 0."""
    values = tl.load(pointers, mask=mask, other=0.0).to(dtype)
    if scale != 1.0:
        values *= scale
    if cap > 0.0:
        small = tl.exp(-2.0 * tl.abs(values / cap))
        values = cap * tl.where(values < 0.0, small - 1.0, 1.0 - small) / (1.0 + small)
    return values


@triton.jit
def statistics(
    logits, out, rows, token_ids, stride, out_stride, width, numbers, masses,
    scale: tl.constexpr, cap: tl.constexpr, smoothing: tl.constexpr, BLOCK: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Write norm, losses, mean and mass of a row."""
    row = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = rows.losses.dtype.element_ty
    if tl.load(rows.counted + row) != 0:
        logits += row * stride
        token = tl.load(rows.labels + row)
        is_token = (token >= 0) & (token < width)  # the loss of any other label is inf
        label = tl.where(is_token, _logits_at(logits + token, is_token, dtype, scale, cap), float("-inf"))
        top, total, above = tl.full((), float("-inf"), dtype), tl.zeros((), dtype), tl.zeros((), dtype)
        for start in range(0, width, BLOCK):
            at = start + tl.arange(0, BLOCK)
            values = tl.where(at < width, _logits_at(logits + at, at < width, dtype, scale, cap), float("-inf"))
            new_top = tl.maximum(top, tl.max(values, 0))
            shift = tl.where(new_top == float("-inf"), 0.0, new_top)  # -inf less -inf is NaN
            total = total * tl.exp(top - shift) + tl.sum(tl.exp(values - shift), 0)
            top = new_top
            if smoothing > 0.0:
                above += tl.sum(tl.where(at < width, values - label, 0.0), 0)
        tl.store(rows.norm + 2 * row, top)
        tl.store(rows.norm + 2 * row + 1, tl.log(total))
        tl.store(rows.losses + row, (top - label) + tl.log(total))
        tl.store(rows.mean + row, above / tl.cast(width, dtype))

        k = tl.arange(0, NUMBERS)
        values = _logits_at(logits + tl.load(token_ids + k, mask=k < masses, other=0), k < masses, dtype, scale, cap)
        tl.store(rows.mass + row * masses + k, tl.exp((values - top) - tl.log(total)), mask=k < masses)


@triton.jit
def _slope(values, is_label, extra, rows, row, width, cap: tl.constexpr, smoothing: tl.constexpr):
    """Return the gradient with respect to the logits before the cap, to which ``extra`` is added."""
    base, log_total = tl.load(rows.base + row), tl.load(rows.norm + 2 * row + 1)
    slope = tl.load(rows.softmax + row) * tl.exp((values - tl.load(rows.norm + 2 * row)) - log_total)
    slope += extra - base * (is_label.to(base.dtype) * (1.0 - smoothing) + smoothing / tl.cast(width, base.dtype))
    if cap > 0.0:
        slope *= 1.0 - (values / cap) * (values / cap)
    return slope


@triton.jit
def gradient(
    logits, out, rows, token_ids, stride, out_stride, width, numbers, masses,
    scale: tl.constexpr, cap: tl.constexpr, smoothing: tl.constexpr, BLOCK: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a row to ``out``, which may be the logits, by its norm; zeros if it does not count."""
    row = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = rows.base.dtype.element_ty
    label, logits, out = tl.load(rows.labels + row), logits + row * stride, out + row * out_stride
    if tl.load(rows.counted + row) != 0:
        k = tl.arange(0, NUMBERS)
        tokens = tl.load(token_ids + k, mask=k < numbers, other=0)
        of_numbers = _logits_at(logits + tokens, k < numbers, dtype, scale, cap)
        extra = tl.load(rows.numbers + row * numbers + k, mask=k < numbers, other=0.0)
        tl.debug_barrier()  # all are read before any is written over
        for start in range(0, width, BLOCK):
            at = start + tl.arange(0, BLOCK)
            values = _logits_at(logits + at, at < width, dtype, scale, cap)
            slope = _slope(values, at == label, 0.0, rows, row, width, cap, smoothing)
            tl.store(out + at, slope.to(out.dtype.element_ty), mask=at < width)
        tl.debug_barrier()  # what follows writes over some of it
        slope = _slope(of_numbers, tokens == label, extra, rows, row, width, cap, smoothing)
        tl.store(out + tokens, slope.to(out.dtype.element_ty), mask=k < numbers)
    else:
        for start in range(0, width, BLOCK):
            at = start + tl.arange(0, BLOCK)
            tl.store(out + at, tl.zeros((BLOCK,), out.dtype.element_ty), mask=at < width)


def launch(
    kernel: Any, logits_CV: Tensor, out_CV: Tensor, rows: Pass, token_ids: Tensor, smoothing: float, *head: Any
) -> None:
    """Run a kernel on all rows, which are contiguous, as is each row of logits; of a product with scale and cap."""
    scale, cap = head or (1.0, None)
    (count, width), numbers = logits_CV.shape, len(token_ids)
    block, columns = (1 << (max(size, 1) - 1).bit_length() for size in (min(width, MAX_BLOCK), numbers))
    sizes = {"BLOCK": block, "NUMBERS": columns, "num_warps": warps(block)}
    shape = (logits_CV.stride(0), out_CV.stride(0), width, numbers, rows.mass.shape[1])
    with torch.cuda.device_of(logits_CV):  # Triton launches on the current device
        kernel[(count,)](logits_CV, out_CV, rows, token_ids, *shape, scale, cap or 0.0, smoothing, **sizes)


def written(
    saved: list[Tensor], grad: Tensor, is_last: bool, token_ids: Tensor, smoothing: float, inplace: bool
) -> list[Tensor]:
    """Return the gradient times ``grad``, of saved logits and rows; over the logits only if no pass follows."""
    logits_CV, *columns = saved
    out_CV = logits_CV if inplace and is_last else torch.empty_like(logits_CV)
    launch(gradient, logits_CV, out_CV, Pass(*columns).times(grad), token_ids, smoothing)
    if out_CV is logits_CV:
        torch.autograd.graph.increment_version(logits_CV)  # torch does not see that it has changed
    return [out_CV]


def of_chunk(product_BV: Tensor, rows: Pass, token_ids: Tensor, smoothing: float, head: LMHead, needed: bool) -> None:
    """Write the losses of the rows of hidden · weightᵀ + bias, and over it the gradient, if it is needed."""
    for kernel in (statistics, gradient)[: 1 + needed]:
        launch(kernel, product_BV, product_BV, rows, token_ids, smoothing, head.scale, head.cap)


def warps(block: int) -> int:
    """Return the num_warps of a block: 16 logits a thread, or all with one warp."""
    return max(block // 512, 1)


def cache_bytes(device: torch.device) -> int:
    """Return the size of the logits of a chunk that stay in the cache of a GPU, beside what else is read."""
    return torch.cuda.get_device_properties(device).L2_cache_size // 2 if device.type == "cuda" else 1 << 20
