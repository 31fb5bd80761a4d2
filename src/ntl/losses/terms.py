"""What is minimised, as data: a base on every labelled token plus weight times terms on the number-labelled ones.

Shape suffixes: K number tokens, N the number-labelled positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from ntl.losses.categorical import check_smoothing, cross_entropy, digit_cross_entropy, digit_cross_entropy_rows
from ntl.losses.cdf import crps_rows, ntl_crps, ntl_was_cdf, was_cdf_rows
from ntl.losses.gaussian import gaussian_cross_entropy, gaussian_target
from ntl.losses.lp import huber_rows, mae_rows, mse_rows, ntl_huber, ntl_mae, ntl_mse
from ntl.losses.number_level import last_digits, ntl_number_level, number_level_rows
from ntl.losses.rows import NumberRows, is_number
from ntl.losses.wasserstein import excess_rows, ntl_was, ntl_was_vocab, was_rows
from ntl.numbers import NumberVocabulary

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Kind:
    """A loss function and what the fast implementations need to know of it; ``options`` are its keyword options.

    rows: the loss (N,) of `NumberRows`, where number-token logits are all that it reads
    excess: (N, K) and (), for a loss that is linear in the probabilities over the whole vocabulary
    """

    function: Loss
    options: tuple[str, ...] = ()
    rows: Callable[..., Tensor] | None = None
    excess: Callable[..., tuple[Tensor, Tensor]] | None = None


NUMBER_KINDS = {
    "was": Kind(ntl_was, ("cost",), rows=was_rows),
    "was_cdf": Kind(ntl_was_cdf, ("target", "sigma"), rows=was_cdf_rows),
    "was_vocab": Kind(ntl_was_vocab, ("cost", "text_cost"), excess=excess_rows),
    "mse": Kind(ntl_mse, rows=mse_rows),
    "mae": Kind(ntl_mae, rows=mae_rows),
    "huber": Kind(ntl_huber, ("delta",), rows=huber_rows),
    "crps": Kind(ntl_crps, rows=crps_rows),
    "digit_ce": Kind(digit_cross_entropy, rows=digit_cross_entropy_rows),
    "number_level": Kind(ntl_number_level, ("point_id",), rows=number_level_rows),
}
BASE_KINDS = {"ce": Kind(cross_entropy, ("label_smoothing",)), "gce": Kind(gaussian_cross_entropy, ("sigma",))}
_BY_FUNCTION = {kind.function: kind for kind in (*NUMBER_KINDS.values(), *BASE_KINDS.values())}


@dataclass(frozen=True)
class Terms:
    """``base`` + ``weight`` × the sum of ``numbers``: functions of this package with their options bound, or any others
    that have the same signature. A fast implementation takes the place of those alone that it ``knows``.
    """

    base: Loss = cross_entropy
    numbers: tuple[Loss, ...] = ()
    weight: float = 1.0

    @classmethod
    def of(cls, kind: str, weight: float, options: Mapping[str, Any]) -> "Terms":
        """Of kinds joined by "+", as "was", "gce" or "gce+was_cdf". ValueError for an unknown kind or option."""
        names = kind.split("+")
        if unknown := [name for name in names if name not in NUMBER_KINDS and name not in BASE_KINDS]:
            raise ValueError(f"kind {unknown[0]!r} is none of {', '.join((*BASE_KINDS, *NUMBER_KINDS))}")
        if not BASE_KINDS.keys() & set(names):
            names = ["ce", *names]
        taken = {option for name in names for option in (NUMBER_KINDS | BASE_KINDS)[name].options}
        if left := sorted(set(options) - taken):
            raise ValueError(f"kind {kind!r} takes no option {left[0]!r}, only {', '.join(sorted(taken)) or 'none'}")
        bases = [name for name in names if name in BASE_KINDS]
        if len(bases) > 1:
            raise ValueError(f"kind {kind!r} has more than one base: {', '.join(bases)}")
        base = _bound(BASE_KINDS[bases[0]], options)
        return cls(base, tuple(_bound(NUMBER_KINDS[name], options) for name in names if name in NUMBER_KINDS), weight)

    @property
    def knows(self) -> bool:
        """Whether every function is one whose gradient the fast implementations can write in one pass."""
        return all(_function(loss) in _BY_FUNCTION for loss in (self.base, *self.numbers))

    @property
    def smoothing(self) -> float:
        """label_smoothing of the base. ValueError for one outside [0, 1)."""
        smoothing = _options(self.base).get("label_smoothing", 0.0)
        check_smoothing(smoothing)
        return smoothing

    @property
    def soft_target(self) -> Callable[[NumberRows], Tensor] | None:
        """(N, K), the base's target at a number label; None where it is the label alone."""
        if _function(self.base) is not gaussian_cross_entropy:
            return None
        sigma = _options(self.base).get("sigma", 1.0)
        return lambda rows: gaussian_target(rows.targets_N, rows.values_K, sigma)

    @property
    def row_losses(self) -> list[Callable[[NumberRows], Tensor]]:
        """Those of ``numbers`` that read number-token logits alone."""
        known = ((_BY_FUNCTION[_function(loss)].rows, _options(loss)) for loss in self.numbers)
        return [partial(rows, **options) for rows, options in known if rows is not None]

    @property
    def excesses(self) -> list[Callable[[NumberRows], tuple[Tensor, Tensor]]]:
        """Those of ``numbers`` that are linear in the probabilities over the whole vocabulary."""
        known = ((_BY_FUNCTION[_function(loss)].excess, _options(loss)) for loss in self.numbers)
        return [partial(excess, **options) for excess, options in known if excess is not None]

    @property
    def counted(self) -> Callable[[Tensor, NumberVocabulary, int], Tensor]:
        """``counted(labels, number_vocab, ignore_index)`` (...) bool, one for each that the number terms' mean is over:
        number labels, or for number_level the last digits of numbers. ValueError for terms of both sorts.
        """
        whole = [loss for loss in self.numbers if _function(loss) is ntl_number_level]
        if not whole:
            return is_number
        if len(whole) < len(self.numbers):
            raise ValueError("number_level counts numbers, the other kinds count digits: they cannot be one mean")
        return partial(last_digits, point_id=_options(whole[0]).get("point_id"))


def _bound(kind: Kind, options: Mapping[str, Any]) -> Loss:
    own = {name: value for name, value in options.items() if name in kind.options}
    return partial(kind.function, **own) if own else kind.function


def _function(loss: Loss) -> Loss:
    return loss.func if isinstance(loss, partial) else loss


def _options(loss: Loss) -> dict[str, Any]:
    return dict(loss.keywords) if isinstance(loss, partial) else {}
