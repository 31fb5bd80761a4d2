"""The two decodings by number on models whose distribution is known."""

import math
from typing import Any

import pytest
import torch
from tree_models import END, MODELS, TreeTokenizer, answers, prompts

from ntl.config.decoding import TreeConfig
from ntl.decoding.batches import Answer
from ntl.decoding.tree import NumberTokens, read_numbers

QUESTIONS = [[2, 3, 4], [5], [6, 2, 7, 8, 9], [3], [7, 7]]
ALL = 10**9


def read(name: str, model: Any, interval: float = 0.0, **changes: Any) -> list[Answer]:
    config = TreeConfig(_target_=f"ntl.decoding.point.{name}", name=name, num_beams=ALL, batch_size=2, **changes)
    return answers(model, config, QUESTIONS, interval=interval)


@pytest.mark.parametrize("family", MODELS)
def test_answers_are_those_of_the_tree_in_the_order_of_the_examples(family: str) -> None:
    model = MODELS[family]()
    tokens = NumberTokens.from_tokenizer(TreeTokenizer())
    with torch.inference_mode():
        trees = [
            read_numbers(model, prompts(model, [question]), tokens, num_beams=ALL, max_new_tokens=4)
            for question in QUESTIONS
        ]
    means = read("expectation", model, tolerance=0.0, trim=0.0, decimals=6)
    medians = read("median", model, tolerance=0.0)
    assert len({answer.text for answer in means}) == len(QUESTIONS)
    for (tree,), mean, middle in zip(trees, means, medians, strict=True):
        values, shares = tree.values, tree.shares
        assert float(mean.text) == pytest.approx(float(shares @ values), abs=1e-6)
        assert middle.text in tree.texts
        below = shares[values < float(middle.text)].sum()
        assert below < 0.5 <= below + shares[values == float(middle.text)].sum() + 1e-9
        assert mean.about["covered"] == pytest.approx(tree.represented)
        assert mean.about["represented"] == pytest.approx(tree.represented)
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
    assert read(name, model) == [Answer("", [], {"covered": 0.0, "represented": 0.0})] * len(QUESTIONS)


def test_an_interval_is_that_of_the_same_distribution() -> None:
    """Half of the probability lies between the quartiles; the answers are those without an interval."""
    model = MODELS["decoder"]()
    for name in ("expectation", "median"):
        without, within = (read(name, model, interval, tolerance=0.0) for interval in (0.0, 0.5))
        for plain, wide in zip(without, within, strict=True):
            assert wide.text == plain.text
            assert wide.about["interval"] == [plain.about["quantiles"]["0.25"], plain.about["quantiles"]["0.75"]]
            assert [wide.about[key] for key in ("sd", "covered")] == [plain.about[key] for key in ("sd", "covered")]
