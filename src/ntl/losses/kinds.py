"""The losses by name: what ``ce_ntl(kind=)``, the benchmarks and the fast implementations know of each.

A loss is registered in one line beside its function. Every module of this package is looked through for such lines.

Shape suffixes: K number tokens, N the number-labelled positions.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor

# What every loss takes; its other arguments are options.
COMMON = {"logits", "labels", "number_vocab", "ignore_index", "reduction"}


@dataclass(frozen=True)
class LossKind:
    """A loss function by its name; ``options`` are the keyword arguments that it has beside those of every loss.

    is_base: it is the base, over every labelled token, and not a term on number labels
    distance: it grows with the distance of values, or with a cost
    rows: the loss (N,) of `NumberRows`, for one that reads number-token logits alone
    excess: (N, K) and (), for one that is linear in the probabilities over the whole vocabulary
    target: of a base, (N, K) of `NumberRows`: its soft target at number labels, None for the label alone
    counted: ``counted(labels, number_vocab, ignore_index, **options)`` bool, what its mean is over; None for all labels
        of a base, all number labels of another

    ``rows``, ``excess`` and ``target`` take the options, too. A loss with none of the three is computed by its function
    alone.
    """

    name: str
    function: Callable[..., Tensor]
    is_base: bool = False
    distance: bool = True
    rows: Callable[..., Tensor] | None = None
    excess: Callable[..., tuple[Tensor, Tensor]] | None = None
    target: Callable[..., Tensor | None] | None = None
    counted: Callable[..., Tensor] | None = None
    options: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        named = inspect.signature(self.function).parameters
        object.__setattr__(self, "options", tuple(name for name in named if name not in COMMON))

    @property
    def fused(self) -> bool:
        """Whether its gradient can be written in one pass."""
        return any(part is not None for part in (self.rows, self.excess, self.target))

    @property
    def takes_cost(self) -> bool:
        """Whether a cost may take the place of the distance of values."""
        return "cost" in self.options


_KINDS: dict[str, LossKind] = {}
_BY_FUNCTION: dict[Callable[..., Tensor], LossKind] = {}


def register(name: str, function: Callable[..., Tensor], **known: Any) -> None:
    """Make a loss function known by a name; ``known`` are fields of `LossKind`. ValueError for a name that is taken."""
    if name in _KINDS and _KINDS[name].function is not function:
        raise ValueError(f"kind {name!r} is {_KINDS[name].function.__name__} already")
    _KINDS[name] = _BY_FUNCTION[function] = LossKind(name, function, **known)


def kinds() -> dict[str, LossKind]:
    """All that are registered, by name: cross entropy and the other bases first."""
    if not torch.compiler.is_compiling():  # ``ce_ntl`` has done it, and a compiler need not look into it
        import_all()
    return dict(sorted(_KINDS.items(), key=lambda item: (not item[1].is_base, item[0])))


def kind_of(function: Callable[..., Tensor]) -> LossKind | None:
    """None for a function that was never registered."""
    return _BY_FUNCTION.get(function)


def import_all() -> None:
    """Every module of ``ntl.losses``, so that the losses in it are registered."""
    for module in iter_modules(import_module("ntl.losses").__path__):
        if not module.ispkg:
            import_module(f"ntl.losses.{module.name}")
