"""Cross entropy and number loss as a module: for a loop of one's own, transformers' Trainer, TRL.

Shapes: V vocabulary, D hidden size.
"""

import math
import sys
import warnings
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor, nn

from ntl.losses.fused.joint import ce_ntl
from ntl.losses.fused.linear import linear_ce_ntl
from ntl.losses.fused.terms import Terms
from ntl.losses.kinds import kinds
from ntl.losses.rows import check_vocabulary, checked_weights, count_labels
from ntl.losses.sums import JointLoss
from ntl.losses.wasserstein import squashed_cost
from ntl.numbers import NumberVocabulary

# Of number values, from which on a distance is told to be large beside a cross entropy; our choice. Digits span 9.
_WIDE = 100.0
# As many frames as lie between a trainer and a loss that it calls as a module, and some.
_CALLERS = 10


class NumberTokenLoss(nn.Module):
    """CE + weight × NTL: `ce_ntl` with its arguments kept, and with them the number vocabulary on the module's device.

    It has no parameters and an empty state dict. A change of type leaves the numbers as they are, in float32.

    All that can be known to be wrong is refused when it is made, each with one line.

    Args:
        number_vocab: the number tokens; `from_tokenizer` finds them in a tokenizer.
        shift: of the labels by one, which a decoder's need: labels[..., t + 1] is what logits[..., t, :] predict. True
            for causal models given labels as their own forward takes them; False for encoder-decoder models and for
            labels that are shifted already. There is no default, as the wrong one trains in silence.
        options: of the kind, and label_smoothing of cross entropy (see `cross_entropy`).

    The others, and the errors, are those of `ce_ntl`; the mean is over the labels that are left after the shift.

    Raises:
        TypeError: A number_vocab that is none, a weight that is no number.
        ValueError: A weight that is negative or not finite; whatever `ce_ntl` refuses.
    """

    values: Tensor
    token_ids: Tensor
    token_values: Tensor
    cost: Tensor | None
    implementation: str

    def __init__(
        self,
        number_vocab: NumberVocabulary,
        *,
        shift: bool,
        kind: str = "was",
        weight: float = 0.3,
        ignore_index: int = -100,
        implementation: str = "auto",
        inplace: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        if "target" in options:
            raise ValueError("a target belongs to one batch: give it to ce_ntl, or sigma to NumberTokenLoss")
        check_vocabulary(number_vocab)
        if isinstance(weight, bool) or not isinstance(weight, Real):
            raise TypeError(f"weight must be a number, not a {type(weight).__name__}")
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight must be finite and not negative, not {weight}")
        terms = Terms.of(kind, weight, options)
        self._counted, self._smoothing = terms.counted, terms.smoothing
        for name in ("values", "token_ids", "token_values"):
            self.register_buffer(name, getattr(number_vocab, name), persistent=False)
        self.register_buffer("cost", options.pop("cost", None), persistent=False)
        self.min_logits, self.vocab_size = number_vocab.min_logits, number_vocab.vocab_size
        self.kind, self.weight, self.shift, self.ignore_index = kind, weight, shift, ignore_index
        self.implementation, self.inplace, self.options = implementation, inplace, options
        self._warned = False
        self._try()

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        *,
        vocab_size: int | None = None,
        digits_only: bool = True,
        squash: float | None = None,
        **arguments: Any,
    ) -> Self:
        """With the number tokens of a tokenizer, see `NumberVocabulary.from_tokenizer`.

        Args:
            vocab_size: the logits' width; logits of another are refused.
            squash: the cost of the farthest number token, that of the nearest being 1: see `squashed_cost`. For kinds
                that take a cost. Without it a distance is that of the values; a warning names the largest value where
                they span more than 100, as tokens of several digits do.
            arguments: of NumberTokenLoss.
        """
        vocab = NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only, vocab_size=vocab_size)
        kind, cost = arguments.get("kind", "was"), arguments.get("cost")
        known = kinds()
        # An unknown kind is refused below.
        grown = {name for name in kind.split("+") if name not in known or known[name].distance}
        with_cost = {name for name, each in known.items() if each.takes_cost}
        if squash is not None:
            if cost is not None:
                raise ValueError("give a squash or a cost, not both")
            if not grown or grown - with_cost:
                named = " and ".join(sorted(with_cost))
                raise ValueError(f"squash is of the costs of {named}: kind {kind!r} has others, or none")
            arguments["cost"] = squashed_cost(vocab.token_values, squash)
        elif grown if cost is None else grown - with_cost:
            _warn_of_wide_values(vocab, tokenizer)
        return cls(vocab, **arguments)

    @property
    def number_vocab(self) -> NumberVocabulary:
        """On the module's device."""
        return NumberVocabulary(self.values, self.token_ids, self.token_values, self.min_logits, self.vocab_size)

    def forward(
        self,
        logits: Any,
        labels: Tensor,
        *,
        loss_weights: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> Tensor:
        """logits (..., T, V) and labels (..., T) -> (), the loss that is to be minimised.

        logits: or what a transformers model returns, which has them; see `compute_loss_func`.
        loss_weights: (..., T), one for each label, shifted with it: see `ce_ntl`. CE is Σ w·CE / Σ w over the labels,
            the number loss Σ w·NTL / Σ w over the number labels.
        num_items_in_batch: the labels of the whole optimizer step, after the shift; default: those of this batch. CE is
            divided by it. The number loss is divided by num_items_in_batch × the share of number labels among the
            labels of this batch, which makes it the batch's mean over number labels times the batch's share of the
            step's labels: over the step the weights of these means add up to 1. It equals the mean over all number
            labels of the step where every batch has the same share of them. With loss_weights the shares are those of
            the weights, and num_items_in_batch is divided by as it is given: for a weighted mean over the step it is
            the sum of the step's weights.

        ValueError for labels (N,) with shift=True: where a row ends is not to be seen in them.
        """
        if not isinstance(logits, Tensor):
            return self.compute_loss_func(logits, labels, num_items_in_batch, loss_weights=loss_weights)
        how = {"loss_weights": loss_weights, "num_items_in_batch": num_items_in_batch}
        return self.parts(logits, labels, **how).total

    def parts(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        loss_weights: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> JointLoss:
        """`forward` with the sums and counts of both terms beside the total, for the log."""
        arguments = self._arguments(labels, loss_weights, num_items_in_batch)
        inplace = self.inplace and not torch.compiler.is_compiling()
        return ce_ntl(logits, inplace=inplace, **arguments)

    def linear(
        self,
        hidden_states: Tensor,
        lm_head_weight: Tensor,
        labels: Tensor,
        *,
        bias: Tensor | None = None,
        logit_scale: float = 1.0,
        softcap: float | None = None,
        loss_weights: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> Tensor:
        """`forward` of the logits that a head makes of hidden_states (..., T, D), a few rows at a time: see
        `linear_ce_ntl`. ``ntl.models`` has `hidden_states` and `lm_head` of a transformers model.
        """
        head = {"bias": bias, "logit_scale": logit_scale, "softcap": softcap}
        arguments = self._arguments(labels, loss_weights, num_items_in_batch)
        return linear_ce_ntl(hidden_states, lm_head_weight, **head, **arguments).total

    def compute_loss_func(
        self,
        outputs: Any,
        labels: Tensor,
        num_items_in_batch: Tensor | float | None = None,
        *,
        loss_weights: Tensor | None = None,
    ) -> Tensor:
        """For ``Trainer(..., compute_loss_func=loss.compute_loss_func)`` of transformers; ``loss`` itself will do.

        The trainer counts the labels of all accumulation steps, and of all devices with average_tokens_across_devices;
        for a causal model it leaves out the first label of a row, as the shift does.

        A trainer drops its own label_smoothing_factor beside this function: a warning says so, once, where that is not
        the label_smoothing of this loss.

        TypeError for outputs without logits, and without labels.
        """
        if not (self._warned or torch.compiler.is_compiling()):
            self._warn_of_dropped_smoothing()
        logits = _logits_of(outputs)
        if labels is None:
            raise TypeError("there are no labels: the batches of the trainer need the key 'labels'")
        how = {"loss_weights": loss_weights, "num_items_in_batch": num_items_in_batch}
        return self(logits, labels.to(logits.device), **how)

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, weight={self.weight}, shift={self.shift}"

    def _shifted(self, given: Tensor, last: float) -> Tensor:
        """``given``, of labels' shape, with ``last`` in the place that the shift leaves."""
        if not self.shift:
            return given
        # A slice of the logits would be copied by whatever flattens it.
        return torch.cat([given[..., 1:], torch.full_like(given[..., :1], last)], dim=-1)

    def _arguments(self, labels: Tensor, weights: Tensor | None, num_items: Tensor | float | None) -> dict[str, Any]:
        vocab, ignore = self.number_vocab, self.ignore_index
        if self.shift and labels.dim() < 2:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)} with shift=True: where one row ends and the next begins is not "
                "to be seen in flattened labels; give logits (B, T, V) and labels (B, T), with B = 1 for a single "
                "row, or shift the labels of each row before they are flattened, and say shift=False"
            )
        if weights is not None and weights.shape == labels.shape:
            weights = self._shifted(weights, 0)
        labels = self._shifted(labels, ignore)
        counts: dict[str, Any] = {}
        if num_items is not None:
            # Made on the device: a copy to it would be waited for.
            base = num_items if isinstance(num_items, Tensor) else torch.full((), num_items, device=labels.device)
            numbers = self._counted(labels, vocab, ignore)
            checked = checked_weights(weights, vocab.token_values, labels, ignore)
            if checked is None:
                share = numbers.sum() / count_labels(labels, ignore_index=ignore).clamp(1)
            else:
                whole = checked.sum()
                share = (checked * numbers).sum() / whole.where(whole > 0, 1.0)
            counts = {"base_count": base, "number_count": base.to(labels.device) * share}
        cost = {} if self.cost is None else {"cost": self.cost}
        own = {"kind": self.kind, "weight": self.weight, "implementation": self.implementation}
        given = {"labels": labels, "loss_weights": weights, "number_vocab": vocab, "ignore_index": ignore}
        return {**given, **own, **counts, **cost, **self.options}

    def _try(self) -> None:
        """What one number label would raise."""
        vocab = self.number_vocab
        if vocab.values.is_meta:
            return
        logits = vocab.token_values.new_zeros(1, vocab.vocab_size or vocab.min_logits)
        cost = {} if self.cost is None else {"cost": self.cost}
        # Triton needs its own device.
        how = "reference" if self.implementation == "triton" else self.implementation
        own = {"kind": self.kind, "weight": self.weight, "ignore_index": self.ignore_index, "inplace": self.inplace}
        ce_ntl(logits, vocab.token_ids[:1], vocab, implementation=how, **own, **cost, **self.options)

    def _warn_of_dropped_smoothing(self) -> None:
        dropped = _smoothing_of_trainer()
        if dropped in (None, 0, self._smoothing):
            return
        self._warned = True
        warnings.warn(
            f"transformers drops label_smoothing_factor={dropped} beside compute_loss_func; this loss has "
            f"label_smoothing={self._smoothing}: make it with label_smoothing={dropped}, or leave the factor out",
            stacklevel=3,
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in exact.items():  # moved, and never rounded as a model's bfloat16() would
            self._buffers[name] = buffer.to(self._buffers[name].device)  # type: ignore[union-attr]
        return self


def _logits_of(outputs: Any) -> Tensor:
    """Of a transformers model's outputs, a mapping or a tuple."""
    found = getattr(outputs, "logits", None)
    if isinstance(outputs, Mapping):
        found = outputs.get("logits")
    elif isinstance(outputs, tuple) and outputs and found is None:
        found = outputs[0]
    if not isinstance(found, Tensor):
        raise TypeError(f"a {type(outputs).__name__} without logits: give logits, or outputs that have them")
    return found


def _smoothing_of_trainer() -> float | None:
    """label_smoothing_factor of the trainer that calls, None without one.

    A trainer hands nothing of itself to its loss function: it is looked for among the callers.
    """
    frame = sys._getframe(1)
    for _ in range(_CALLERS):
        if frame is None:
            return None
        caller = frame.f_locals.get("self")
        if hasattr(caller, "compute_loss_func") and hasattr(caller, "args"):
            return getattr(getattr(caller, "args", None), "label_smoothing_factor", None)
        frame = frame.f_back
    return None


def _warn_of_wide_values(vocab: NumberVocabulary, tokenizer: Any) -> None:
    least, largest = (value.item() for value in vocab.token_values.aminmax())
    if largest - least <= _WIDE:
        return
    far = int(vocab.token_ids[vocab.token_values.argmax()])
    token = next(token for token, token_id in tokenizer.get_vocab().items() if token_id == far)
    warnings.warn(
        f"the number tokens' values span {least:.10g} to {largest:.10g} ({token!r}), and the number loss with them, "
        "beside a cross entropy of about 10: say squash=3.0, which squashes their distances into [1, 3], or give a "
        "tokenizer of digits (ntl.tokenizers.load_tokenizer)",
        stacklevel=3,
    )
