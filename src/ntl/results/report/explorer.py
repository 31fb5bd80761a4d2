"""The examples of the loss explorer; its script computes the losses in the browser."""

import math
from dataclasses import dataclass

DIGITS = 10


@dataclass(frozen=True)
class Example:
    """``weights`` of the ten digits in any unit: the page divides them by their sum."""

    name: str
    label: int
    weights: tuple[float, ...]


def _masses(**weights: float) -> tuple[float, ...]:
    return tuple(weights.get(f"d{digit}", 0.0) for digit in range(DIGITS))


# Figure 1b has one logit of 5 and nine of 0.01; its weights are scaled so that the largest is 100.
_FIGURE_1B = tuple(100.0 if digit == 8 else 100.0 * math.exp(0.01 - 5.0) for digit in range(DIGITS))

EXAMPLES = (
    # The page begins with it: every loss is finite there, and their gradients at the label differ.
    Example("2 % on 4, the rest half on 0, half on 8", 4, _masses(d0=49, d4=2, d8=49)),
    Example("The paper's: half on 0, half on 8", 4, _masses(d0=50, d8=50)),
    Example("Half on 3, half on 5", 4, _masses(d3=50, d5=50)),
    Example("All on the neighbour 5", 4, _masses(d5=100)),
    Example("All on 9", 4, _masses(d9=100)),
    Example("Figure 1b: logit 5 on 8", 4, _FIGURE_1B),
    Example("Right: all on 4", 4, _masses(d4=100)),
    Example("Uniform", 4, (50.0,) * DIGITS),
)


def examples() -> list[dict[str, object]]:
    """The examples in JSON's types."""
    return [{"name": each.name, "label": each.label, "weights": list(each.weights)} for each in EXAMPLES]
