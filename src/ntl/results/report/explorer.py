"""The loss explorer: what stands on the page before its script computes anything, and the examples it offers."""

import math
from dataclasses import dataclass

from ntl.results.report.markup import Html, element

DIGITS = 10


@dataclass(frozen=True)
class Example:
    """``weights`` of the ten digits, in any unit: the page divides them by their sum."""

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


def _slider(digit: int) -> Html:
    weights = EXAMPLES[0].weights
    percent = f"{100 * weights[digit] / sum(weights):.1f} %"
    return element(
        "li",
        element("label", str(digit), for_=f"weight-{digit}"),
        element("input", type="range", id=f"weight-{digit}", min=0, max=100, step=1, value=f"{weights[digit]:g}"),
        element("output", percent, for_=f"weight-{digit}", aria_live="off"),  # the slider itself says it
    )


def _labels() -> Html:
    buttons = [
        element(
            "label",
            element("input", type="radio", name="label", value=digit, checked=digit == EXAMPLES[0].label),
            element("span", str(digit)),
        )
        for digit in range(DIGITS)
    ]
    return element("fieldset", element("legend", "Label"), element("div", *buttons, class_="segments"))


def section() -> Html:
    """Sliders, labels, examples, and the places where the script puts charts and numbers."""
    buttons = [element("button", each.name, type="button", data_example=number) for number, each in enumerate(EXAMPLES)]
    heads = [element("th", name, scope="col") for name in ("loss", "value", *map(str, range(DIGITS)))]
    caption = element("caption", "Value, and gradient with respect to the logit of each digit")
    numbers = element("table", caption, element("thead", element("tr", *heads)), element("tbody"), id="loss-numbers")
    return element(
        "section",
        element("h2", "Loss explorer", id="explorer-title"),
        element(
            "p",
            "The losses of one number token over the ten digits. p is the softmax over the digits alone, y the label, "
            "ŷ = Σ p(v)·v the expected value, F and G the cumulative distributions of p and of the label. A bar is the "
            "gradient with respect to a digit's logit: descent lowers the logits of bars above the line and raises "
            "those of bars below. Through the softmax a digit without mass has no gradient, but that of CE at the "
            "label.",
        ),
        element("fieldset", element("legend", "Examples, label 4"), element("div", *buttons, class_="examples")),
        element(
            "div",
            element(
                "div",
                _labels(),
                element(
                    "fieldset",
                    element("legend", "Weights of the digits, and their probabilities"),
                    element("ul", *map(_slider, range(DIGITS)), class_="sliders"),
                ),
                class_="controls",
            ),
            element(
                "div",
                element("p", element("output", id="explorer-says")),
                element(
                    "p",
                    element(
                        "label",
                        element("input", type="checkbox", id="one-scale", checked=True),
                        " one scale for all gradients",
                    ),
                ),
                element("div", id="loss-charts"),
                class_="results",
            ),
            class_="explorer",
        ),
        element(
            "div", numbers, class_="scroll", tabindex=0, role="region", aria_label="Losses and gradients as numbers"
        ),
        element("noscript", element("p", "The explorer and the details of runs need JavaScript.")),
        id="explorer",
        aria_labelledby="explorer-title",
    )
