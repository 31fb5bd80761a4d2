"""The registry of losses by name, for ``ce_ntl(kind=...)``, the benchmarks and the fused implementations.

Each loss is registered by one line below its function. All modules of this package are imported to run these lines.

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

# The arguments that every loss takes. All others are its options.
COMMON = {"logits", "labels", "number_vocab", "ignore_index", "reduction"}


@dataclass(frozen=True)
class LossKind:
    """A named loss function and what the fused implementations need to know about it.

    ``rows``, ``excess`` and ``target`` are called with `NumberRows` and the options. A loss with none of the three has
    no fused form and is always computed by ``function``.

    Attributes:
        is_base: Whether it is a base loss, over every labelled token, rather than a term on number labels.
        distance: Whether it grows with the distance between values, or with a cost.
        rows: Returns the loss (N,), for a loss that reads only the number-token logits.
        excess: Returns the costs (N, K) beyond a text token's and a text token's cost (), for a loss that is linear in
            the probabilities over the whole vocabulary.
        target: For a base loss, returns its soft target (N, K) at number labels, or None if the target is the label.
        counted: ``counted(labels, number_vocab, ignore_index, **options)`` returns the mask of the positions that the
            mean is over. None stands for all labels of a base loss, and all number labels of any other.
        options: The names of the keyword arguments that not every loss has.
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
        parameters = inspect.signature(self.function).parameters
        object.__setattr__(self, "options", tuple(name for name in parameters if name not in COMMON))

    @property
    def fused(self) -> bool:
        """Whether the fused implementations can compute its gradient in one pass."""
        return any(part is not None for part in (self.rows, self.excess, self.target))


_KINDS: dict[str, LossKind] = {}
_BY_FUNCTION: dict[Callable[..., Tensor], LossKind] = {}


def register(name: str, function: Callable[..., Tensor], **fields: Any) -> None:
    """Register a loss function under a name; ``fields`` are those of `LossKind`.

    Raises ValueError if another function has this name.
    """
    if name in _KINDS and _KINDS[name].function is not function:
        raise ValueError(f"kind {name!r} is {_KINDS[name].function.__name__} already")
    _KINDS[name] = _BY_FUNCTION[function] = LossKind(name, function, **fields)


def kinds() -> dict[str, LossKind]:
    """Return all registered losses by name, cross-entropy and the other base losses first."""
    if not torch.compiler.is_compiling():  # importing ``ce_ntl`` has done it, and torch.compile cannot trace imports
        import_all()
    return dict(sorted(_KINDS.items(), key=lambda item: (not item[1].is_base, item[0])))


def kind_of(function: Callable[..., Tensor]) -> LossKind | None:
    """Return the kind of a loss function, or None if it is not registered."""
    return _BY_FUNCTION.get(function)


def import_all() -> None:
    """Import every module of ``ntl.losses``, which registers the losses in it."""
    for module in iter_modules(import_module("ntl.losses").__path__):
        if not module.ispkg:
            import_module(f"ntl.losses.{module.name}")
