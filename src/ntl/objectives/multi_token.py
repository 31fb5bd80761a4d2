"""Multi-token prediction in any trainer.

Shapes: B batch, T sequence length, V vocabulary, H heads.
"""

import math
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import make_dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers.cache_utils import Cache

from ntl.config.loss import MTPConfig
from ntl.losses import NumberTokenLoss
from ntl.losses.rows import IGNORE_INDEX, LOSS_WEIGHTS
from ntl.losses.sums import JointLoss
from ntl.models.mtp import Decoder, Heads, add_heads, first_of
from ntl.models.pretrained import embedding_rows
from ntl.numbers import NumberVocabulary
from ntl.objectives.masking import document_ids
from ntl.objectives.mtp import MultiTokenPrediction, maybe_again, values_ahead

_FROZEN = "new weights of the heads ({0}) are frozen, as adapters freeze them: LoraConfig(modules_to_save=['{0}', ...])"
AHEAD = "ahead"  # in the outputs of the model: the documents (B, T) or None, then the states of the heads 2, 3, ...


class MultiToken:
    """Adds heads to a decoder, in place, and computes their losses from its outputs and labels that are not shifted.

    ``Trainer(model, ..., compute_loss_func=MultiToken(model))``, or ``MultiToken(model)(outputs, labels)`` in a loop.
    Head k predicts the token k places ahead. The total is Σ_k w_k · (CE_k + weight · NTL_k) as in ``objective=mtp``;
    each term is divided by the count of that head's own labels. The heads are modules of the model, are saved with it,
    and are loaded again where the model was loaded from. All blocks are kept; new heads are copies of the last one.

    No head predicts across documents of a packed row: where ``position_ids`` or ``seq_idx`` are inputs of the model,
    they tell documents apart, and otherwise end tokens do.

    Args:
        model: Of transformers, before adapters are added.
        heads: H, including the model's own.
        loss: The loss of each head, with shift=True; None for cross-entropy.
        kind, variant, head_weights, head_schedule: The settings of ``objective``; ``shared`` adds no heads, and trains
            the model's own logits on the next H tokens.
        train_only: "heads" freezes all other weights.

    Attributes:
        progress: The share of the training that is done, 0 to 1, for ``head_schedule``. `NumberTokenLossMixin` sets it.

    Raises:
        ValueError: An argument is not allowed. UserError: The model is not made of blocks, or has other heads.
    """

    def __init__(
        self,
        model: Any,
        heads: int = 2,
        *,
        loss: NumberTokenLoss | None = None,
        kind: str = "parallel",
        variant: str = "independent",
        head_weights: Sequence[float] = (),
        head_schedule: str = "constant",
        train_only: str = "",
    ) -> None:
        settings: dict[str, Any] = {"kind": kind, "variant": variant, "head_schedule": head_schedule}
        fields = MTPConfig.__dataclass_fields__
        chosen = [(name, value, fields[name].metadata["choices"]) for name, value in settings.items()]
        for name, value, allowed in [*chosen, ("train_only", train_only, ("", "heads"))]:
            if value not in allowed:
                raise ValueError(f"{name} must be {' or '.join(map(repr, allowed))}, not {value!r}")
        if not isinstance(loss, NumberTokenLoss | None):
            raise TypeError(f"loss={loss!r:.60}: give a NumberTokenLoss")
        for wrong, line in (
            (heads < 1, f"heads={heads}: at least 1, the model's own"),
            (
                head_weights
                and not (len(head_weights) == heads and min(head_weights) >= 0 and 0 < sum(head_weights) < math.inf),
                f"head_weights={[*head_weights]}: give one for each of the {heads} heads, none negative, not all 0",
            ),
            (variant != "independent" and kind != "parallel", f"variant={variant!r} is one of kind='parallel'"),
            (train_only and (kind == "shared" or heads < 2), "train_only='heads': no heads are added to the model"),
            (model.config.is_encoder_decoder, "the labels of an encoder-decoder are not shifted: give a decoder"),
            (hasattr(model, "mtp_config"), "the model has heads already"),
            (hasattr(model, "peft_config"), "the model has adapters: give it its heads before them"),
            (
                loss is not None and not (loss.shift and loss.ignore_index == IGNORE_INDEX),
                "the loss must have shift=True and ignore_index=-100",
            ),
        ):
            if wrong:
                raise ValueError(line)
        config = MTPConfig(name="mtp", heads=heads, head_weights=[*head_weights], keep_depth=True, **settings)
        add_heads(model, config, getattr(model, "name_or_path", ""), copies=True)
        if train_only:
            model.requires_grad_(False)
            Decoder(model).extra.requires_grad_(True)
        if loss is None:
            loss = NumberTokenLoss(NumberVocabulary.without_numbers(embedding_rows(model)), shift=True, kind="ce")
        # Of labels that are shifted here; fused from hidden states, without the logits of the heads.
        given = {"kind": loss.kind, "weight": loss.weight, "implementation": loss.implementation, **loss.options}
        unshifted, how = NumberTokenLoss(loss.number_vocab, shift=False, **given), loss.implementation
        how = how.replace("fused", "linear")
        self.objective = MultiTokenPrediction(config, model=model, loss=unshifted, implementation=how)
        self.config, self.heads, self.smoothing = config, heads, loss.smoothing
        self.progress: float | None = 0.0 if head_schedule == "constant" else None
        self._block: Any = None  # what the last block was called with, and its output
        self._autocast: Any = nullcontext  # as in the last block: a trainer may set it inside the model alone
        # Part of the names of new weights. Adapters freeze them; one on eh_proj is saved without its random weight.
        self._new = "eh_proj" if kind == "sequential" else "mtp_heads.0" if variant == "linear" else ""
        # Of rows without labels a Trainer gathers all outputs but these.
        ignored = getattr(model.config, "keys_to_ignore_at_inference", ["past_key_values"])
        model.config.keys_to_ignore_at_inference = [*dict.fromkeys([*ignored, AHEAD])]  # a saved model has it already
        model.register_forward_pre_hook(self._begin)
        if kind != "shared":
            Decoder(model).blocks[-1].register_forward_hook(self._record, with_kwargs=True)
        model.register_forward_hook(self._end, with_kwargs=True)

    def __call__(
        self,
        outputs: Any,
        labels: Tensor,
        num_items_in_batch: Tensor | float | None = None,
        *,
        loss_weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss to minimise, (); see `parts`."""
        return self.parts(outputs, labels, num_items_in_batch, loss_weights=loss_weights).total

    compute_loss_func = __call__

    def parts(
        self,
        outputs: Any,
        labels: Tensor,
        num_items_in_batch: Tensor | float | None = None,
        *,
        loss_weights: Tensor | None = None,
    ) -> JointLoss:
        """Return the loss to minimise, with the sums and counts of the terms of each head in this batch, for logging.

        Args:
            outputs: Of the model. What the heads need is taken out of them, so that they are used once.
            labels: (B, T), as the model's own forward takes them; -100 counts at no head.
            num_items_in_batch: The number of labels of head 1 in the whole optimizer step, as of `NumberTokenLoss`: the
                other counts are then this batch's times its share. Or the counts themselves, (H, 2): sums of
                `counts` over the batches of the step, as `NumberTokenLossMixin` passes them.
            loss_weights: (B, T) or (B, T, 2), of the labels, as in `NumberTokenLoss`.

        Raises:
            TypeError: There are no labels, or these are not the outputs of one forward pass of the model.
        """
        if self.progress is None:
            schedule = self.config.head_schedule
            raise ValueError(
                f"head_schedule={schedule!r}: set MultiToken.progress each step; NumberTokenLossMixin does"
            )
        if labels is None or not isinstance(outputs, OrderedDict) or AHEAD not in outputs:
            raise TypeError("MultiToken takes labels and, once, outputs of its model's forward with return_dict=True")
        documents, *states = OrderedDict.pop(outputs, AHEAD)
        objective, logits = self.objective, outputs["logits"]
        if self._new and objective.model.training:
            named = objective.model.named_parameters()
            if all("eh_proj.lora_" in name for name, each in named if self._new in name and each.requires_grad):
                warnings.warn(_FROZEN.format(self._new), stacklevel=2)
            self._new = ""
        head: Any = objective.model.get_output_embeddings()
        objective.progress = self.progress
        labels, loss_weights = _next(labels.to(logits.device), loss_weights)
        counts = objective.count(labels, loss_weights, documents)
        if isinstance(num_items_in_batch, Tensor) and num_items_in_batch.shape == counts.shape:
            counts = num_items_in_batch
        elif num_items_in_batch is not None:
            counts = counts * torch.as_tensor(num_items_in_batch).sum() / counts[0, 0].where(counts[0, 0] > 0, 1)
        how = objective.implementation(logits.device)
        loss, joints = objective.losses(labels, counts, loss_weights, how, documents)
        total = loss(0, None, logits)
        for index in range(1, self.heads):
            if self.config.kind == "shared":
                total = total + loss(index, None, logits)
            else:  # logits are computed again in the backward pass, so that they are held for one head at a time
                hidden = states[index - 1].to(head.weight.dtype)
                with self._autocast():
                    total = total + maybe_again(torch.is_grad_enabled() and how != "linear", loss, index, hidden)
        return objective.joined(total, joints)

    def counts(self, batch: Mapping[str, Any]) -> Tensor:
        """Return how many labels CE and the number loss count at each head, or the sums of their weights, (H, 2)."""
        labels, weights = _next(batch["labels"], batch.get(LOSS_WEIGHTS))
        return self.objective.count(labels, weights, _documents(batch))

    # ---- hooks of the model, so that heads run inside its forward, where DDP sees their weights

    def _begin(self, model: Any, args: Any) -> None:
        if any(isinstance(module, FSDPModule) for module in model.modules()):
            raise ValueError("MultiToken reads weights after the forward pass, when FSDP has sharded them; use DDP")
        if getattr(model, "_is_replica", False):
            raise ValueError("MultiToken has one state, and DataParallel several threads; start a process for each GPU")
        self._block = ()

    def _record(self, block: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._block == ():  # and not when a checkpointed block is computed again in the backward pass
            output = output[0] if isinstance(output, tuple) else output
            self._block, kind = (args, kwargs, output), output.device.type
            types = {"dtype": torch.get_autocast_dtype(kind), "enabled": torch.is_autocast_enabled(kind)}
            self._autocast = partial(torch.autocast, kind, **types)

    def _end(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> Any:
        seen, self._block = self._block, None
        if not isinstance(outputs, OrderedDict) or not (model.training or kwargs.get("past_key_values") is None):
            return None  # in generation, no heads are asked for
        batch = {"input_ids": args[0] if args else kwargs.get("input_ids"), **kwargs}
        states: list[Tensor] = []
        if seen and self.heads > 1:
            before, given_to, output = seen
            inputs = {name: None if isinstance(value, Cache) else value for name, value in given_to.items()}
            others = [None if isinstance(value, Cache) else value for value in before[1:]]
            trunk: Any = before[0] if before else inputs.pop("hidden_states")
            if trunk.requires_grad and trunk.is_leaf and model.is_gradient_checkpointing:
                raise ValueError("MultiToken needs gradient_checkpointing_kwargs={'use_reentrant': False}")
            trunk = output if self.config.variant == "linear" else trunk

            def call(block: Any, hidden: Tensor) -> Tensor:
                return first_of(block(hidden, *others, **inputs))

            heads = Heads(model, self.config, batch["input_ids"], None, recorded=(trunk, call))
            with self._autocast():
                first = Decoder(model).norm(output) if self.config.kind == "sequential" else output
                states = [heads.read(state) for index, state in heads.states(first) if index]
        return _with_ahead(type(outputs))(**outputs, **{AHEAD: (_documents(batch), *states)})


@cache
def _with_ahead(outputs: Any) -> Any:
    """Return the class of outputs with a field more: DDP makes them anew, from their fields."""
    return make_dataclass(outputs.__name__, [(AHEAD, Any, None)], bases=(outputs,))


def _next(labels: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the labels (B, T) that positions predict, and their weights."""
    shifted = values_ahead(labels, 1, IGNORE_INDEX)
    return shifted, None if weights is None else values_ahead(weights.to(labels.device), 1, 0)


def _documents(batch: Mapping[str, Any]) -> Tensor | None:
    marks = {name: values for name in ("position_ids", "seq_idx") if (values := batch.get(name)) is not None}
    return document_ids({"input_ids": batch["input_ids"], **marks}) if marks else None
