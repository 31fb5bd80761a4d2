"""Cross entropy and number loss as a module: for a loop of one's own, transformers' Trainer, TRL.

Shapes: V vocabulary, D hidden size.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from ntl.losses.joint import Implementation, JointLoss, ce_ntl
from ntl.losses.linear import linear_ce_ntl
from ntl.losses.rows import count_labels
from ntl.losses.terms import Terms
from ntl.numbers import NumberVocabulary


class NumberTokenLoss(nn.Module):
    """CE + weight × NTL: `ce_ntl` with its arguments kept, and with them the number vocabulary on the module's device.

    It has no parameters and an empty state dict. A change of type leaves the numbers as they are, in float32.

    Args:
        number_vocab: the number tokens; `from_tokenizer` finds them in a tokenizer.
        shift: of the labels by one, which a decoder's need: labels[..., t + 1] is what logits[..., t, :] predict. True
            for causal models given labels as their own forward takes them; False for encoder-decoder models and for
            labels that are shifted already. There is no default, as the wrong one trains in silence.
        options: of the kind.

    The others, and the errors, are those of `ce_ntl`; the mean is over the labels that are left after the shift.
    """

    values: Tensor
    token_ids: Tensor
    token_values: Tensor
    cost: Tensor | None

    def __init__(
        self,
        number_vocab: NumberVocabulary,
        *,
        shift: bool,
        kind: str = "was",
        weight: float = 0.3,
        ignore_index: int = -100,
        implementation: Implementation = "auto",
        inplace: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if "target" in options:
            raise ValueError("a target belongs to one batch: give it to ce_ntl, or sigma to NumberTokenLoss")
        self._counted = Terms.of(kind, weight, options).counted
        for name in ("values", "token_ids", "token_values"):
            self.register_buffer(name, getattr(number_vocab, name), persistent=False)
        self.register_buffer("cost", options.pop("cost", None), persistent=False)
        self.min_logits = number_vocab.min_logits
        self.kind, self.weight, self.shift, self.ignore_index = kind, weight, shift, ignore_index
        self.implementation, self.inplace, self.options = implementation, inplace, options

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, *, vocab_size: int | None = None, digits_only: bool = True, **arguments: Any
    ) -> Self:
        """With the number tokens of a tokenizer, see `NumberVocabulary.from_tokenizer`; vocab_size is logits' width."""
        vocab = NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only, vocab_size=vocab_size)
        return cls(vocab, **arguments)

    @property
    def number_vocab(self) -> NumberVocabulary:
        """On the module's device."""
        return NumberVocabulary(self.values, self.token_ids, self.token_values, self.min_logits)

    def forward(self, logits: Tensor, labels: Tensor, *, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """logits (..., T, V) and labels (..., T) -> (), the loss that is to be minimised.

        num_items_in_batch: the labels of the whole optimizer step, after the shift; default: those of this batch. CE is
            divided by it. The number loss is divided by num_items_in_batch × the share of number labels among the
            labels of this batch, which makes it the batch's mean over number labels times the batch's share of the
            step's labels: over the step the weights of these means add up to 1. It equals the mean over all number
            labels of the step where every batch has the same share of them.
        """
        return self.parts(logits, labels, num_items_in_batch=num_items_in_batch).total

    def parts(self, logits: Tensor, labels: Tensor, *, num_items_in_batch: Tensor | float | None = None) -> JointLoss:
        """`forward` with the sums and counts of both terms beside the total, for the log."""
        labels = self._shifted(labels)
        inplace = self.inplace and not torch.compiler.is_compiling()
        return ce_ntl(logits, labels, inplace=inplace, **self._arguments(labels, num_items_in_batch))

    def linear(
        self,
        hidden_states: Tensor,
        lm_head_weight: Tensor,
        labels: Tensor,
        *,
        bias: Tensor | None = None,
        logit_scale: float = 1.0,
        softcap: float | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> Tensor:
        """`forward` of the logits that a head makes of hidden_states (..., T, D), a few rows at a time: see
        `linear_ce_ntl`. ``ntl.models`` has `hidden_states` and `lm_head` of a transformers model.
        """
        labels = self._shifted(labels)
        head = {"bias": bias, "logit_scale": logit_scale, "softcap": softcap}
        arguments = self._arguments(labels, num_items_in_batch)
        return linear_ce_ntl(hidden_states, lm_head_weight, labels, **head, **arguments).total

    def compute_loss_func(
        self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | float | None = None
    ) -> Tensor:
        """For ``Trainer(..., compute_loss_func=loss.compute_loss_func)`` of transformers.

        The trainer counts the labels of all accumulation steps, and of all devices with average_tokens_across_devices;
        for a causal model it leaves out the first label of a row, as the shift does.
        """
        return self(outputs.logits, labels.to(outputs.logits.device), num_items_in_batch=num_items_in_batch)

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, weight={self.weight}, shift={self.shift}"

    def _shifted(self, labels: Tensor) -> Tensor:
        # A slice of the logits would be copied by whatever flattens it.
        last = torch.full_like(labels[..., :1], self.ignore_index) if self.shift else None
        return labels if last is None else torch.cat([labels[..., 1:], last], dim=-1)

    def _arguments(self, labels: Tensor, num_items: Tensor | float | None) -> dict[str, Any]:
        vocab, ignore = self.number_vocab, self.ignore_index
        counts: dict[str, Any] = {}
        if num_items is not None:
            # Made on the device: a copy to it would be waited for.
            base = num_items if isinstance(num_items, Tensor) else torch.full((), num_items, device=labels.device)
            numbers = self._counted(labels, vocab, ignore).sum()
            share = numbers / count_labels(labels, ignore_index=ignore).clamp(1)
            counts = {"base_count": base, "number_count": base.to(labels.device) * share}
        cost = {} if self.cost is None else {"cost": self.cost}
        own = {"kind": self.kind, "weight": self.weight, "implementation": self.implementation}
        return {"number_vocab": vocab, "ignore_index": ignore, **own, **counts, **cost, **self.options}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in exact.items():  # moved, and never rounded as a model's bfloat16() would
            self._buffers[name] = buffer.to(self._buffers[name].device)  # type: ignore[union-attr]
        return self
