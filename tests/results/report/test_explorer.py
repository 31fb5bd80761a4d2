"""What stands on the page before its script runs."""

import re

import pytest

from ntl.results.report.explorer import DIGITS, EXAMPLES, examples, section


def test_every_input_has_a_label() -> None:
    text = section()
    assert re.findall(r'<label for="(weight-\d)">', text) == [f"weight-{digit}" for digit in range(DIGITS)]
    assert set(re.findall(r'<input type="range" id="([^"]+)"', text)) == {f"weight-{digit}" for digit in range(DIGITS)}
    assert len(re.findall(r'<label><input type="radio" name="label"', text)) == DIGITS


def test_the_examples_begin_with_the_papers() -> None:
    first = examples()[0]
    assert first["label"] == 4
    assert first["weights"] == [50.0, 0, 0, 0, 0, 0, 0, 0, 50.0, 0]
    assert section().count("data-example=") == len(EXAMPLES)


def test_figure_1b_has_its_probabilities() -> None:
    (weights,) = [each.weights for each in EXAMPLES if each.name.startswith("Figure 1b")]
    # softmax of a logit of 5 and nine of 0.01: 1 / (1 + 9 e^-4.99)
    assert weights[8] / sum(weights) == pytest.approx(0.942284, abs=1e-6)
