"""Expectation, median, quantiles and deviation by hand; the two decodings on models whose distribution is known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tree_models import END, MODELS, TreeTokenizer, answers, prompts

from ntl.config.decoding import TreeConfig
from ntl.decoding.batches import Answer
from ntl.decoding.point import point
from ntl.decoding.tree import NumberTokens, read_numbers


def logs(**masses: float) -> dict[str, float]:
    return {text.replace("_", ""): math.log(mass) for text, mass in masses.items()}


def test_by_hand() -> None:
    """2, 4 and 10 with 0.1, 0.2 and 0.1: a quarter, a half and a quarter of 0.4."""
    found = point(logs(_10=0.1, _4=0.2, _2=0.1))
    assert found.values.tolist() == [2, 4, 10]
    assert found.shares == pytest.approx([0.25, 0.5, 0.25])
    assert found.covered == pytest.approx(0.4)
    assert found.moments() == pytest.approx((5, math.sqrt((9 + 2 * 1 + 25) / 4)))
    shares = (0, 0.1, 0.25, 0.26, 0.5, 0.74, 0.75, 0.76, 1)
    assert [found.values[found.quantile(share)] for share in shares] == [2, 2, 2, 4, 4, 4, 4, 10, 10]
    # Texts of one value are added up, and written as the likeliest.
    found = point({"7": math.log(0.1), "07": math.log(0.2), "7.0": math.log(0.05), "8": math.log(0.3)})
    assert (found.values.tolist(), found.texts) == ([7, 8], ["07", "8"])
    assert found.shares == pytest.approx([0.35 / 0.65, 0.3 / 0.65])


def test_tails_are_cut_by_probability_not_by_number() -> None:
    """Of 1, 2, 3 and a billion with 0.1, 0.4, 0.4 and 0.1 a fifth at either end leaves 2 and 3 with 0.3 each."""
    found = point(logs(_1=0.1, _2=0.4, _3=0.4, _1000000000=0.1))
    assert found.moments(0.2) == pytest.approx((2.5, 0.5))
    # 0.05 of the least and of the greatest go, 0.05 of either stay.
    mean = (0.05 * 1 + 0.4 * 2 + 0.4 * 3 + 0.05 * 1e9) / 0.9
    assert found.moments(0.05)[0] == pytest.approx(mean)
    assert found.moments(0.0)[0] == pytest.approx(0.1 + 0.8 + 1.2 + 1e8)
    assert point(logs(_5=0.7)).moments(0.25) == (5, 0)
    assert point({"0": -1.0}).moments() == (0, 0)


QUESTIONS = [[2, 3, 4], [5], [6, 2, 7, 8, 9], [3], [7, 7]]


def read(name: str, model: Any, interval: float = 0.0, **changes: Any) -> list[Answer]:
    config = TreeConfig(_target_=f"ntl.decoding.point.{name}", name=name, num_beams=2000, batch_size=2, **changes)
    return answers(model, config, QUESTIONS, interval=interval)


@pytest.mark.parametrize("family", MODELS)
def test_answers_are_those_of_the_tree_in_the_order_of_the_examples(family: str) -> None:
    model = MODELS[family]()
    tokens = NumberTokens.from_tokenizer(TreeTokenizer())
    with torch.inference_mode():
        trees = [
            read_numbers(model, prompts(model, [question]), tokens, num_beams=2000, max_new_tokens=4)
            for question in QUESTIONS
        ]
    means = read("expectation", model, tolerance=0.0, trim=0.0, decimals=6)
    medians = read("median", model, tolerance=0.0)
    assert len({answer.text for answer in means}) == len(QUESTIONS)
    for (tree,), mean, middle in zip(trees, means, medians, strict=True):
        values = np.array([float(text) for text in tree])
        shares = np.exp(list(tree.values()))
        shares /= shares.sum()
        assert float(mean.text) == pytest.approx(float(shares @ values), abs=1e-6)
        assert middle.text in tree
        below = shares[values < float(middle.text)].sum()
        assert below < 0.5 <= below + shares[values == float(middle.text)].sum() + 1e-9
        assert mean.about["covered"] == pytest.approx(np.exp(list(tree.values())).sum())
        assert mean.about["sd"] == pytest.approx(math.sqrt(shares @ (values - shares @ values) ** 2))
        assert list(mean.about["quantiles"]) == ["0.05", "0.25", "0.5", "0.75", "0.95"]
        assert middle.about["quantiles"]["0.5"] == float(middle.text)
        assert mean.token_ids == middle.token_ids == []


@pytest.mark.parametrize("name", ["expectation", "median"])
def test_a_model_that_never_says_a_number_answers_nothing(name: str) -> None:
    model = MODELS["decoder"]()
    head = torch.nn.Linear(16, 12, dtype=torch.float64)
    head.weight.data.zero_()
    head.bias.data.fill_(-2000.0)
    head.bias.data[END] = 0
    model.set_output_embeddings(head)
    assert read(name, model) == [Answer("", [], {"covered": 0.0})] * len(QUESTIONS)


def test_an_interval_is_that_of_the_same_distribution() -> None:
    """Half of the probability lies between the quartiles; the answers are those without an interval."""
    model = MODELS["decoder"]()
    for name in ("expectation", "median"):
        without, within = (read(name, model, interval, tolerance=0.0) for interval in (0.0, 0.5))
        for plain, wide in zip(without, within, strict=True):
            assert wide.text == plain.text
            assert wide.about["interval"] == [plain.about["quantiles"]["0.25"], plain.about["quantiles"]["0.75"]]
            assert [wide.about[key] for key in ("sd", "covered")] == [plain.about[key] for key in ("sd", "covered")]
