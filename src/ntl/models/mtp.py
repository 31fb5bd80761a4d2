"""Heads for multi-token prediction, as modules of a decoder of transformers. Head k predicts the token k places ahead.

Head 1 is the model itself. The others are stored under ``mtp_heads.`` (parallel; Gloeckle et al., 2024) or
``mtp.layers.`` (sequential; DeepSeek-V3, in the names that transformers reads for ``generate(use_mtp=True)``), so that
checkpoints carry them, and a model that is loaded without them is an ordinary next-token model.

Shapes: B batch, T sequence length, D hidden size.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel

from ntl.config.loss import MTPConfig
from ntl.system.errors import UserError
from ntl.system.hub import SHARDS, WEIGHTS, snapshot, weight_files
from ntl.system.messages import logger

PARALLEL, SEQUENTIAL = "mtp_heads.", "mtp.layers."
Stored = dict[str, Tensor]


class SequentialHead(nn.Module):
    """A module of DeepSeek-V3's form: it continues a hidden state with the embedding of the next token."""

    def __init__(self, block: nn.Module, norm: nn.Module, width: int, std: float) -> None:
        super().__init__()
        self.enorm, self.hnorm, self.post_norm = (copy.deepcopy(norm) for _ in range(3))
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        nn.init.normal_(self.eh_proj.weight, std=std)
        self.mtp_block = block


class Decoder:
    """The parts of a decoder that multi-token prediction reads: its blocks, final norm and extra heads.

    Raises UserError for a model that is not a list of blocks and a final norm behind it.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.base = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
        count = model.config.num_hidden_layers
        children = [*self.base.children()]
        lists = [child for child in children if isinstance(child, nn.ModuleList) and len(child) == count]
        norms = [child for child in children if "norm" in type(child).__name__.lower()]
        if len(lists) != 1 or len(norms) != 1 or not count:
            raise UserError(
                f"objective=mtp: model_type {model.config.model_type} has no single list of blocks with one final "
                "norm behind it, which its heads are made of; take objective=next_token."
            )
        self.blocks, self.norm = lists[0], norms[0]

    @property
    def extra(self) -> Any:
        """The heads 2, 3, ...; an empty list before they are added."""
        layers = getattr(getattr(self.model, "mtp", None), "layers", ())
        return getattr(self.model, "mtp_heads", None) or (layers if isinstance(layers, nn.ModuleList) else ())

    def layer_type(self, index: int) -> Any:
        types = getattr(self.model.config, "layer_types", None)
        return types[index] if types else None

    def keep(self, indices: list[int]) -> list[nn.Module]:
        """Keep these blocks, in this order, and return the others."""
        blocks, config = [*self.blocks], self.model.config
        del self.blocks[:]
        self.blocks.extend(blocks[index] for index in indices)
        if getattr(config, "layer_types", None):
            config.layer_types = [config.layer_types[index] for index in indices]
        config.num_hidden_layers = len(indices)
        self.number(self.blocks)
        return [block for index, block in enumerate(blocks) if index not in indices]

    def new(self, count: int, *, copies: bool) -> list[nn.Module]:
        """Return blocks of the type of the last one: copies of it, or random ones from models of the same config."""
        if copies:
            return [copy.deepcopy(self.blocks[-1]) for _ in range(count)]
        wanted, blocks = self.layer_type(len(self.blocks) - 1), []
        while len(blocks) < count:
            other = Decoder(type(self.model)(copy.deepcopy(self.model.config)).to(self.model.dtype))
            blocks += [block for index, block in enumerate(other.blocks) if other.layer_type(index) == wanted]
        return blocks[:count]

    @staticmethod
    def number(blocks: Any, start: int = 0) -> None:
        """Give the blocks layer indices of their own, which caches read."""
        for index, block in enumerate(blocks, start):
            for module in block.modules():
                if hasattr(module, "layer_idx"):
                    module.layer_idx = index

    def run_trunk(self, inputs: Mapping[str, Any], *, through: bool) -> tuple[Tensor, Callable[..., Tensor]]:
        """Run the blocks before the last one, or with ``through`` that one as well.

        Returns the hidden states (B, T, D) before the final norm, and a function (block, hidden states) -> hidden
        states that calls a block with the mask, the positions and all else that the last block was called with.
        """
        block, seen = self.blocks[-1], {}
        forward, patched = block.forward, block.__dict__.get("forward")

        def record(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            output = forward(hidden_states, *args, **kwargs) if through else hidden_states
            seen.update(hidden=first_of(output), args=args, kwargs=kwargs)
            return output

        block.forward = record
        try:
            self.base(**inputs)
        finally:
            del block.forward
            if patched is not None:
                block.forward = patched
        return seen["hidden"], lambda any_block, states: first_of(any_block(states, *seen["args"], **seen["kwargs"]))


def first_of(output: Any) -> Tensor:
    """The hidden states in a block's output."""
    return output[0] if isinstance(output, tuple) else output


def add_heads(
    model: PreTrainedModel,
    config: MTPConfig,
    source: str = "",
    *,
    copies: bool = False,
) -> PreTrainedModel:
    """Add the heads 2, 3, ... to a model, in place, and return it.

    ``source`` is the folder or hub id of the model's weights, where stored heads are loaded from; empty for random
    weights, whose new heads are random, too, unless ``copies`` of the last block are wanted. UserError: the model is
    not made of blocks, has too few of them, or has stored heads that do not fit.
    """
    decoder = Decoder(model)
    if getattr(model.config, "router_aux_loss_coef", 0.0) or getattr(model.config, "num_local_experts", 0):
        raise UserError(
            "objective=mtp: a mixture of experts is not supported, since its router loss is one of all blocks; take "
            "objective=next_token, or a model without experts."
        )
    copies = copies or bool(source)
    if config.kind != "shared":
        decoder.model.mtp_config = config  # of the heads that can draft
        if config.heads > 1 and config.kind == "sequential":
            _add_sequential(decoder, config, source, copies=copies)
        elif config.heads > 1:
            _add_parallel(decoder, config, source, copies=copies)
    return model if hasattr(model, "mtp") else carry_heads(model, source)


def carry_heads(model: PreTrainedModel, source: str) -> PreTrainedModel:
    """Give a model the modules for multi-token prediction that are stored with its weights, in place, and return it.

    They are neither used nor trained. If they cannot be kept, the count in the model's config is 0.
    """
    stored = _stored(source)
    lost = sorted(stored.keys() - model.state_dict().keys())
    if heads := [name for name in lost if name.startswith(PARALLEL)]:
        logger.warning(
            f"model {source}: its heads ({heads[0]}, ...) are left out; objective=mtp with their number keeps them."
        )
    carried = {name: stored[name] for name in lost if not name.startswith(PARALLEL)}
    for name, tensor in carried.items():
        *parents, leaf = name.split(".")
        module: nn.Module = model
        for part in parents:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        module.register_parameter(leaf, nn.Parameter(tensor.to(model.device, model.dtype), requires_grad=False))
    modules = f"model {source}: its modules for multi-token prediction"
    if carried:
        logger.warning(
            f"{modules} ({next(iter(carried))}, ...) stay; objective=mtp objective.kind=sequential trains them."
        )
    elif source and getattr(model.config, "num_mtp_layers", None):
        model.config.num_mtp_layers = 0
        logger.warning(f"{modules} are left out, and num_mtp_layers is 0.")
    return model


def _add_parallel(decoder: Decoder, config: MTPConfig, source: str, *, copies: bool) -> None:
    model, count, stored = decoder.model, config.heads - 1, _stored(source)
    has_heads, width = any(name.startswith(PARALLEL) for name in stored), model.config.hidden_size
    heads: list[Any]
    if config.variant == "linear":
        heads = [nn.Linear(width, width, False, model.device, model.dtype) for _ in range(count)]
        for head in heads:
            nn.init.eye_(head.weight)
    elif has_heads:
        heads = decoder.new(count, copies=True)
    else:
        heads = _split_off(decoder, config, source, copies=copies)
    decoder.number(heads, len(decoder.blocks))
    model.mtp_heads = nn.ModuleList(heads)
    if has_heads:
        _load(model.mtp_heads, PARALLEL, stored, source, config)


def _split_off(decoder: Decoder, config: MTPConfig, source: str, *, copies: bool) -> list[nn.Module]:
    """Return the blocks of the extra heads, and shorten the trunk by as many, unless its depth is kept."""
    depth, count, keep_depth = len(decoder.blocks), config.heads - 1, config.keep_depth
    if config.heads > depth and not keep_depth:
        too_many = f"objective.heads={config.heads}: the model has {depth} blocks, and every head takes one of them"
        if keep_depth is not None:
            raise UserError(f"{too_many}; lower objective.heads, or set objective.keep_depth=true.")
        logger.warning(f"{too_many}; its depth is kept, so that it has {count} blocks more than a next-token model.")
        keep_depth = True
    if keep_depth:
        return decoder.new(count, copies=copies)
    first = depth - config.heads
    trunk = list(range(first))
    if source:  # head 1 is the learned last block, and the others are copies of it
        decoder.keep([*trunk, depth - 1])
        logger.warning(
            f"objective=mtp: {count} of the {depth} learned blocks are removed, so that the number of weights stays "
            "as it is; objective.keep_depth=true keeps them."
        )
        return decoder.new(count, copies=True)
    if len({(type(decoder.blocks[index]), decoder.layer_type(index)) for index in range(first, depth)}) > 1:
        raise UserError("objective=mtp: the last blocks differ in type; set objective.keep_depth=true.")
    return decoder.keep([*trunk, first])


def _add_sequential(decoder: Decoder, config: MTPConfig, source: str, *, copies: bool) -> None:
    model, count, stored = decoder.model, config.heads - 1, _stored(source)
    model.config.num_mtp_layers = count
    if kind := decoder.layer_type(len(decoder.blocks) - 1):
        model.config.mtp_layer_types = [kind] * count
    model.mtp = nn.Module()
    is_own = f"{SEQUENTIAL}0.eh_proj.weight" in stored
    if not is_own and any(name.startswith("mtp.") for name in stored):  # a published model's own names
        try:
            from transformers.modeling_layers import MtpModel

            model.mtp.layers = MtpModel.from_pretrained(model).layers.to(model.dtype)
        except (ImportError, RuntimeError, ValueError) as error:
            raise UserError(
                f"model {source}: its own modules for multi-token prediction cannot be loaded as objective.heads="
                f"{config.heads} (head 1 is the model, each further one a module): {str(error).splitlines()[0]}"
            ) from error
        return
    width, std = model.config.hidden_size, getattr(model.config, "initializer_range", 0.02)
    blocks = decoder.new(count, copies=copies)
    heads = [SequentialHead(block, decoder.norm, width, std).to(model.device, model.dtype) for block in blocks]
    decoder.number(heads)  # transformers has a cache of their own for them
    model.mtp.layers = nn.ModuleList(heads)
    if is_own or any(name.startswith(PARALLEL) for name in stored):
        _load(model.mtp.layers, SEQUENTIAL if is_own else PARALLEL, stored, source, config)


def _stored(source: str) -> Stored:
    """Return the stored weights of heads by name: ours, and what a published model has under ``mtp``."""
    folder = (Path(source) if Path(source).is_dir() else snapshot(source)) if source else None
    stored: Stored = {}
    if folder and any((folder / name).is_file() for name in (WEIGHTS, SHARDS)):
        for path in filter(lambda path: path.suffix == ".safetensors", weight_files(folder)):
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.startswith(PARALLEL) or ".mtp." in f".{name}"]  # noqa: SIM118
                stored |= {name: file.get_tensor(name) for name in names}
    return stored


def _load(heads: nn.Module, prefix: str, stored: Stored, source: str, config: MTPConfig) -> None:
    state = {name.removeprefix(prefix): tensor for name, tensor in stored.items() if name.startswith(prefix)}
    try:
        heads.load_state_dict(state)
    except RuntimeError as error:
        there = len({name.split(".")[0] for name in state})
        raise UserError(
            f"model {source}: it has {there} heads beside its own, which do not fit objective.heads={config.heads} "
            f"objective.kind={config.kind} objective.variant={config.variant}; set what it was trained with."
        ) from error


class Heads:
    """The heads of one forward pass as functions of hidden states.

    ``ahead`` maps k to the tokens (B, T) k places ahead, which sequential heads read; by default taken from the input.
    ``recorded`` is what `Decoder.run_trunk` returns, of a pass that was done already.

    Attributes:
        trunk: (B, T, D), what the first head of every chain reads, with its graph.
        chains: Indices of heads, 0 for head 1: within a chain each head reads the state of the one before it.
        modules: The modules whose parameters the heads use, in any order.
    """

    def __init__(
        self,
        model: Any,
        config: MTPConfig,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        ahead: Callable[[int], Tensor] | None = None,
        recorded: tuple[Tensor, Callable[..., Tensor]] | None = None,
        **inputs: Any,
    ) -> None:
        self._decoder = decoder = Decoder(model)
        self._sequential = config.kind == "sequential"
        self._linear = not self._sequential and config.variant == "linear"
        inputs = {"use_cache": False, **inputs, "input_ids": input_ids, "attention_mask": attention_mask}
        self.trunk, self._call = recorded or decoder.run_trunk(inputs, through=self._linear)
        # What is rolled in at the end has no label.
        self._ahead = ahead or (lambda places: input_ids.roll(-places, dims=1))
        self._embed, self._modules = model.get_input_embeddings(), [decoder.blocks[-1], *decoder.extra]
        chained, indices = self._sequential or config.variant == "causal", [*range(config.heads)]
        self.chains = [indices] if chained else [[index] for index in indices]
        self.modules = [*self._modules, decoder.norm, model.get_output_embeddings(), self._embed]

    def state(self, index: int, states: Tensor) -> Tensor:
        """Return the state (B, T, D) of a head from the state of the head before it, or from the trunk."""
        module: Any = self._modules[index]
        if self._linear:
            return module(states) if index else states
        if not self._sequential:
            return self._call(module, states)
        if not index:
            return self._decoder.norm(self._call(module, states))
        embedded = self._embed(self._ahead(index)).to(states.dtype)
        parts = [module.enorm(embedded), module.hnorm(states)]
        if getattr(self._decoder.model.config, "mtp_hidden_states_first", False):
            parts.reverse()
        states = self._call(module.mtp_block, module.eh_proj(torch.cat(parts, dim=-1)))
        return states if module.post_norm is None else module.post_norm(states)

    def states(self, first: Tensor | None = None) -> Iterator[tuple[int, Tensor]]:
        """Yield each head and its state (B, T, D) in the order of the chains, computed when it is asked for.

        ``first`` is the state of head 1 where it is known.
        """
        for chain in self.chains:
            states = self.trunk
            for index in chain:
                states = self.state(index, states) if index or first is None else first
                yield index, states

    def read(self, states: Tensor) -> Tensor:
        """Return what the unembedding reads of a head's state."""
        return states if self._sequential else self._decoder.norm(states)
