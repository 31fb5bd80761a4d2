"""The loss explorer in a real Chromium: its values and gradients are those of ntl.losses."""

import math
import random
from collections.abc import Callable

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor

from ntl.losses import digit_cross_entropy, ntl_crps, ntl_huber, ntl_mae, ntl_mse, ntl_was, ntl_was_cdf
from ntl.numbers import NumberVocabulary
from ntl.results.report.make_report import DIGITS, EXAMPLES

# Each opens a browser.
pytestmark = pytest.mark.slow

Opener = Callable[..., Page]
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "ce": digit_cross_entropy,
    "ntl_mse": ntl_mse,
    "ntl_mae": ntl_mae,
    "ntl_huber": ntl_huber,
    "ntl_was": ntl_was,
    "ntl_was_cdf": ntl_was_cdf,
    "ntl_crps": ntl_crps,
}
# What the explorer's table holds: loss -> its value and ten gradients.
READ = """() => Object.fromEntries([...document.querySelectorAll("#loss-numbers tbody tr")].map(
    (row) => [row.dataset.loss, [...row.querySelectorAll("td")].map((cell) => Number(cell.dataset.value))]))"""
SET = """([weights, label]) => {
    weights.forEach((weight, digit) => {
        const slider = document.getElementById(`weight-${digit}`);
        slider.value = weight;
        slider.dispatchEvent(new Event("input"));
    });
    document.querySelector(`#explorer input[name="label"][value="${label}"]`).click();
}"""


def expected(weights: tuple[float, ...], label: int) -> dict[str, list[float]]:
    """Each loss and its gradients by Python, in float64."""
    total = sum(weights) or 1.0
    found = {}
    for name, function in FUNCTIONS.items():
        logits = torch.tensor([weights], dtype=torch.float64).div(total).log().requires_grad_()
        loss = function(logits, torch.tensor([label]), NumberVocabulary.from_values(range(DIGITS)))
        (gradient,) = torch.autograd.grad(loss, logits)
        found[name] = [loss.item(), *gradient[0].tolist()]
    return found


def compare(page: Page, weights: tuple[float, ...], label: int) -> None:
    shown = page.evaluate(READ)
    wanted = expected(weights, label)
    assert list(shown) == list(wanted)
    for name, numbers in wanted.items():
        assert shown[name] == pytest.approx(numbers, rel=1e-6, abs=1e-6), (name, weights, label)


def test_examples_have_pythons_values_and_gradients(open_page: Opener) -> None:
    page = open_page()
    for number, example in enumerate(EXAMPLES):
        page.click(f'[data-example="{number}"]')
        compare(page, example.weights, example.label)


def test_it_starts_where_ce_and_ntl_differ(open_page: Opener) -> None:
    page = open_page()
    compare(page, EXAMPLES[0].weights, 4)
    shown = page.evaluate(READ)
    # p = 0.02 at the label: CE -ln 0.02, its gradient p - 1; of |v - y| the mean 0.98 * 4, the gradient p (0 - 3.92).
    assert [round(shown["ce"][i], 3) for i in (0, 5)] == [3.912, -0.98]
    assert [round(shown["ntl_was"][i], 4) for i in (0, 5)] == [3.92, -0.0784]
    assert "Gradient at the label: CE −0.98, NTL-MSE 0, NTL-WAS −0.0784." in page.inner_text("#explorer-says")
    heights = page.evaluate("""() => Object.fromEntries([...document.querySelectorAll("#loss-charts .card")].map(
        (card) => [card.querySelector("h3").firstChild.textContent.trim(),
                   Number(card.querySelectorAll("rect")[4].getAttribute("height"))]))""")
    assert heights["CE"] > 10 * heights["NTL-WAS"] > 10 * heights["NTL-MSE"] == 0


def test_the_papers_example(open_page: Opener) -> None:
    page = open_page()
    page.click('[data-example="2"]')
    page.click('[data-example="1"]')
    shown = page.evaluate(READ)
    assert shown["ntl_mse"][0] == 0
    assert shown["ntl_was"][0] == 4
    assert shown["ce"][0] == math.inf
    assert all(math.isfinite(number) for numbers in shown.values() for number in numbers[1:])
    assert "CE ∞, NTL-MSE 0, NTL-WAS 4" in page.inner_text("#explorer-says")
    assert page.locator('[data-loss="ce"] td').first.inner_text() == "∞"


def test_random_distributions_have_pythons_values_and_gradients(open_page: Opener) -> None:
    page = open_page()
    draw = random.Random(0)
    for number in range(14):
        # Every other one has digits without mass.
        weights = tuple(float(draw.randint(1, 100) * (number % 2 or draw.random() < 0.5)) for _ in range(DIGITS))
        label = draw.randrange(DIGITS)
        page.evaluate(SET, [weights, label])
        compare(page, weights, label)


def test_no_weight_at_all_counts_as_uniform(open_page: Opener) -> None:
    page = open_page()
    page.evaluate(SET, [[0.0] * DIGITS, 3])
    compare(page, (0.0,) * DIGITS, 3)
    assert "counts as uniform" in page.inner_text("#explorer-says")


# Of a card: the height of each bar, in pixels of the drawing, negative where it hangs.
HEIGHTS = """(card) => [...document.querySelectorAll(".card")[card].querySelectorAll("rect")].map(
    (bar) => bar.getAttribute("height") * (bar.getAttribute("class") === "down" ? -1 : 1))"""


def test_charts_show_the_gradients(open_page: Opener) -> None:
    page = open_page()
    weights, label = (20.0, 0.0, 0.0, 10.0, 30.0, 0.0, 0.0, 0.0, 0.0, 40.0), 4
    page.evaluate(SET, [list(weights), label])
    wanted = {name: numbers[1:] for name, numbers in expected(weights, label).items()}
    largest = max(abs(number) for gradient in wanted.values() for number in gradient)
    assert page.evaluate(HEIGHTS, 0) == pytest.approx([76 * weight / 40 for weight in weights])
    for card, gradient in enumerate(wanted.values(), start=1):
        assert page.evaluate(HEIGHTS, card) == pytest.approx([38 * number / largest for number in gradient], abs=1e-4)
    page.uncheck("#one-scale")
    for card, gradient in enumerate(wanted.values(), start=1):
        top = max(map(abs, gradient))
        assert page.evaluate(HEIGHTS, card) == pytest.approx([38 * number / top for number in gradient], abs=1e-4)


def test_the_keyboard_moves_a_slider(open_page: Opener) -> None:
    page = open_page()
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "weight-0":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowRight")
    weights = (50.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 49.0, 0.0)
    assert page.locator("#weight-0 + output").inner_text() == "49.5 %"
    assert page.locator("#weight-0").get_attribute("aria-valuetext") == "weight 50, probability 49.5 %"
    compare(page, weights, 4)
