"""The loss terms as data: a base loss on every labelled token, plus a weight times losses on the number labels.

Shape suffixes: K number tokens, N the number-labelled positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from ntl.losses.categorical import check_smoothing, cross_entropy
from ntl.losses.kinds import LossKind, kind_of, kinds
from ntl.losses.rows import NumberRows, is_number
from ntl.numbers import NumberVocabulary


@dataclass(frozen=True)
class Loss:
    """A loss function with its options: one of this package, or any other with the same signature."""

    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **self.options, **kwargs)

    @property
    def kind(self) -> LossKind | None:
        """The kind of the function; None if it is not registered."""
        return kind_of(self.function)


@dataclass(frozen=True)
class Terms:
    """The total loss ``base`` + ``weight`` × the sum of ``numbers``.

    ``implementation`` is the one that the training config asks for. Fused implementations are possible only if
    ``knows`` is true.
    """

    base: Loss = Loss(cross_entropy)
    numbers: tuple[Loss, ...] = ()
    weight: float = 1.0
    implementation: str = "auto"

    @classmethod
    def of(cls, kind: str, weight: float, options: Mapping[str, Any]) -> "Terms":
        """Create the terms for kinds joined by "+", such as "was", "gce" or "gce+was_cdf".

        Raises ValueError for an unknown kind or option.
        """
        known, names = kinds(), kind.split("+")
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"kind {unknown[0]!r} is none of {', '.join(known)}")
        chosen = [known[name] for name in names]
        bases = [each for each in chosen if each.is_base] or [known["ce"]]
        allowed = {option for each in (*bases, *chosen) for option in each.options}
        if excess := sorted(set(options) - allowed):
            raise ValueError(
                f"kind {kind!r} takes no option {excess[0]!r}, only {', '.join(sorted(allowed)) or 'none'}"
            )
        if len(bases) > 1:
            raise ValueError(f"kind {kind!r} has more than one base: {', '.join(each.name for each in bases)}")
        return cls(
            _bound(bases[0], options), tuple(_bound(each, options) for each in chosen if not each.is_base), weight
        )

    def number(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the sum of ``numbers``, of which there must be at least one."""
        total = self.numbers[0](*args, **kwargs)
        for loss in self.numbers[1:]:
            total = total + loss(*args, **kwargs)
        return total

    @property
    def knows(self) -> bool:
        """Whether the fused implementations can compute the gradient of every term."""
        return all(loss.kind is not None and loss.kind.fused for loss in (self.base, *self.numbers))

    @property
    def smoothing(self) -> float:
        """The label_smoothing of the base loss. Raises ValueError if it is outside [0, 1)."""
        smoothing = self.base.options.get("label_smoothing", 0.0)
        check_smoothing(smoothing)
        return smoothing

    def soft_target(self, rows: NumberRows) -> Tensor | None:
        """Return the soft target (N, K) of the base loss at number labels; None if the target is the label alone."""
        kind = self.base.kind
        return None if kind is None or kind.target is None else kind.target(rows, **self.base.options)

    def parts(self, name: str) -> list[Loss]:
        """Return a part of the number losses that have it, as functions of `NumberRows`; see `LossKind`.

        "rows" are the losses of number-token logits alone, "excess" the costs over the whole vocabulary.
        """
        found = ((getattr(loss.kind, name, None), loss.options) for loss in self.numbers)
        return [Loss(function, options) for function, options in found if function is not None]

    @property
    def counted(self) -> Callable[[Tensor, NumberVocabulary, int], Tensor]:
        """A function of (labels, number_vocab, ignore_index) that returns the mask of what the number mean is over.

        These are the number labels, or for number_level the last digits of numbers. Raises ValueError for terms of both
        sorts.
        """
        by_kind = [(loss.kind.name, loss.kind.counted, loss.options) for loss in self.numbers if loss.kind]
        whole_numbers = [(name, counted, options) for name, counted, options in by_kind if counted is not None]
        if not whole_numbers:
            return is_number
        name, counted, options = whole_numbers[0]
        if len(whole_numbers) < len(self.numbers):
            raise ValueError(f"{name} counts numbers, the other kinds count digits: they cannot be one mean")
        return partial(counted, **options)


def _bound(kind: LossKind, options: Mapping[str, Any]) -> Loss:
    return Loss(kind.function, {name: value for name, value in options.items() if name in kind.options})
