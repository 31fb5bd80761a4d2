"""CE + NTL and its gradient in one pass over the logits, a chunk of rows at a time, for every kind of number loss.

With z the logits of a row, p their softmax and y the label, a base loss with any target t is

    −Σ_v t_v log p_v = −log p_y − Σ_v t_v (z_v − z_y).

The pass computes the first term. The second reads number-token logits alone (a Gaussian target) or a mean of logits
(label smoothing). Number losses read number-token logits alone, too: autograd computes their gradient from a copy of
these, (M, K), and the pass adds it to its own, which is softmax − target.

Shape suffixes: V vocabulary, D hidden size, K number tokens, N all positions, C the rows of one call, B the rows of a
chunk, M those whose number-token logits are read.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ntl.losses.registry import Terms
from ntl.losses.rows import NumberRows, Weights, number_index, rows_of, upcast, weighted

# The size of a chunk of logits in the type that is computed in; on a CPU, per thread. Larger chunks do not fit into the
# cache of a core; smaller ones spend more time on calls.
CPU_CHUNK_BYTES, GPU_CHUNK_BYTES = 1 << 20, 256 << 20
# The least probability whose logarithm is taken. Softmax rounds smaller ones to 0.
_LEAST = 1e-30


class LMHead(NamedTuple):
    """The head logits = cap · tanh(z / cap) with z = scale · (hidden · weightᵀ + bias), or z itself without a cap.

    ``ntl.models.lm_head`` returns the head of a transformers model.

    Attributes:
        weight: (V, D); the embedding matrix itself if the two are tied.
        bias: (V,) or None.
        scale: T5's d_model^-0.5, Granite's 1 / logits_scaling or Cohere's logit_scale.
        cap: Gemma 2's final_logit_softcapping.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    cap: float | None = None

    def logits(self, hidden: Tensor, tokens: Tensor | None = None) -> Tensor:
        """Return the logits (..., V) of hidden (..., D), or only the logits of K token ids, (..., K).

        Half-precision logits are converted to float32.
        """
        weight, bias = self.weight, self.bias
        if tokens is not None:
            weight, bias = weight[tokens], None if bias is None else bias[tokens]
        return self.of_product(F.linear(hidden, weight, bias))

    def of_product(self, product: Tensor) -> Tensor:
        """Return the logits of hidden · weightᵀ + bias; the product itself if there is nothing to do."""
        logits = upcast(product)
        logits = logits if self.scale == 1 else logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


# Total, base sum and number sum, () each.
_Sums = tuple[Tensor, Tensor, Tensor]
_Gradients = list[Tensor | None]


class _Total(torch.autograd.Function):
    """Map tensors to the sums, of which the total alone has a gradient: ``gradients`` of what ``compute`` saves."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[[], Any], gradients: Callable[..., Any], *_: Tensor | None) -> _Sums:
        sums, saved = compute()
        ctx.gradients = gradients
        ctx.save_for_backward(*saved)
        ctx.mark_non_differentiable(*sums[1:])
        return sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: 'fused', 'linear' and 'triton' have no second derivative; take 'reference'"
            )
        return None, None, *ctx.gradients(ctx.saved_tensors, grad, is_last=not _keeps_graph())


_engine: Any = getattr(torch._C, "_autograd", None)
# Whether the backward pass runs with retain_graph=True. If torch lacks this private function, the answer is yes.
_keeps_graph: Callable[[], bool] = getattr(_engine, "_get_current_graph_task_keep_graph", lambda: True)


def _scaled(gradients: _Gradients, grad: Tensor, is_last: bool, dtypes: list[Any]) -> Iterator[Tensor | None]:
    """Yield the gradients times ``grad`` in the types of the inputs: inf beyond float16, as a GradScaler expects."""
    for gradient, dtype in zip(gradients, dtypes, strict=True):
        if gradient is None:
            yield None
            continue
        if not is_last:  # what is returned must not change in a later pass
            gradient = gradient * grad.to(gradient.dtype)
        elif not (grad.device.type == "cpu" and grad == 1):
            gradient.mul_(grad)
        yield gradient.to(dtype)


def _kept_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which a gradient is kept: an unscaled one underflows in float16."""
    return torch.float32 if dtype == torch.float16 else dtype


class Pass(NamedTuple):
    """All that a pass reads and writes of each of N rows, except the logits.

    Attributes:
        labels: (N, 1), a token id for every row that counts, any valid id for the others.
        counted: (N, 1) bool.
        base: (N, 1), the coefficient of the base loss in the total, and so of −target in the gradient.
        softmax: (N, 1), the coefficient of the softmax in the gradient.
        numbers: (N, K), what is added to the gradient at the number tokens.
        norm: (N, 2), written by Triton: the largest logit, and the logarithm of Σ exp(logit − largest).
        losses: (N, 1), written: −log p_y.
        mean: (N, 1), written with label smoothing: the mean of the logits less the label's.
        mass: (N, K), written: the probabilities of the number tokens. (N, 0) where nothing reads them.
    """

    labels: Tensor
    counted: Tensor
    base: Tensor
    softmax: Tensor
    numbers: Tensor
    norm: Tensor
    losses: Tensor
    mean: Tensor
    mass: Tensor

    def split(self, length: int) -> "list[Pass]":
        """Return views of this many rows each."""
        return [Pass(*views) for views in zip(*(tensor.split(length) for tensor in self), strict=True)]

    def times(self, factor: Tensor | float) -> "Pass":
        """Return the rows whose gradient is multiplied by this."""
        return self._replace(base=self.base * factor, softmax=self.softmax * factor, numbers=self.numbers * factor)


def fast_loss(
    terms: Terms,
    inputs: Tensor,
    head: LMHead | None,
    labels: Tensor,
    weights: Weights | None,
    given: dict[str, Any],
    total_of: Callable[[Tensor, Tensor], Tensor],
    inplace: bool,
    kernel: Any,
) -> _Sums:
    """Return the total with its graph, and the weighted sums of base and number losses without one, () each.

    Args:
        inputs: Logits (..., V), or with a head hidden states (..., D).
        labels: (...), of at least one dimension, as are the weights.
        given: The arguments number_vocab, ignore_index and reduction="none" of the number losses.
        total_of: Returns the total of the two sums, in which it is linear.
        inplace: Write the gradient over the logits.
        kernel: The module ``ntl.losses.kernel``, to compute the passes by Triton. The gradient with respect to logits
            is then written in the backward pass, by which it is multiplied before it is rounded.

    Raises:
        IndexError: A label is not a token id. On a GPU nothing is checked, as this would synchronise with the host.
    """
    vocab, device = given["number_vocab"], inputs.device
    inputs_N, counted_N = inputs.flatten(0, -2), (labels != given["ignore_index"]).flatten()
    labels_N = labels.flatten().where(counted_N, 0)
    if device.type == "cpu" and labels_N.numel():
        (low, high), width = labels_N.aminmax(), inputs.shape[-1] if head is None else len(head.weight)
        if low < 0 or high >= width:
            raise IndexError(f"label {int(low if low < 0 else high)} is not a token id in [0, {width})")
    base_weights, number_weights = weights or (None, None)
    one = torch.ones((), dtype=torch.promote_types(inputs.dtype, torch.float32), device=device)
    base_scale, number_scale = (total_of(*sums).to(one.dtype) for sums in ((one, one - 1), (one - 1, one)))
    base_N1 = (base_scale * (counted_N if base_weights is None else base_weights.flatten())).unsqueeze(1)
    zeros_N1, zeros_NK = torch.zeros_like(base_N1), base_N1.new_zeros(len(base_N1), len(vocab.token_ids))
    columns = labels_N.unsqueeze(1), counted_N.unsqueeze(1), base_N1, base_N1
    written = {"norm": base_N1.new_zeros(len(base_N1), 2), "mass": zeros_NK[:, :0]}
    rows = Pass(*columns, numbers=zeros_NK, losses=zeros_N1.clone(), mean=zeros_N1.clone(), **written)

    kept: Tensor | None = None
    leaves: list[Any] = [inputs_N]
    if head is not None:
        if torch.is_autocast_enabled(device.type):
            dtype = torch.get_autocast_dtype(device.type)
            bias = None if head.bias is None else head.bias.to(dtype)
            inputs_N, head = inputs_N.to(dtype), head._replace(weight=head.weight.to(dtype), bias=bias)
        if not (device.type == "cpu" and counted_N.all()):
            kept = counted_N.nonzero().squeeze(1)  # the logits of other rows are not computed
        leaves = [inputs_N if kept is None else inputs_N.index_select(0, kept), head.weight, head.bias]
    needed = [torch.is_grad_enabled() and leaf is not None and leaf.requires_grad for leaf in leaves]
    leaf_C, later = leaves[0].detach(), kernel if head is None else None
    if later and leaf_C.stride(-1) != 1:
        leaf_C = leaf_C.contiguous()

    def run(rows: Pass, needed: list[bool]) -> _Gradients:
        if later:
            later.launch(later.statistics, leaf_C, leaf_C, rows, vocab.token_ids, terms.smoothing)
            return []
        if head is None:
            return [_of_logits(leaf_C, rows, vocab.token_ids, terms.smoothing, needed[0], inplace)]
        kept_rows = rows if kept is None else Pass(*(tensor[kept] for tensor in rows))
        grads = _of_hidden(leaf_C, head, kept_rows, vocab.token_ids, terms.smoothing, needed, kernel)
        for written, part in zip(rows[-3:], kept_rows[-3:], strict=True):
            written.copy_(part) if kept is None else written.index_copy_(0, kept, part)
        return grads

    def compute() -> tuple[_Sums, _Gradients]:
        pass_rows = rows
        index, counts_M = number_index(labels, vocab, given["ignore_index"])
        flat_M = torch.arange(len(inputs_N), device=device)
        flat_M = flat_M if index is None else flat_M.view_as(labels)[index]
        with torch.no_grad():
            if terms.whole:  # the gradient with respect to the log-sum-exp has to be known before that to the logits
                pass_rows = rows._replace(mass=torch.zeros_like(zeros_NK))
            if terms.whole or later:
                run(pass_rows, [False] * len(needed))
            mass_MK = pass_rows.mass[flat_M] if terms.whole else None
            if head is None:
                picked_MK = inputs_N[flat_M.unsqueeze(1), vocab.token_ids]
            else:
                picked_MK = head.logits(inputs_N[flat_M], vocab.token_ids)
        with torch.set_grad_enabled(any(needed)):
            variables = [upcast(picked_MK).requires_grad_(any(needed))]
            numbers = rows_of(variables[0], labels, vocab, index, counts_M)
            if mass_MK is not None:
                top_M1, at_M1 = numbers.logits_NK.detach().max(-1, keepdim=True)
                log_M1 = mass_MK.gather(-1, at_M1).log()  # the largest number logit less the log-sum-exp
                log_M1 = log_M1 if counts_M is None else log_M1.masked_fill(~counts_M.unsqueeze(1), 0.0)
                variables.append(log_M1.requires_grad_(any(needed)))
                numbers = numbers._replace(log_p_NK=numbers.logits_NK - top_M1 + log_M1)
            number = terms.number(numbers, labels, **given) if terms.numbers else zeros_N1.view_as(labels)
            number_sum = weighted(number, number_weights).sum()
            target_N1 = zeros_N1.index_put((flat_M,), _target_part(numbers, terms.soft_target(numbers)))
            objective = number_scale * number_sum - (base_N1 * target_N1).sum()
        if objective.requires_grad:
            patch_MK, *of_log = torch.autograd.grad(objective, variables)
            softmax_N1 = base_N1.index_add(0, flat_M, -of_log[0]) if of_log else base_N1
            pass_rows = rows._replace(numbers=zeros_NK.index_put((flat_M,), patch_MK), softmax=softmax_N1)
        with torch.no_grad():
            saved = [leaf_C, *pass_rows] if later else run(pass_rows, needed)
            losses_N1 = rows.losses - terms.smoothing * rows.mean - target_N1
            losses_N1 = rows.losses.where(rows.losses.isinf(), losses_N1).where(rows.counted, 0.0)
            base_sum = weighted(losses_N1.view_as(labels), base_weights).sum()
            return (total_of(base_sum, number_sum), base_sum, number_sum.detach()), saved

    gradients: Any = partial(_scaled, dtypes=[None if leaf is None else leaf.dtype for leaf in leaves])
    if later:
        gradients = partial(later.written, token_ids=vocab.token_ids, smoothing=terms.smoothing, inplace=inplace)
    with nullcontext() if head is None else torch.autocast(device.type, enabled=False):
        return _Total.apply(compute, gradients, *leaves) if any(needed) else compute()[0]


def _target_part(numbers: NumberRows, target_MK: Tensor | None) -> Tensor:
    """Return Σ_k t_k (z_k − z_y) of a soft target t, (M, 1), with its graph; 0 without one and at text labels."""
    if target_MK is None:
        return torch.zeros_like(numbers.targets_N).unsqueeze(1)
    differences_MK = numbers.logits_NK - numbers.logits_NK.gather(-1, numbers.tokens_N.unsqueeze(1))
    # Far from the label the target underflows to 0, and 0 · -inf must be 0.
    part_M1 = (target_MK * differences_MK.masked_fill(target_MK == 0, 0.0)).sum(-1, keepdim=True)
    return part_M1 if numbers.counts_N is None else part_M1.where(numbers.counts_N.unsqueeze(1), 0.0)


def _of_logits(
    logits_CV: Tensor,
    rows: Pass,
    token_ids: Tensor,
    smoothing: float,
    needed: bool,
    inplace: bool,
    cap: float | None = None,
) -> Tensor | None:
    """Write the losses of the rows; return the gradient, if it is needed, with respect to the logits before the cap.

    Whatever the type of the logits, everything is computed in the type of the coefficients.
    """
    (count, width), dtype, on_cpu = logits_CV.shape, rows.base.dtype, logits_CV.device.type == "cpu"
    max_bytes = CPU_CHUNK_BYTES * torch.get_num_threads() if on_cpu else GPU_CHUNK_BYTES
    length = max(1, max_bytes // max(width * dtype.itemsize, 1))
    out_CV = None
    if needed:
        out_CV = logits_CV if inplace else torch.empty_like(logits_CV, dtype=_kept_dtype(logits_CV.dtype))
    buffer_BV = None
    if out_CV is None or inplace or out_CV.dtype != dtype:
        # One buffer for all chunks: page faults of fresh memory take longer than the computation.
        buffer_BV = logits_CV.new_empty((min(length, count), width), dtype=dtype)
    all_counted, unlikely = on_cpu and bool(rows.counted.all()), []
    for place, part in enumerate(rows.split(length) if count else []):
        chunk = slice(place * length, (place + 1) * length)
        logits_BV, out_BV = logits_CV[chunk], None if out_CV is None else out_CV[chunk]
        if on_cpu and not all_counted and not part.counted.any():
            if out_BV is not None:
                out_BV.zero_()
            continue
        work_BV: Any = out_BV if buffer_BV is None else buffer_BV[: len(logits_BV)]
        torch.softmax(logits_BV if logits_BV.dtype == dtype else work_BV.copy_(logits_BV), -1, out=work_BV)
        torch.gather(work_BV, -1, part.labels, out=part.losses)
        # On a GPU the exact loss is always computed, because the check would synchronise with the host.
        is_likely = on_cpu and part.losses.amin().item() > _LEAST
        if smoothing or not is_likely:
            label_B1 = logits_BV.gather(-1, part.labels).to(dtype)
            if smoothing:
                part.mean.copy_((logits_BV - label_B1).mean(-1, keepdim=True))
            if not is_likely:
                top_B1 = logits_BV.amax(-1, keepdim=True).to(dtype)
                unlikely.append((chunk, top_B1 - label_B1 - work_BV.amax(-1, keepdim=True).log()))
        if part.mass.numel():
            part.mass.copy_(work_BV[:, token_ids])
        if out_BV is None:
            continue
        work_BV.mul_(part.softmax)
        if smoothing:
            work_BV.sub_(part.base * (smoothing / width))
        work_BV.scatter_add_(-1, part.labels, part.base * (smoothing - 1))
        work_BV.scatter_add_(-1, token_ids.expand(len(work_BV), -1), part.numbers)
        if cap is not None:
            work_BV.mul_(1 - (logits_BV / cap).square())
        if not all_counted:
            work_BV.masked_fill_(~part.counted, 0.0)
        if work_BV is not out_BV:
            out_BV.copy_(work_BV)
    is_likely = rows.losses > _LEAST
    rows.losses.log_().neg_()
    for chunk, losses_B1 in unlikely:
        rows.losses[chunk] = rows.losses[chunk].where(is_likely[chunk], losses_B1)
    return out_CV


def _of_hidden(
    hidden_CD: Tensor, head: LMHead, rows: Pass, token_ids: Tensor, smoothing: float, needed: list[bool], kernel: Any
) -> _Gradients:
    """Write the losses of the rows; return the gradients of hidden states, weight and bias, None for those not needed.

    Those of weight and bias are accumulated in float32 if the inputs are in half precision.
    """
    weight, dtype = head.weight.detach(), rows.base.dtype
    bias = None if head.bias is None else head.bias.detach()
    hidden_grad = torch.empty_like(hidden_CD) if needed[0] else None
    in_place = dtype == hidden_CD.dtype and len(hidden_CD) > 0  # the first chunk is written, not added to zeros
    fresh = torch.empty_like if in_place else torch.zeros_like
    weight_grad = fresh(weight, dtype=dtype) if needed[1] else None
    bias_grad = torch.zeros_like(bias, dtype=dtype) if bias is not None and needed[2] else None
    if kernel is None:
        step = max(64, weight.shape[1])  # with D rows, a chunk of logits is as large as the weight
    else:
        step = max(64, kernel.cache_bytes(weight.device) // (len(weight) * weight.itemsize))
    largest = unit = 1.0  # of the gradient: float16 cannot represent one that is divided by many rows
    is_half = hidden_CD.dtype == torch.float16 and len(hidden_CD) > 0
    if is_half:
        coefficients = torch.cat([rows.base, rows.softmax, rows.numbers], -1)
        largest = coefficients.abs().amax().clamp(min=torch.finfo(dtype).tiny)
        bound = hidden_CD.abs().amax().to(dtype) * min(step, len(hidden_CD))  # nor a sum over rows, of the weight's
        unit = torch.exp2((bound / 2**13).log2().ceil()).clamp(min=1.0)
    rows = rows.times(head.scale / largest)
    # One buffer for all chunks: page faults of fresh memory take as long as the pass over the logits.
    buffer_BV = hidden_CD.new_empty((min(step, len(hidden_CD)), len(weight)))
    for place, part in enumerate(rows.split(step) if len(hidden_CD) else []):
        chunk = slice(place * step, (place + 1) * step)
        hidden_BD, gradient_BV = hidden_CD[chunk], buffer_BV[: len(part.labels)]
        if bias is None:
            torch.mm(hidden_BD, weight.t(), out=gradient_BV)
        else:
            torch.addmm(bias, hidden_BD, weight.t(), out=gradient_BV)
        if kernel is None:
            logits_BV = head.of_product(gradient_BV)
            _of_logits(logits_BV, part, token_ids, smoothing, any(needed), True, head.cap)
            if logits_BV is not gradient_BV:
                gradient_BV.copy_(logits_BV)
            del logits_BV  # frees it before the next chunk is computed
        else:
            kernel.of_chunk(gradient_BV, part, token_ids, smoothing, head, any(needed))
        if bias_grad is not None:
            bias_grad += gradient_BV.sum(0, dtype=dtype)
        if hidden_grad is not None:
            torch.mm(gradient_BV, weight, out=hidden_grad[chunk])
        if weight_grad is not None and in_place:
            weight_grad.addmm_(gradient_BV.t(), hidden_BD, beta=min(place, 1))
        elif weight_grad is not None:
            weight_grad += gradient_BV.t() @ (hidden_BD / unit if is_half else hidden_BD)
    kept = _kept_dtype(hidden_CD.dtype)
    grads = [None if grad is None else grad.to(kept) for grad in (hidden_grad, weight_grad, bias_grad)]
    scales = (largest, largest * unit, largest)
    return [g if g is None or not is_half else g.mul_(scale) for g, scale in zip(grads, scales, strict=True)]
