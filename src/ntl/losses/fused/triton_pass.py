"""The pass over the rows as one Triton kernel: one program per row, which is read twice and written once.

Only this module imports Triton, and it is itself imported only when "triton" is asked for. Its speed has not been
measured.

Shape suffixes: V vocabulary, K number tokens, N all rows, M those whose number-token logits are read.
"""

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from ntl.losses.fused.chunks import RowBatch, gradient_dtype

# The columns that are read at a time, and the warps that share them. Our choice; other values have not been measured.
BLOCK, WARPS = 4096, 8


def triton_pass(logits_NV: Tensor, rows: RowBatch, inplace: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `ntl.losses.fused.passes.chunked_pass` in one kernel launch, without synchronising with the host.

    The logits are float32, bfloat16 or float16. Labels are not checked beforehand: if one that counts is not a token
    id, its loss is NaN.
    """
    if logits_NV.stride(-1) != 1:
        logits_NV = logits_NV.contiguous()
    shape, dtype = logits_NV.shape, gradient_dtype(logits_NV)
    buffer_NV = logits_NV if inplace else torch.empty(shape, dtype=dtype, device=logits_NV.device)
    base_N, lse_2N = rows.scales.base.new_empty(len(logits_NV)), rows.scales.base.new_empty(2, len(logits_NV))
    if not len(logits_NV):
        return buffer_NV, base_N, lse_2N
    part, (size, width), tokens = rows.part, logits_NV.shape, len(rows.token_ids)
    with torch.cuda.device_of(logits_NV):  # a launch goes to the current device
        row_kernel[(size,)](  # pyright: ignore[reportIndexIssue]
            logits_NV,
            buffer_NV,
            rows.labels,
            rows.counted,
            rows.token_ids,
            _expand_to_all_rows(part.patch_MK, rows),
            _expand_to_all_rows(part.excess_MK, rows),
            _expand_to_all_rows(part.soft_M, rows),
            _expand_to_all_rows(part.top_M, rows),
            _expand_to_all_rows(part.is_soft_M, rows),
            rows.scales.base,
            rows.scales.number,
            rows.weights,
            rows.smoothing,
            base_N,
            lse_2N[0],
            lse_2N[1],
            width,
            tokens,
            logits_NV.stride(0),
            buffer_NV.stride(0),
            BLOCK=min(BLOCK, triton.next_power_of_2(width)),
            BLOCK_K=triton.next_power_of_2(tokens),
            SMOOTH=rows.smoothing > 0,
            num_warps=WARPS,  # pyright: ignore[reportCallIssue] - the launcher's own
        )
    return buffer_NV, base_N, lse_2N


def _expand_to_all_rows(part_M: Tensor | None, rows: RowBatch) -> Tensor | None:
    """Expand (M, ...) to (N, ...) with zeros for the other rows; on a GPU, M and N are equal."""
    if part_M is None or len(part_M) == len(rows.labels):
        return None if part_M is None else part_M.detach().contiguous()
    return part_M.new_zeros((len(rows.labels), *part_M.shape[1:])).index_copy(0, rows.numbers, part_M.detach())


@triton.jit
def row_kernel(
    logits,
    gradient,
    labels,
    counted,
    token_ids,
    patch,
    excess,
    soft,
    soft_top,
    is_soft,
    base_scale,
    number_scale,
    weights,
    smoothing,
    base_losses,
    tops,
    rests,
    V,
    K,
    logits_stride,
    gradient_stride,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SMOOTH: tl.constexpr,
):
    """Write the loss, both parts of the log-sum-exp and the gradient of row program_id(0).

    The formulas are those of `compute_losses_and_gradient` in ntl.losses.fused.chunks. ``counted``, ``weights``,
    ``patch``, ``excess``, and ``soft``, ``soft_top`` and ``is_soft``, are None if they are not needed. ``gradient`` may
    be ``logits`` itself. Everything is computed in float32.
    """
    row = tl.program_id(0).to(tl.int64)  # N·V may be beyond int32
    logits += row * logits_stride
    gradient += row * gradient_stride
    if counted is not None:  # noqa: SIM102, the outer condition is decided when the kernel is compiled
        if tl.load(counted + row) == 0:
            for start in range(0, V, BLOCK):
                columns = start + tl.arange(0, BLOCK)
                tl.store(gradient + columns, tl.zeros((BLOCK,), tl.float32), mask=columns < V)
            tl.store(base_losses + row, 0.0)
            tl.store(tops + row, 0.0)
            tl.store(rests + row, 0.0)
            return

    label = tl.load(labels + row)
    target = tl.load(logits + label, mask=(label >= 0) & (label < V), other=float("nan")).to(tl.float32)
    largest = -float("inf")
    total = 0.0
    spread = 0.0
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        z = tl.load(logits + columns, mask=columns < V, other=-float("inf")).to(tl.float32)
        now = tl.maximum(largest, tl.max(z, 0))
        # All of a block may be -inf, and -inf - -inf is NaN.
        shift = tl.where(now == -float("inf"), 0.0, now)
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(z - shift), 0)
        largest = now
        if SMOOTH:
            spread += tl.sum(tl.where(columns < V, z - target, 0.0), 0)
    top = tl.where(largest == -float("inf"), 0.0, largest)
    rest = tl.log(total)

    scale = tl.load(base_scale)
    costly = tl.load(number_scale)
    weight = 1.0
    if weights is not None:
        weight = tl.load(weights + row)
        scale *= weight
        costly *= weight
    hot = scale
    loss = rest + (top - target)
    everywhere = 0.0
    if SMOOTH:
        everywhere = scale * (smoothing / V)
        hot = scale * (1 - smoothing)
        loss = tl.where(loss == float("inf"), loss, loss - smoothing * (spread / V))
    if soft is not None:
        replaced = tl.load(is_soft + row) != 0
        loss = tl.where(replaced, rest + (top - tl.load(soft_top + row)) - tl.load(soft + row), loss)
        hot = tl.where(replaced, 0.0, hot)
    tl.store(base_losses + row, tl.where(weight == 0, 0.0, loss * weight))
    tl.store(tops + row, top)
    tl.store(rests + row, rest)

    # The number tokens' entries are computed anew rather than added to the stored ones, which may be rounded.
    k = tl.arange(0, BLOCK_K)
    ids = tl.load(token_ids + k, mask=k < K, other=0)
    p = tl.exp(tl.load(logits + ids, mask=k < K, other=-float("inf")).to(tl.float32) - top - rest)
    more = tl.zeros((BLOCK_K,), tl.float32)
    if excess is not None:
        costs = tl.load(excess + row * K + k, mask=k < K, other=0.0) * costly
        more += p * costs
        scale -= tl.sum(more, 0)
    if patch is not None:
        more += tl.load(patch + row * K + k, mask=k < K, other=0.0)

    tl.debug_barrier()  # in place, all warps must have read the logits of the label and the number tokens
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        z = tl.load(logits + columns, mask=columns < V, other=-float("inf")).to(tl.float32)
        out = tl.exp(z - top - rest) * scale - tl.where(columns == label, hot, 0.0) - everywhere
        tl.store(gradient + columns, out, mask=columns < V)
    tl.debug_barrier()  # the row must be written before its number tokens are overwritten
    tl.store(gradient + ids, p * scale - tl.where(ids == label, hot, 0.0) - everywhere + more, mask=k < K)
