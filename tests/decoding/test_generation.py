"""Greedy and beam search against step-by-step references, and the order of the answers."""

import itertools
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from tree_models import END as EOS
from tree_models import MODELS, PAD, answers

from ntl.config import DecodingConfig

V = 7


class _Tokenizer:
    pad_token_id, eos_token_id = PAD, EOS

    def decode(self, ids, skip_special_tokens: bool, **_: bool) -> str:
        assert skip_special_tokens
        return " " + " ".join(str(int(i)) for i in itertools.takewhile(lambda i: i > EOS, ids))


@pytest.fixture(scope="module")
def decoder() -> Any:
    return MODELS["decoder"](seed=1, rows=V, spread=0.6).float()


@pytest.fixture(scope="module")
def encoder_decoder() -> Any:
    return MODELS["encoder_decoder"](seed=2, rows=V, layers=1, spread=2.0).float()


QUESTIONS = [[2, 3], [4], [5, 6, 2, 3], [6], [3, 3, 3]]


def _decode(config: DecodingConfig, model, max_new_tokens: int = 5):
    return answers(model, config, QUESTIONS, tokenizer=_Tokenizer(), max_new_tokens=max_new_tokens)


def _run(model, **changes) -> list[str]:
    return [answer.text for answer in _decode(DecodingConfig(name="x", **{"batch_size": 2, **changes}), model)]


def _step_by_step(model, ids: list[int]) -> str:
    new: list[int] = []
    for _ in range(5):
        with torch.no_grad():
            if model.config.is_encoder_decoder:
                logits = model(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([[PAD, *new]])).logits
            else:
                logits = model(torch.tensor([ids + new])).logits
        token = int(logits[0, -1].argmax())
        if token == EOS:
            break
        new.append(token)
    return _Tokenizer().decode(new, True).strip()


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_greedy_is_the_most_likely_next_token_in_the_order_of_the_examples(family: str, request) -> None:
    model = request.getfixturevalue(family)
    expected = [_step_by_step(model, question) for question in QUESTIONS]
    assert len(set(expected)) > 1
    assert _run(model) == expected
    found = _decode(DecodingConfig(name="x", batch_size=5), model)
    assert [answer.text for answer in found] == expected
    assert [_Tokenizer().decode(answer.token_ids, True).strip() for answer in found] == expected
    # They end with the end token, and hold no padding.
    assert all(EOS not in answer.token_ids[:-1] for answer in found)
    assert {len(answer.token_ids) for answer in found if answer.token_ids[-1] != EOS} <= {5}


OWN = [
    {"repetition_penalty": 5.0, "suppress_tokens": [2, 3, 4], "forced_eos_token_id": 3, "forced_bos_token_id": 4},
    {"bad_words_ids": [[5], [6]], "length_penalty": -5.0, "min_new_tokens": 4, "sequence_bias": [[[2], 9.0]]},
    {"do_sample": True, "temperature": 9.0, "top_k": 2, "num_beams": 3, "num_return_sequences": 3},
    {"max_length": 1, "max_new_tokens": 1, "return_dict_in_generate": True, "output_scores": True},
]


@pytest.fixture
def says(request, monkeypatch):
    """A model of this family whose own generation config says so."""

    def make(family: str, **own):
        model = request.getfixturevalue(family)
        tokens = {name: getattr(model.config, name, None) for name in ("decoder_start_token_id", "bos_token_id")}
        monkeypatch.setattr(model, "generation_config", GenerationConfig(**tokens | own))
        return model

    return make


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_nothing_of_the_models_own_config_acts(family: str, says, request) -> None:
    plain = request.getfixturevalue(family)
    greedy = [_step_by_step(plain, question) for question in QUESTIONS]
    beams = _run(plain, num_beams=3)
    for own in OWN:
        model = says(family, **own)
        before = model.generation_config
        assert _run(model) == greedy
        assert _run(model, num_beams=3) == beams
        assert model.generation_config is before


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_an_answer_ends_at_every_end_token_of_the_models_own_config(family: str, says, request) -> None:
    plain = request.getfixturevalue(family)
    greedy = [_step_by_step(plain, question) for question in QUESTIONS]
    other = int(" ".join(greedy).split()[-1])
    expected = [text.split(str(other))[0].strip() for text in greedy]
    assert expected != greedy
    model = says(family, eos_token_id=[EOS, other])
    assert _run(model) == expected
    found = [answer.token_ids[-1] for answer in _decode(DecodingConfig(name="x"), model)]
    assert other in found
