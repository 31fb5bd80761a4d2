"""What stands on the page before its script runs."""

import re

import pytest

from ntl.results.report.explorer import DIGITS, EXAMPLES, examples, section


def test_every_input_has_a_label() -> None:
    text = section()
    assert re.findall(r'<label for="(weight-\d)">', text) == [f"weight-{digit}" for digit in range(DIGITS)]
    assert set(re.findall(r'<input type="range" id="([^"]+)"', text)) == {f"weight-{digit}" for digit in range(DIGITS)}
    assert len(re.findall(r'<label><input type="radio" name="label"', text)) == DIGITS


def test_it_starts_where_the_losses_differ() -> None:
    first, second = examples()[:2]
    assert first["label"] == second["label"] == 4
    assert first["weights"] == [49.0, 0, 0, 0, 2.0, 0, 0, 0, 49.0, 0]
    assert second["weights"] == [50.0, 0, 0, 0, 0, 0, 0, 0, 50.0, 0]  # the paper's, where CE is infinite
    text = section()
    assert text.count("data-example=") == len(EXAMPLES)
    # What stands there before the script runs is the same.
    sliders = re.findall(r'id="weight-(\d)" min="0" max="100" step="1" value="(\d+)"', text)
    assert [(int(digit), float(weight)) for digit, weight in sliders] == list(enumerate(EXAMPLES[0].weights))
    shown = re.findall(r"<output for=\"weight-\d\"[^>]*>([^<]+)<", text)
    assert [float(percent.removesuffix(" %")) for percent in shown] == list(EXAMPLES[0].weights)
    assert 'type="checkbox" id="one-scale" checked' in text


def test_figure_1b_has_its_probabilities() -> None:
    (weights,) = [each.weights for each in EXAMPLES if each.name.startswith("Figure 1b")]
    # softmax of a logit of 5 and nine of 0.01: 1 / (1 + 9 e^-4.99)
    assert weights[8] / sum(weights) == pytest.approx(0.942284, abs=1e-6)
