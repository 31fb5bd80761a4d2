"""What a run takes of a GPU, before it runs: memory and hours, from its config alone.

The model is built as in training, but of fake tensors, which have shapes and no memory. What autograd keeps of a
forward pass of the longest batch is counted, so a model of one's own is priced, too.

- State: float32 weights, gradients and what the optimizer keeps of each weight that is trained, 16 bytes for AdamW
  (Rajbhandari et al., 2020, section 3.1, without the half-precision copies), and 4 bytes for a frozen weight.
- Activations: the tensors saved for the backward pass. SDPA is counted as its fused kernels save it: query, key, value,
  bias, output and the log-sum-exp (Dao et al., 2022); attention by ``eager`` saves its scores. With checkpointing, the
  inputs of all layers, what is outside them, and one layer that is computed again (Chen et al., 2016), with the
  gradient of its largest tensor.
- Logits, their gradient and the scratch of the loss, in copies as measured (docs/performance.md).
- Hours: 2 operations for each multiplication of the forward pass, twice as many in the backward pass, at 40% of the
  device's peak. Training alone: evaluations and decoding come on top.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pandas as pd
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as transformers_logging

from ntl.config import Config, build
from ntl.config.identity import plain
from ntl.config.model import T5Config, tokenizer_source
from ntl.config.settings import nearest
from ntl.config.targets import locate
from ntl.config.trainer import in_steps
from ntl.data.prepared import Prepared, SplitRows
from ntl.models.interface import hidden_states
from ntl.models.pretrained import embedding_rows
from ntl.system.errors import UserError

GIB = 2**30
USED = 0.95  # of a device's memory; CUDA's context and fragments have the rest
UTILIZATION = 0.4
SAMPLE = 1_000  # training rows whose lengths are looked at


class Gpu(NamedTuple):
    """Memory in GiB; peak operations a second of dense matrix products in bfloat16, TF32 and float32."""

    memory: float
    bf16: float
    tf32: float
    fp32: float


# NVIDIA's data sheets, without sparsity. A V100 has neither bfloat16 nor TF32.
GPUS = {
    "h100": Gpu(79.6, 989e12, 495e12, 67e12),
    "a100": Gpu(79.3, 312e12, 156e12, 19.5e12),
    "l40s": Gpu(45.0, 362e12, 183e12, 91.6e12),
    "v100": Gpu(31.7, 0.0, 0.0, 15.7e12),
}
# Bytes a trained weight: 8 of the weight and its gradient, and what the optimizer keeps; adafactor's is negligible.
STATE_BYTES = {"sgd": 8, "adafactor": 8, "adagrad": 12, "rmsprop": 12}
# Logits and what is beyond them, in float32 logits, of float32 and of bfloat16 logits.
LOGITS = {"reference": (5.0, 4.0), "fused": (2.0, 1.0), "triton": (2.0, 1.0), "linear": (0.6, 0.6)}


@dataclass(frozen=True)
class Lengths:
    """Tokens of a padded training batch: of the longest one, and in the mean over batches; ``rows`` to train on."""

    read: int
    written: int
    mean: float
    rows: int | None


@dataclass(frozen=True)
class Trace:
    """Of a forward pass: weights, those that are trained, bytes kept, bytes kept with checkpointing, operations."""

    parameters: int
    trained: int
    vocabulary: int
    kept: float
    checkpointed: float
    operations: float
    is_seq2seq: bool


class _Fused(torch.autograd.Function):
    """The shape of attention, and what its fused kernels save."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        output = query @ key.transpose(-2, -1) @ value
        lse = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, lse, *([] if bias is None else [bias]))
        return output


def _sdpa(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *_: Any, **__: Any) -> Tensor:
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        attn_mask = attn_mask.to(dtype) if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
    if groups := query.shape[1] // key.shape[1] - 1:  # heads that share keys do so without copies
        key, value = (tensor.repeat_interleave(groups + 1, 1) for tensor in (key, value))
    return _Fused.apply(query, key, value, attn_mask)  # pyright: ignore[reportReturnType]


class _Tokenizer(SimpleNamespace):
    """All that building a model asks of its tokenizer."""

    size: int

    def __len__(self) -> int:
        return self.size


def trace(config: Config, rows: int, read: int, written: int, bf16: bool, *, fused: bool = True) -> Trace:
    """Return what a forward pass of ``rows`` examples keeps, read + written tokens each; nothing is computed.

    Without ``fused``, SDPA is torch's own composition of products and softmax.
    """
    sizes: dict[int, int] = {}
    held: list[Tensor] = []  # or the identity of a storage would be used again
    layers: dict[Any, set[int]] = {}
    inputs: set[int] = set()
    inside: list[Any] = [None]

    def storage_of(tensor: Tensor) -> int:
        held.append(tensor)
        return tensor.untyped_storage()._cdata

    def keep(tensor: Tensor) -> Tensor:
        sizes[storage_of(tensor)] = tensor.untyped_storage().nbytes()
        layers.setdefault(inside[-1], set()).add(storage_of(tensor))
        return tensor

    def enter(layer: Any, args: Any, kwargs: Any) -> None:
        inside.append(layer)
        for tensor in (arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)):
            sizes[storage_of(tensor)] = tensor.untyped_storage().nbytes()
            inputs.add(storage_of(tensor))

    def leave(*_: Any) -> None:
        inside.pop()

    attention = _sdpa if fused else torch.nn.functional.scaled_dot_product_attention
    with FakeTensorMode(), mock.patch("torch.nn.functional.scaled_dot_product_attention", attention):
        model = _model(config).train()
        for layer in (module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)):
            layer.register_forward_pre_hook(enter, with_kwargs=True)
            layer.register_forward_hook(leave)
        weights = [*model.parameters()]
        is_seq2seq = model.config.is_encoder_decoder
        length = read if is_seq2seq else read + written
        ids = torch.zeros(rows, length, dtype=torch.long)
        answer = torch.zeros(rows, written, dtype=torch.long) if is_seq2seq else None
        # As transformers makes it of padded rows; a mask (B, S) would be looked into.
        mask = torch.zeros(rows, 1, 1, length) if is_seq2seq else torch.ones(rows, 1, length, length, dtype=torch.bool)
        with (
            torch.autocast("cpu", torch.bfloat16, enabled=bf16),
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            FlopCounterMode(display=False) as counter,
        ):
            if config.model.head == "masked_number":
                states = model.encode(ids, torch.ones(rows, length))
            else:
                states = hidden_states(model, ids, mask, answer)
        for tensor in (*weights, *model.buffers()):
            sizes[storage_of(tensor)] = 0
        width = embedding_rows(model)
    outside = layers.pop(None, set()) | inputs
    of_layers = [[sizes[storage] for storage in layer] for layer in layers.values()]
    one_layer = max((sum(layer_sizes) + max(layer_sizes) for layer_sizes in of_layers), default=0)
    head = 2 * states.numel() * width if config.model.head == "lm" else 0
    return Trace(
        parameters=sum(w.numel() for w in weights),
        trained=_adapters(model, config.model.lora.rank) or sum(w.numel() for w in weights if w.requires_grad),
        vocabulary=width if config.model.head == "lm" else 0,
        kept=sum(sizes[storage] for storage in outside.union(*layers.values()) - (inputs - outside)),
        checkpointed=sum(sizes[storage] for storage in outside) + one_layer,
        operations=counter.get_total_flops() + head,
        is_seq2seq=is_seq2seq,
    )


def _model(config: Config) -> Any:
    """The model without its weights, whose shape its file says, or with given weights their config.json."""
    shape = replace(config.model, pretrained=False)
    if shape.dropout is None and isinstance(shape, T5Config):
        shape.dropout = 0.1  # published
    tokens = max(config.tokenizer.vocab_size, getattr(shape, "vocab_size", 0))
    tokenizer = _Tokenizer(size=tokens, eos_token_id=1, pad_token_id=0)
    model = build(shape, tokenizer=tokenizer)
    if adds := config.objective.adds:
        model = locate(adds)(model, config.objective, "", str)
    return model


def _adapters(model: Any, rank: int) -> int:
    """The weights of low-rank adapters of every linear layer but the head."""
    layers = [module for module in model.modules() if type(module).__name__ in ("Linear", "Conv1D")]
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return rank * sum(sum(layer.weight.shape) for layer in layers if layer is not head)


def lengths(config: Config) -> Lengths:
    """Of the first training rows, a token for each digit and for 4 other characters (1, with a tokenizer trained here).

    Without prepared data, both parts have ``trainer.max_input_length``.
    """
    limit, prepared = config.trainer.max_input_length, Prepared(config.dataset, config.data_dir)
    is_head, is_seq2seq = config.model.head != "lm", config.model.family == "t5_regression"  # its decoder reads, too
    if not prepared.find() or config.dataset.answers == "none":
        written = limit * is_seq2seq if is_head else limit
        return Lengths(limit, written, limit + written, None)
    per_token = 4 if tokenizer_source(config.model) or config.tokenizer.path else 1
    tokens = []
    rows = SplitRows(prepared.folder / "train.jsonl")
    for row in map(rows.__getitem__, range(min(len(rows), SAMPLE))):
        texts = row["question"], row["answer"]
        digits = [sum(map(str.isdigit, text)) for text in texts]
        sizes = [count + -(-(len(text) - count) // per_token) for text, count in zip(texts, digits, strict=True)]
        read = min(sizes[0], limit)
        tokens.append((read, read * is_seq2seq if is_head else sizes[1] + 1))
    size = config.trainer.batch_size
    batches = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    padded = [tuple(map(max, zip(*batch, strict=True))) for batch in batches]
    read, written = (max(column) for column in zip(*padded, strict=True))
    return Lengths(read, written, sum(map(sum, padded)) / len(padded), prepared.fingerprint()["rows"]["train"])


@dataclass(frozen=True)
class Price:
    """Bytes that a run takes of each device: its state, and of ``rows`` examples at once activations and ``logits``.

    ``traces``: of one row and of two, since casts of the weights do not grow with the rows. ``hours`` are of all steps;
    None where their number is not known yet. ``devices``: over how many FSDP must divide the state.
    """

    traces: tuple[Trace, Trace]
    lengths: Lengths
    rows: int
    implementation: str
    state: float
    logits: float
    checkpointing: bool
    steps: int
    hours: float | None
    devices: int = 1

    def activations(self, rows: int, checkpointing: bool) -> float:
        one, two = ((trace.checkpointed if checkpointing else trace.kept) for trace in self.traces)
        return one + (rows - 1) * (two - one)

    def total(self, rows: int, checkpointing: bool) -> float:
        return self.state + self.activations(rows, checkpointing) + self.logits * rows / self.rows

    @property
    def planned(self) -> float:
        """The bytes that the config takes as it is."""
        return self.total(self.rows, self.checkpointing)


_traces: dict[str, tuple[Trace, Trace]] = {}


def price(config: Config, gpu: Gpu) -> Price:
    """Return what the run takes. Any error of building or running the model: it cannot be priced."""
    settings, of = config.trainer, lengths(config)
    bf16 = bool(gpu.bf16) and settings.bf16 in (True, "auto")
    key = repr((plain(config.model), config.tokenizer.vocab_size, plain(config.objective), of.read, of.written, bf16))
    if key not in _traces:
        one, two = (trace(config, rows, of.read, of.written, bf16) for rows in (1, 2))
        _traces[key] = one, two
    model, longest = _traces[key][0], of.read + of.written
    copies = 2 if config.objective.mask.copy != "none" else 1
    rows = settings.batch_size * copies
    if settings.max_tokens_per_batch:
        rows = max(1, min(rows, settings.max_tokens_per_batch // longest))
    # On a GPU `auto` takes the reference implementation.
    how = config.loss.implementation if config.loss.implementation in LOGITS else "reference"
    positions = of.written if model.is_seq2seq else longest
    steps = in_steps(settings, of.rows or 0).max_steps
    # The backward pass has twice the products of the forward one, but none for the gradients of frozen weights.
    passes = (2 if config.model.lora.rank else 3) + settings.gradient_checkpointing
    examples = steps * settings.accumulation_steps * settings.batch_size * copies
    operations = examples * passes * model.operations * of.mean / longest
    frozen = model.parameters if config.model.lora.rank else model.parameters - model.trained
    peak = gpu.bf16 if bf16 else (settings.tf32 and gpu.tf32) or gpu.fp32
    cost = Price(
        traces=_traces[key],
        lengths=of,
        rows=rows,
        implementation=how if model.vocabulary else "none",
        state=STATE_BYTES.get(settings.optim, 16) * model.trained + 4 * frozen,
        logits=4.0 * rows * positions * model.vocabulary * LOGITS[how][bf16],
        checkpointing=settings.gradient_checkpointing,
        steps=steps,
        hours=operations / (UTILIZATION * peak) / 3600 if steps else None,
    )
    left = USED * gpu.memory * GIB - (cost.planned - cost.state)
    if settings.parallel != "fsdp" or left <= 0:
        return cost
    devices = math.ceil(cost.state / left)
    return replace(cost, state=cost.state / devices, devices=devices)


def remedy(cost: Price, config: Config, gpu: Gpu) -> str:
    """Return the settings that make a run fit which does not; empty for one that fits."""
    room, longest = USED * gpu.memory * GIB, cost.lengths.read + cost.lengths.written
    if cost.planned <= room:
        return ""
    fitting = []
    for checkpointing in sorted({cost.checkpointing, True}):
        sizes = [cost.total(rows, checkpointing) for rows in range(1, cost.rows + 1)]
        if rows := sum(size <= room for size in sizes):
            words = ["trainer.gradient_checkpointing=true"] if checkpointing and not cost.checkpointing else []
            words += [f"trainer.max_tokens_per_batch={rows * longest}"] if rows < cost.rows else []
            fitting.append(f"{' '.join(words)} ({sizes[rows - 1] / GIB:.1f})")
    if fitting:
        return "; or ".join(fitting)
    least = cost.total(1, checkpointing=True) - cost.state
    if least < room:
        devices = math.ceil(cost.state / (room - least))
        fitting.append(f"trainer=fsdp trainer.gradient_checkpointing=true on {devices} devices, one example each")
    if (frozen := least + 4.2 * cost.traces[0].parameters) < room and not config.model.lora.rank:
        tokens = f"trainer.max_tokens_per_batch={longest}"
        fitting.append(f"model.lora.rank=16 trainer.gradient_checkpointing=true {tokens} ({frozen / GIB:.1f})")
    return "; or ".join(fitting) or "nothing known here; take a smaller model or shorter examples"


def capacity(configs: Sequence[Config], gpu: str, rates: Sequence[float | None] = ()) -> str:
    """Return a table of what runs take, one line for each price, and the settings that make a run fit.

    ``rates``: the optimizer steps a second that each run had here, None for one that was not measured; then the hours
    that follow stand beside the estimate. UserError: the GPU is not in the table.
    """
    if gpu not in GPUS:
        raise UserError(f"--gpu {gpu}: unknown; choose from {', '.join(GPUS)}.{nearest(gpu, GPUS)}")
    device, rows, notes = GPUS[gpu], dict[tuple[Any, ...], int](), dict[str, None]()
    transformers_logging.set_verbosity_error()
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    for config, rate in zip(configs, rates or [None] * len(configs), strict=True):
        label = f"{config.dataset.name} {config.model.name} {config.loss.name}"
        try:
            cost = price(config, device)
        except Exception as error:  # whatever a model raises whose values its shapes depend on
            notes[f"{label}: not priced: {' '.join(str(error).split())[:150] or type(error).__name__}"] = None
            continue
        of, model = cost.lengths, cost.traces[0]
        part = cost.rows, f"{of.read}+{of.written}"
        sizes = cost.state, cost.activations(cost.rows, cost.checkpointing), cost.logits, cost.planned
        shown = [f"{size / GIB:.2f}" for size in sizes]
        shown[2] += f" {cost.implementation}"
        hours = [cost.hours, *([rate and cost.steps and cost.steps / rate / 3600] if rates else [])]
        times = ["unknown" if not value else f"{value:,.{0 if value >= 10 else 4}f}" for value in hours]
        row = (label, f"{model.parameters:,}", *part, *shown, *times)
        rows[row] = rows.get(row, 0) + 1
        if settings := remedy(cost, config, device):
            notes[f"{label}: {shown[3]} GiB do not fit {gpu}, {device.memory} GiB; these do: {settings}"] = None
        if config.trainer.parallel == "fsdp":
            notes[f"{label}: trainer=fsdp, the state is that on {cost.devices} devices or more"] = None
        if config.trainer.parallel != "auto":
            notes[f"{label}: GPU-hours are those of each device: multiply them by the number of devices"] = None
        if of.rows is None:
            notes[f"{config.dataset.name}: not prepared, so priced at trainer.max_input_length={of.read}"] = None
    columns = ["data, model, loss", "parameters", "rows", "tokens", "state", "activations", "logits", "GiB"]
    columns += ["GPU-hours", *["measured"] * bool(rates), "runs"]
    table = pd.DataFrame([[*row, count] for row, count in rows.items()], columns=columns).to_string(index=False)
    bf16 = f"{device.bf16 / 1e12:.0f} in bfloat16" if device.bf16 else "which has no bfloat16"
    peaks = f"{device.fp32 / 1e12:.1f} TFLOP/s in float32, {device.tf32 / 1e12:.0f} in TF32, {bf16}"
    head = f"Estimated for {gpu}, GiB of each device; GPU-hours of one run's training at {UTILIZATION:.0%} of {peaks}:"
    return "\n".join([head, *([table] if rows else []), *notes]) if configs else ""
