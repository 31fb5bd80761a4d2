"""Greedy and beam search against step-by-step references, and the order of the answers."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from tree_models import END, MODELS, NAMES, PAD, TreeTokenizer, answers

from ntl.config import DecodingConfig
from ntl.config.decoding import TreeConfig
from ntl.decoding.batches import Answer
from ntl.decoding.tree import reads_masks
from ntl.system.errors import Diverged

QUESTIONS = [[2, 3], [4], [5, 6, 2, 3], [6], [3, 3, 3]]
LENGTH = 5


@pytest.fixture(params=["decoder", "encoder_decoder"])
def model(request: pytest.FixtureRequest) -> Any:
    """Over seven tokens, so that some answers end early."""
    shape = {"decoder": {"seed": 1, "spread": 0.6}, "encoder_decoder": {"seed": 2, "layers": 1, "spread": 2.0}}
    return MODELS[request.param](rows=7, **shape[request.param]).float()


def decoded(model: Any, progress: Callable[[int], None] = lambda done: None, **changes: Any) -> list[Answer]:
    config = DecodingConfig(name="x", **{"batch_size": 2, **changes})
    return answers(model, config, QUESTIONS, max_new_tokens=LENGTH, progress=progress)


def ids(model: Any, **changes: Any) -> list[list[int]]:
    return [answer.token_ids for answer in decoded(model, **changes)]


@torch.no_grad()
def step_by_step(model: Any, question: list[int]) -> list[int]:
    new: list[int] = []
    while len(new) < LENGTH and END not in new:
        if model.config.is_encoder_decoder:
            given = {"input_ids": torch.tensor([question]), "decoder_input_ids": torch.tensor([[PAD, *new]])}
        else:
            given = {"input_ids": torch.tensor([question + new])}
        new.append(int(model(**given).logits[0, -1].argmax()))
    return new


def test_greedy_is_the_most_likely_next_token_in_the_order_of_the_examples(model: Any) -> None:
    """Answers end with the end token, if there is one, and hold no padding; it is no part of their text."""
    expected = [step_by_step(model, question) for question in QUESTIONS]
    assert len(set(map(str, expected))) > 1
    for size, steps in ((2, [2, 4, 5]), (5, [5])):
        done: list[int] = []
        found = decoded(model.train(), batch_size=size, progress=done.append)
        assert (done, model.training) == (steps, True)  # as it was before
        assert [answer.token_ids for answer in found] == expected
        texts = [TreeTokenizer().decode([token for token in each if token > END]).strip() for each in expected]
        assert [answer.text for answer in found] == texts


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"_target_": "ntl.decoding.point.median", "num_beams": 9}])
def test_logits_that_are_not_finite_are_no_answer(how: dict[str, Any]) -> None:
    """In the second step; a token whose logit is -inf cannot come, and all others can."""

    def found(value: float) -> list[Answer]:
        model, steps = MODELS["decoder"](), itertools.count()

        def spoil(model: Any, given: Any, output: Any) -> None:
            if not torch.is_grad_enabled() and next(steps) == 1:
                output.logits[-1, -1, NAMES.index("x")] = value

        config = (TreeConfig if "_target_" in how else DecodingConfig)(name="x", batch_size=2, **how)
        reads_masks(model)
        model.register_forward_hook(spoil)
        return answers(model, config, [[2, 3]])

    for value in (math.nan, math.inf):
        with pytest.raises(Diverged, match="NaN or infinite; take another checkpoint"):
            found(value)
    assert found(-math.inf)[0].text == found(-1e4)[0].text


OWN = [
    {"repetition_penalty": 5.0, "suppress_tokens": [2, 5], "forced_eos_token_id": 3, "forced_bos_token_id": 4},
    {"bad_words_ids": [[5], [6]], "length_penalty": -5.0, "min_new_tokens": 4, "sequence_bias": [[[2], 9.0]]},
    {"do_sample": True, "temperature": 9.0, "top_k": 2, "num_beams": 3, "num_return_sequences": 3},
    {"max_length": 1, "max_new_tokens": 1, "return_dict_in_generate": True, "output_scores": True},
]


def say(model: Any, **own: Any) -> GenerationConfig:
    """Give the model a generation config of its own that says so."""
    tokens = {name: getattr(model.config, name, None) for name in ("decoder_start_token_id", "bos_token_id")}
    model.generation_config = GenerationConfig(**tokens | own)
    return model.generation_config


def test_nothing_of_the_models_own_config_acts(model: Any) -> None:
    greedy, beams = [step_by_step(model, question) for question in QUESTIONS], ids(model, num_beams=3)
    for own in OWN:
        before = say(model, **own)
        assert ids(model) == greedy
        assert ids(model, num_beams=3) == beams
        assert model.generation_config is before


def test_an_answer_ends_at_every_end_token_of_the_models_own_config(model: Any) -> None:
    greedy = [step_by_step(model, question) for question in QUESTIONS]
    other = next(token for answer in reversed(greedy) for token in reversed(answer) if token != END)
    expected = [answer[: answer.index(other) + 1] if other in answer else answer for answer in greedy]
    assert expected != greedy
    say(model, eos_token_id=[END, other])
    assert ids(model) == expected
