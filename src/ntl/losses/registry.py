"""The registry of losses by name, and the terms of a total loss as data.

Each loss is registered by one line below its function. All modules of this package are imported to run these lines.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor, nn

from ntl.config.settings import nearest
from ntl.losses.rows import NumberRows, Weights, is_number
from ntl.numbers import NumberVocabulary

# The arguments that every loss takes. All others are its options.
COMMON = {"logits", "labels", "number_vocab", "ignore_index", "reduction"}


@dataclass(frozen=True)
class LossKind:
    """A named loss function. The fields with a plain value stand in the line that registers it, where others read them.

    Attributes:
        options: The names of the keyword arguments that not every loss has; those in ``required`` have no default.
        is_base: Whether it is a base loss, over every labelled token, rather than a term on number labels.
        distance: Whether it grows with the distance between values, or with a cost.
        whole: Whether it reads the probabilities over the whole vocabulary, `NumberRows.log_p_NK`.
        target: For a base loss, returns its target (N, K) of `NumberRows` with the options: None if this is the label.
        counted: ``counted(labels, number_vocab, ignore_index, **options)`` returns the mask of the positions that the
            mean is over. None stands for all labels of a base loss, and all number labels of any other.
        one_weight: Whether it knows numbers by their labels, so that these have no weights of their own beside CE's.
        digits: Whether its number tokens must be single digits.
        fused: For a number loss, whether it takes its logits from `number_rows` alone, and so also accepts its result.
    """

    name: str
    function: Callable[..., Tensor]
    options: tuple[str, ...]
    required: frozenset[str]
    is_base: bool = False
    distance: bool = True
    whole: bool = False
    target: Callable[..., Tensor | None] | None = None
    counted: Callable[..., Tensor] | None = None
    one_weight: bool = False
    digits: bool = False
    fused: bool = True


_KINDS: dict[str, LossKind] = {}


def register(name: str, function: Callable[..., Tensor], **fields: Any) -> None:
    """Register a loss function under a name; ``fields`` are further ones of `LossKind`.

    Raises ValueError if another function has this name.
    """
    if name in _KINDS and _KINDS[name].function is not function:
        raise ValueError(f"kind {name!r} is {_KINDS[name].function.__name__} already")
    options = {name: param for name, param in inspect.signature(function).parameters.items() if name not in COMMON}
    required = frozenset(name for name, param in options.items() if param.default is param.empty)
    _KINDS[name] = LossKind(name, function, tuple(options), required, **fields)


def kinds() -> dict[str, LossKind]:
    """Return all registered losses by name, cross-entropy and the other base losses first."""
    if not torch.compiler.is_compiling():  # importing ``ce_ntl`` has done it, and torch.compile cannot trace imports
        import_all()
    return dict(sorted(_KINDS.items(), key=lambda item: (not item[1].is_base, item[0])))


def find(loss: str | Callable[..., Tensor]) -> LossKind | None:
    """Return the kind of this name, of the function of this name, or of this function; None if there is none."""
    return next((kind for kind in kinds().values() if loss in (kind.name, kind.function.__name__, kind.function)), None)


def named(name: str) -> LossKind:
    """Return the kind of this name, or of the function of this name. Raises ValueError if there is none."""
    if (kind := find(name)) is None:
        raise ValueError(f"kind {name!r} is none of {', '.join(kinds())}.{nearest(name, kinds())}")
    return kind


def fast_kinds() -> str:
    """Name the kinds whose gradient can be computed with the loss (`Terms.knows`)."""
    return ", ".join(name for name, kind in kinds().items() if (kind.target if kind.is_base else kind.fused))


def import_all() -> None:
    """Import every module of ``ntl.losses``, which registers the losses in it, but the one that needs Triton."""
    for module in iter_modules(import_module("ntl.losses").__path__):
        if module.name != "kernel":
            import_module(f"ntl.losses.{module.name}")


@dataclass(frozen=True)
class Terms:
    """The total loss: the first of ``kinds``, the base, + ``weight`` × the sum of the others, all with ``options``."""

    kinds: tuple[LossKind, ...]
    options: Mapping[str, Any]
    weight: float

    @classmethod
    def of(cls, kind: str, weight: float, options: Mapping[str, Any]) -> "Terms":
        """Create the terms for kinds joined by "+", such as "was" or "gce+was_cdf"; without a number loss, of weight 0.

        Raises ValueError for an unknown kind or option, and for kinds that cannot be joined.
        """
        chosen = [named(name) for name in kind.split("+")]
        bases = [term for term in chosen if term.is_base] or [named("ce")]
        allowed = {option for term in (*bases, *chosen) for option in term.options}
        if excess := sorted(set(options) - allowed):
            raise ValueError(
                f"kind {kind!r} takes no option {excess[0]!r}, only {', '.join(sorted(allowed)) or 'none'}"
            )
        if lacking := sorted({option for term in chosen for option in term.required} - set(options)):
            raise ValueError(f"kind {kind!r} needs the option {lacking[0]!r}")
        if len(bases) > 1:
            raise ValueError(f"kind {kind!r} has more than one base: {', '.join(term.name for term in bases)}")
        numbers = [term for term in chosen if not term.is_base]
        if len(numbers) > 1 and (counting := [term.name for term in numbers if term.counted is not None]):
            raise ValueError(f"{counting[0]} counts numbers or rows, others count digits: they cannot be one mean")
        return cls((bases[0], *numbers), options, weight if numbers else 0.0)

    def to(self, device: torch.device) -> "Terms":
        """Return the same terms with their constants, such as a cost matrix, on the device."""
        return replace(self, options=moved(self.options, device))

    def options_of(self, kind: LossKind) -> dict[str, Any]:
        """Return the options that a kind takes."""
        return {name: value for name, value in self.options.items() if name in kind.options}

    def base(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the base loss."""
        return self.kinds[0].function(*args, **self.options_of(self.kinds[0]), **kwargs)

    @property
    def numbers(self) -> tuple[LossKind, ...]:
        """The number losses."""
        return self.kinds[1:]

    def number(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the sum of ``numbers``, of which there must be at least one."""
        first, *others = (kind.function(*args, **self.options_of(kind), **kwargs) for kind in self.numbers)
        return sum(others, first)

    @property
    def knows(self) -> bool:
        """Whether the gradient can be computed with the loss: the base has a target, and all others are fused."""
        return self.kinds[0].target is not None and all(kind.fused for kind in self.numbers)

    @property
    def whole(self) -> bool:
        """Whether a number loss reads the probabilities over the whole vocabulary."""
        return any(kind.whole for kind in self.numbers)

    @property
    def smoothing(self) -> float:
        """The label_smoothing of the base loss."""
        return self.options.get("label_smoothing", 0.0)

    def soft_target(self, rows: NumberRows) -> Tensor | None:
        """Return the soft target (N, K) of the base loss at number labels; None if the target is the label alone."""
        target: Any = self.kinds[0].target  # where the gradient can be computed with the loss
        return target(rows, **self.options_of(self.kinds[0]))

    def counts(
        self, labels: Tensor, number_vocab: NumberVocabulary, ignore_index: int, weights: Weights | None
    ) -> tuple[Tensor, Tensor]:
        """Return what each position counts in the denominators of base and number loss, (...) each.

        The number loss counts the number labels, or where it is one with `LossKind.counted`, what that says.
        """
        labelled, count = labels != ignore_index, is_number
        for kind in self.numbers:  # at most one has it, see `of`
            if kind.counted is not None:
                count = partial(kind.counted, **self.options_of(kind))
        counted = count(labels, number_vocab, ignore_index)
        return (labelled, counted) if weights is None else (weights[0], weights[1] * counted)


def moved(options: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return the options with their tensors on the device, but a parameter as it is: its model moves it."""
    fixed = {name: value for name, value in options.items() if isinstance(value, Tensor)}
    fixed = {name: tensor.to(device) for name, tensor in fixed.items() if not isinstance(tensor, nn.Parameter)}
    return {**options, **fixed}
