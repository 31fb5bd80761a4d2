"""Cross-entropy and number loss as a module, for a custom training loop, transformers' Trainer or TRL.

Shapes: V vocabulary, D hidden size.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntl.losses.joint import ce_ntl, linear_ce_ntl, triton_kernel
from ntl.losses.registry import Terms, kinds, moved, named
from ntl.losses.rows import LOSS_WEIGHTS, check_labels, check_vocabulary, checked_weights
from ntl.losses.sums import JointLoss, SumCount
from ntl.losses.wasserstein import squashed_cost
from ntl.numbers import NumberVocabulary
from ntl.numbers.vocabulary import Coverage, coverage


class NumberTokenLoss(nn.Module):
    """CE + weight × NTL: `ce_ntl` with stored arguments, and with the number vocabulary on the module's device.

    The module has no parameters and an empty state dict. A conversion to another type, such as ``bfloat16()``, leaves
    the number values in float32. Invalid arguments raise an error when the module is created, not in the first step.

    Args:
        number_vocab: The number tokens; `from_tokenizer` finds them in a tokenizer.
        shift: Whether to shift the labels by one, so that logits[..., t, :] predict labels[..., t + 1]. Use True for
            causal models with labels as their own forward takes them, and False for encoder-decoder models and for
            labels that are already shifted. There is no default, because the wrong choice trains without an error.
        options: The options of the kind, and label_smoothing of cross-entropy (see `cross_entropy`).

    The other arguments and the errors are as in `ce_ntl`; the mean is over the labels left after the shift.

    Raises:
        TypeError: number_vocab is not a NumberVocabulary, weight is not a number, or shift not True or False.
        ValueError: weight or cost is negative or not finite, or `ce_ntl` raises it.
    """

    values: Tensor
    token_ids: Tensor
    token_values: Tensor
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
            raise ValueError("target belongs to a single batch: pass it to ce_ntl, or pass sigma to NumberTokenLoss")
        check_vocabulary(number_vocab)
        if isinstance(weight, bool) or not isinstance(weight, Real):
            raise TypeError(f"weight must be a number, not a {type(weight).__name__}")
        if not isinstance(shift, bool):
            raise TypeError(f"shift must be True or False, not {shift!r}")
        if not 0 <= weight < math.inf:
            raise ValueError(f"weight must be finite and not negative, not {weight}")
        if isinstance(cost := options.get("cost"), Tensor) and not (cost.isfinite() & (cost >= 0)).all():
            raise ValueError("cost must be finite and not negative")
        self._terms = Terms.of(kind, weight, options)
        for name in ("values", "token_ids", "token_values"):
            self.register_buffer(name, getattr(number_vocab, name), persistent=False)
        self.min_logits, self.vocab_size = number_vocab.min_logits, number_vocab.vocab_size
        self.kind, self.weight, self.shift, self.ignore_index = kind, weight, shift, ignore_index
        self.implementation, self.inplace, self.options = implementation, inplace, options
        self._tokenizer = None
        self._validate()

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
        """Create the loss for the number tokens of a tokenizer; see `NumberVocabulary.from_tokenizer`.

        Args:
            vocab_size: The width of the logits. Logits of another width raise an error.
            squash: The cost of the farthest number token, if the nearest costs 1 (see `squashed_cost`); only for kinds
                that take a cost. By default distances are not squashed, and a warning names the largest value if the
                values span more than 100, as in tokenizers with tokens of several digits.
            arguments: The other arguments of NumberTokenLoss. A point_id that the kind needs defaults to the id of ".".
        """
        vocab = NumberVocabulary.from_tokenizer(tokenizer, digits_only=digits_only, vocab_size=vocab_size)
        kind, cost = arguments.get("kind", "was"), arguments.get("cost")
        chosen = [named(name) for name in kind.split("+")]
        with_distance = {term.name for term in chosen if term.distance}
        with_cost = {name for name, term in kinds().items() if "cost" in term.options}
        if any("point_id" in term.required for term in chosen):
            arguments.setdefault("point_id", tokenizer.get_vocab().get("."))
        if squash is not None:
            if cost is not None:
                raise ValueError("give a squash or a cost, not both")
            if not with_distance or with_distance - with_cost:
                names = " and ".join(sorted(with_cost))
                raise ValueError(f"squash needs kinds that take a cost ({names}), not kind {kind!r}")
            arguments["cost"] = squashed_cost(vocab.token_values, squash)
        elif with_distance if cost is None else with_distance - with_cost:
            _warn_of_wide_values(vocab, tokenizer)
        loss = cls(vocab, **arguments)
        loss._tokenizer = tokenizer
        return loss

    @property
    def number_vocab(self) -> NumberVocabulary:
        """The number vocabulary on the module's device."""
        return NumberVocabulary(self.values, self.token_ids, self.token_values, self.min_logits, self.vocab_size)

    def forward(
        self,
        logits: Any,
        labels: Tensor,
        *,
        loss_weights: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> Tensor:
        """Return the loss to minimise, ().

        Args:
            logits: (..., T, V), or the outputs of a transformers model; see `compute_loss_func`.
            labels: (..., T).
            loss_weights: (..., T) or (..., T, 2), shifted together with the labels; see `ce_ntl`. CE is Σ w·CE / Σ w
                over the labels, the number loss Σ w·NTL / Σ w over the number labels.
            num_items_in_batch: The number of labels in the whole optimizer step, after the shift; by default the number
                in this batch. CE is divided by it, the number loss by num_items_in_batch × the share of number labels
                among this batch's labels. This makes it the batch's mean over number labels times the batch's share of
                the step's labels; if every batch has the same share of number labels, it is the mean over the
                number labels of the step. With loss_weights the shares are shares of the weights, while
                num_items_in_batch is used as it is: for a weighted mean over the step, pass the sum of the step's
                weights. Or both denominators, (2,): sums of `counts` over the batches of the step, as
                `NumberTokenLossMixin` passes them.

        Raises:
            ValueError: The labels are flattened, (N,), and shift=True: row boundaries are unknown.
        """
        return self._joint(logits, labels, loss_weights, num_items_in_batch)[0].total

    def parts(
        self,
        logits: Any,
        labels: Tensor,
        *,
        loss_weights: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
        per_row: bool = False,
        **how: Any,
    ) -> JointLoss:
        """Return the total of `forward` together with the sums and counts of both terms in this batch, for logging.

        Without a number loss, as with kind "ce", the count of its term is 0.

        Args:
            per_row: Return them for each row of labels (B, T), (B,), without a graph or num_items_in_batch.
            how: The implementation and the head of `ce_ntl`; with a head, ``logits`` are hidden states.
        """
        how |= {"reduction": "none"} if per_row else {}
        joint, arguments = self._joint(logits, labels, loss_weights, num_items_in_batch, **how)
        labelled, numbers = self.counted(arguments["labels"], arguments["loss_weights"])
        numbers = numbers if self.terms.numbers else torch.zeros_like(numbers)
        parts = (joint.base.sum, labelled, joint.number.sum, numbers)
        if per_row:
            base, labelled, number, numbers = (part.sum(-1) for part in parts)
            none = torch.zeros_like(base)
            return JointLoss.of(SumCount(base, labelled), SumCount(number, numbers), none, self.terms.weight)
        base, labelled, number, numbers = (part.sum() for part in parts)
        return joint._replace(base=SumCount(base, labelled), number=SumCount(number, numbers))

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
        """Return the loss of `forward`, computed from hidden_states (..., T, D) in chunks of rows; see `linear_ce_ntl`.

        ``ntl.models.hidden_states`` and ``ntl.models.lm_head`` extract the inputs from a transformers model.
        """
        head: dict[str, Any] = {"bias": bias, "logit_scale": logit_scale, "softcap": softcap}
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
        """Compute the loss for ``Trainer(..., compute_loss_func=loss.compute_loss_func)``; ``loss`` itself works too.

        The trainer counts the labels of all accumulation steps, and with average_tokens_across_devices on all
        devices. For a causal model it does not count the first label of a row, in agreement with the shift. It ignores
        its own label_smoothing_factor, and gives its loss no loss_weights; `NumberTokenLossMixin` does.

        Raises:
            TypeError: The outputs have no logits, or there are no labels.
            ValueError: The outputs are of an encoder-decoder, and shift is True.
        """
        return self(outputs, labels, loss_weights=loss_weights, num_items_in_batch=num_items_in_batch)

    def counts(self, batch: Mapping[str, Any]) -> Tensor:
        """Return how many labels CE and the number loss count after the shift, or the sums of their weights, (2,)."""
        arguments = self._arguments(batch["labels"], batch.get(LOSS_WEIGHTS))
        return torch.stack([count.sum() for count in self.counted(arguments["labels"], arguments["loss_weights"])])

    def _joint(
        self, logits: Any, labels: Tensor, loss_weights: Tensor | None, num_items: Tensor | float | None, **how: Any
    ) -> tuple[JointLoss, dict[str, Any]]:
        """Return the loss, and the arguments of `ce_ntl`."""
        if not isinstance(logits, Tensor):
            if self.shift and getattr(logits, "encoder_last_hidden_state", None) is not None:
                raise ValueError(
                    "shift=True, and the labels of an encoder-decoder are those of its logits: shift=False"
                )
            logits = _get_logits(logits)
            if labels is None:
                raise TypeError("there are no labels: the batches of the trainer need the key 'labels'")
            labels = labels.to(logits.device)
        arguments = self._arguments(labels, loss_weights, num_items) | how
        return ce_ntl(logits, inplace=self.inplace and not torch.compiler.is_compiling(), **arguments), arguments

    def counted(self, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return what each label (...) counts in the denominators of CE and number loss, (...) each, unshifted."""
        vocab = self.number_vocab
        checked = checked_weights(weights, vocab.token_values, labels, self.ignore_index)
        return self._terms.counts(labels, vocab, self.ignore_index, checked)

    @property
    def terms(self) -> Terms:
        """The losses with their options, and the weight, which is 0 without a number loss."""
        return replace(self._terms, weight=self.weight if self._terms.numbers else 0.0)

    def coverage(self, texts: Iterable[str], tokenizer: Any = None) -> Coverage:
        """Find out how many numbers of a sample of texts the number loss sees, and which it does not.

        ``print(loss.coverage(texts))`` shows both, with the tokens of each number that is not seen and the reason.

        Args:
            texts: What the model is trained on, or a sample of it.
            tokenizer: The tokenizer of the model; by default the one that `from_tokenizer` got.

        Raises:
            TypeError: ``texts`` is a single text.
            ValueError: There is no tokenizer.
        """
        tokenizer = self._tokenizer if tokenizer is None else tokenizer
        if tokenizer is None:
            raise ValueError("this loss was made from a vocabulary: give coverage(texts, tokenizer=...) the tokenizer")
        return coverage(texts, tokenizer, {*self.token_ids.tolist()})

    @property
    def smoothing(self) -> float:
        """The label_smoothing of cross-entropy."""
        return self._terms.smoothing

    def extra_repr(self) -> str:
        return f"kind={self.kind!r}, weight={self.weight}, shift={self.shift}"

    def _arguments(
        self, labels: Tensor, weights: Tensor | None = None, num_items: Tensor | float | None = None
    ) -> dict[str, Any]:
        """Return the arguments of `ce_ntl` except logits and inplace, for labels that are not yet shifted."""
        check_labels(labels)
        if self.values.device != labels.device:  # a trainer moves its model, and not its loss
            self.to(labels.device)
        labels = labels.long()
        if self.shift:
            if labels.dim() < 2:
                raise ValueError(
                    f"labels of shape {tuple(labels.shape)} with shift=True: flattened labels have no row boundaries; "
                    "give logits (B, T, V) and labels (B, T), with B = 1 for a single row, or shift the labels of each "
                    "row before flattening them and use shift=False"
                )
            # Not the logits: a slice of them would be copied when it is flattened.
            if weights is not None and weights.dim() >= labels.dim():
                weights = weights.roll(-1, labels.dim() - 1)  # what is rolled in at the end is no label's weight
            labels = F.pad(labels[..., 1:], (0, 1), value=self.ignore_index)
        arguments: dict[str, Any] = {"labels": labels, "loss_weights": weights, "number_vocab": self.number_vocab}
        arguments |= {"kind": self.terms, "implementation": self.implementation, "ignore_index": self.ignore_index}
        if num_items is not None:
            # Created on the device, as a copy to it would synchronise with the host.
            items = num_items if isinstance(num_items, Tensor) else torch.full((), num_items, device=labels.device)
            if items.shape == (2,):
                base, number = items
            else:
                # Under DataParallel, transformers repeats the count for each device, and multiplies the loss by them.
                labelled, numbers = (count.sum() for count in self.counted(labels, weights))
                base = items.sum()
                number = base.to(labels.device) * (numbers / labelled.where(labelled > 0, 1))
            arguments |= {"base_count": base, "number_count": number}
        return arguments

    def _validate(self) -> None:
        """Compute the loss of one number label, which raises what invalid arguments raise."""
        if self.values.is_meta or not len(self.token_ids):
            return
        labels = self.token_ids[:1].repeat(1, 2)
        width = self.vocab_size or max(self.min_logits, len(self.options.get("embedding", ())))
        logits = self.token_values.new_zeros(*labels.shape, width)
        arguments = self._arguments(labels)
        if self.implementation == "triton" and triton_kernel(None) and not logits.is_cuda:
            arguments["implementation"] = "fused"  # it will be moved to the GPU
        ce_ntl(logits, inplace=self.inplace, **arguments)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in exact.items():  # move the buffers, but do not round them as a model's bfloat16() would
            self._buffers[name] = buffer.to(self._buffers[name].device)  # type: ignore[union-attr]
        self.options, self._terms = moved(self.options, self.values.device), self._terms.to(self.values.device)
        return self


def _get_logits(outputs: Any) -> Tensor:
    """Return the logits of a transformers model's outputs, a mapping or a tuple."""
    logits = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    if isinstance(outputs, tuple) and outputs and logits is None:
        logits = outputs[0]
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"a {type(outputs).__name__} without logits: give logits, or outputs that have them. Chunked losses, as "
            "TRL's chunked_nll, make none: take TRL's loss_type='nll', or NumberTokenLossMixin of ntl.losses"
        )
    return logits


def _warn_of_wide_values(vocab: NumberVocabulary, tokenizer: Any) -> None:
    if not vocab.is_wide:
        return
    smallest, largest = (value.item() for value in vocab.token_values.aminmax())
    largest_id = int(vocab.token_ids[vocab.token_values.argmax()])
    token = next(token for token, token_id in tokenizer.get_vocab().items() if token_id == largest_id)
    warnings.warn(
        f"the values of the number tokens span {smallest:.10g} to {largest:.10g} ({token!r}), so that the number loss "
        "may far exceed the cross-entropy, which is about 10: use squash=3.0, which squashes their distances into "
        "[1, 3], or a digit-level tokenizer (ntl.tokenizers.load_tokenizer)",
        stacklevel=3,
    )
