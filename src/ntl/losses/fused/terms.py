"""What is minimised, as data: a base on every labelled token plus weight times terms on the number-labelled ones.

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
    """A function of this package, or any other that has the same signature, and its options."""

    function: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *given: Any, **how: Any) -> Any:
        return self.function(*given, **self.options, **how)

    @property
    def kind(self) -> LossKind | None:
        """What is known of the function; None for one that is not registered."""
        return kind_of(self.function)


@dataclass(frozen=True)
class Terms:
    """``base`` + ``weight`` × the sum of ``numbers``. A fast implementation takes the place of those losses alone that
    it ``knows``; ``implementation`` is the one that a training asks for.
    """

    base: Loss = Loss(cross_entropy)
    numbers: tuple[Loss, ...] = ()
    weight: float = 1.0
    implementation: str = "auto"

    @classmethod
    def of(cls, kind: str, weight: float, options: Mapping[str, Any]) -> "Terms":
        """Of kinds joined by "+", as "was", "gce" or "gce+was_cdf". ValueError for an unknown kind or option."""
        known, names = kinds(), kind.split("+")
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"kind {unknown[0]!r} is none of {', '.join(known)}")
        chosen = [known[name] for name in names]
        bases = [each for each in chosen if each.is_base] or [known["ce"]]
        taken = {option for each in (*bases, *chosen) for option in each.options}
        if left := sorted(set(options) - taken):
            raise ValueError(f"kind {kind!r} takes no option {left[0]!r}, only {', '.join(sorted(taken)) or 'none'}")
        if len(bases) > 1:
            raise ValueError(f"kind {kind!r} has more than one base: {', '.join(each.name for each in bases)}")
        return cls(
            _bound(bases[0], options), tuple(_bound(each, options) for each in chosen if not each.is_base), weight
        )

    def number(self, *given: Any, **how: Any) -> Tensor:
        """The sum of ``numbers``, of which there must be one."""
        total = self.numbers[0](*given, **how)
        for loss in self.numbers[1:]:
            total = total + loss(*given, **how)
        return total

    @property
    def knows(self) -> bool:
        """Whether every function is one whose gradient the fast implementations can write in one pass."""
        return all(loss.kind is not None and loss.kind.fused for loss in (self.base, *self.numbers))

    @property
    def smoothing(self) -> float:
        """label_smoothing of the base. ValueError for one outside [0, 1)."""
        smoothing = self.base.options.get("label_smoothing", 0.0)
        check_smoothing(smoothing)
        return smoothing

    def soft_target(self, rows: NumberRows) -> Tensor | None:
        """(N, K), the base's target at a number label; None where it is the label alone."""
        kind = self.base.kind
        return None if kind is None or kind.target is None else kind.target(rows, **self.base.options)

    @property
    def row_losses(self) -> list[Loss]:
        """Those of ``numbers`` that read number-token logits alone, as functions of `NumberRows`."""
        known = ((loss.kind, loss.options) for loss in self.numbers)
        return [Loss(kind.rows, options) for kind, options in known if kind is not None and kind.rows is not None]

    @property
    def excesses(self) -> list[Loss]:
        """Those of ``numbers`` that are linear in the probabilities over the whole vocabulary."""
        known = ((loss.kind, loss.options) for loss in self.numbers)
        return [Loss(kind.excess, options) for kind, options in known if kind is not None and kind.excess is not None]

    @property
    def counted(self) -> Callable[[Tensor, NumberVocabulary, int], Tensor]:
        """``counted(labels, number_vocab, ignore_index)`` (...) bool, one for each that the number terms' mean is over:
        number labels, or for number_level the last digits of numbers. ValueError for terms of both sorts.
        """
        by_kind = [(loss.kind.name, loss.kind.counted, loss.options) for loss in self.numbers if loss.kind]
        whole = [(name, counted, options) for name, counted, options in by_kind if counted is not None]
        if not whole:
            return is_number
        name, counted, options = whole[0]
        if len(whole) < len(self.numbers):
            raise ValueError(f"{name} counts numbers, the other kinds count digits: they cannot be one mean")
        return partial(counted, **options)


def _bound(kind: LossKind, options: Mapping[str, Any]) -> Loss:
    return Loss(kind.function, {name: value for name, value in options.items() if name in kind.options})
