"""Drafts by heads and their verification: the tokens of greedy decoding, and the drafts of heads without a cache."""

import copy
import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mtp_cases import decoder, spread
from tree_models import END, PAD, answers, fixed_mask
from tree_models import decoder as tree_decoder

from ntl.config import DecodingConfig, UserError
from ntl.config.decoding import SpeculativeConfig
from ntl.config.loss import MTPConfig
from ntl.decoding import speculative
from ntl.decoding.speculative import SPECULATION, few_rows, product
from ntl.models.interface import lm_head
from ntl.models.mtp import Decoder, Heads, add_heads
from ntl.system.errors import Diverged

V = 5
ARCHITECTURES = ["gpt2", "llama", "qwen2", "granite", "qwen3_5_text"]
EXTRA: dict[str, dict[str, Any]] = {
    "gpt2": {"n_positions": 24},
    "qwen3_5_text": {"head_dim": 8, "layer_types": ["full_attention"] * 5},
}
KINDS: dict[str, dict[str, Any]] = {
    **{variant: {"variant": variant} for variant in ("independent", "causal", "linear")},
    "sequential": {"kind": "sequential"},
}


@functools.cache
def _model(architecture: str, kind: str, heads: int, seed: int = 3) -> Any:
    """In float64, norms included, over so few tokens that heads agree with the model often, but not always."""
    ids = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": PAD}
    model = decoder(architecture, 5, tied=False, vocab_size=V, **ids, **EXTRA.get(architecture, {}))
    add_heads(model, MTPConfig(heads=heads, **KINDS[kind]), say=lambda line: None)
    return spread(model, seed, 0.5).eval()


def _decoded(model: Any, questions: list[list[int]], *, limit: int, batch: int, heads: int = 0) -> list[Any]:
    config = SpeculativeConfig(name="speculative", batch_size=batch, heads=heads)
    return answers(model, config, questions, max_new_tokens=limit)


@torch.no_grad()
def _drafts(model: Any, tokens: list[int]) -> list[int]:
    """The next token and the drafts behind it, each of a pass without a cache over all tokens."""
    known, ids = list(tokens), torch.tensor([tokens])
    heads = Heads(
        model,
        model.mtp_config,
        ids,
        torch.ones_like(ids),
        ahead=lambda places: torch.tensor([(known + [PAD] * places)[places : places + len(tokens)]]),
    )
    found = {}
    for index, states in heads.states():
        found[index] = int(lm_head(model).logits(heads.read(states))[0, -1].argmax())
        if index == len(known) - len(tokens):
            known.append(found[index])
    return [found[index] for index in range(model.mtp_config.heads)]


def _by_hand(model: Any, question: list[int], limit: int) -> tuple[list[int], dict[str, Any]]:
    """The answer token by token, and how many drafts are kept where each pass may keep all of a block."""
    answer: list[int] = []
    drafts: list[int] = []
    forwards, accepted = 0, [0] * (model.mtp_config.heads - 1)
    while len(answer) < limit and END not in answer:
        forwards += 1
        for head, draft in enumerate([*drafts, None]):
            block = _drafts(model, question + answer)
            answer.append(block[0])
            if len(answer) == limit or answer[-1] == END:
                if draft == block[0]:
                    accepted[head] += 1
                break
            if draft != block[0]:
                break
            accepted[head] += 1
        drafts = block[1:]
    return answer, {"tokens": len(answer), "forwards": forwards, "accepted": accepted}


questions = st.lists(st.lists(st.integers(2, V - 1), min_size=1, max_size=6), min_size=1, max_size=5)


kinds, limits, seeds = st.sampled_from(list(KINDS)), st.integers(1, 10), st.integers(1, 2)


@settings(max_examples=24)
@given(kind=kinds, architecture=st.sampled_from(ARCHITECTURES), questions=questions, limit=limits, seed=seeds,
       batch=st.integers(1, 5), heads=st.sampled_from([2, 4]))  # fmt: skip
@pytest.mark.slow
def test_the_tokens_of_greedy_decoding(
    kind: str, architecture: str, questions: list[list[int]], limit: int, batch: int, heads: int, seed: int
) -> None:
    """Also where rows keep different numbers of drafts, and an answer ends inside a block."""
    model = _model(architecture, kind, heads, seed)
    found = _decoded(model, questions, limit=limit, batch=batch)
    config = DecodingConfig(name="greedy", batch_size=batch)
    greedy = answers(model, config, questions, max_new_tokens=limit)
    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in greedy]


@settings(max_examples=10)
@given(kind=kinds, architecture=st.sampled_from(["gpt2", "llama"]), questions=questions, limit=limits, seed=seeds)
@pytest.mark.slow
def test_the_drafts_of_heads_without_a_cache(
    kind: str, architecture: str, questions: list[list[int]], limit: int, seed: int
) -> None:
    model = _model(architecture, kind, 4, seed)
    for question, answer in zip(questions, _decoded(model, questions, limit=limit, batch=5), strict=True):
        ids, counts = _by_hand(model, question, limit)
        assert (answer.token_ids, answer.about[SPECULATION]) == (ids, counts)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_done_leave_the_batch(kind: str) -> None:
    """A pass has as many rows as have passes left, and the last row's tokens and drafts are those that it has alone."""
    model, asked, sizes = _model("llama", kind, 4), [[2, 3], [4], [3, 3, 2], [2, 4, 4], [3]], []
    handle = Decoder(model).base.register_forward_pre_hook(
        lambda base, args, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    found = _decoded(model, asked, limit=10, batch=5)
    handle.remove()
    forwards = [answer.about[SPECULATION]["forwards"] for answer in found]
    assert sizes == [sum(each > done for each in forwards) for done in range(max(forwards))]
    assert sizes[-1] < sizes[0] == 5
    assert found == [_decoded(model, [question], limit=10, batch=1)[0] for question in asked]


def test_logits_that_are_not_finite_are_told() -> None:
    model = copy.deepcopy(_model("llama", "independent", 2))
    model.lm_head.weight.data[3] = torch.nan
    with pytest.raises(Diverged, match="NaN or infinite"):
        _decoded(model, [[2, 4]], limit=3, batch=1)


@pytest.mark.parametrize("kind", ["causal", "sequential"])
def test_drafts_are_frequent_tokens_or_those_of_the_questions(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large vocabulary; the answers stay those of greedy decoding."""
    model, asked = _model("llama", kind, 4, 6), [[2, 3], [4], [3, 3, 2]]
    expected = _decoded(model, asked, limit=10, batch=2)
    monkeypatch.setattr(speculative, "FREQUENT", 1)
    inputs = {"input_ids": torch.tensor([[2, 3]]), "attention_mask": torch.ones(1, 2, dtype=torch.int64)}
    with torch.inference_mode():
        rows = speculative.Rows(model, model.mtp_config, 4, inputs, 10, [END])
        rows.draft(*rows.verify())
    place = int(rows.last_B) + 2
    assert {*rows.tokens_BC[0, place : place + 3].tolist()} <= {0, 2, 3}
    found = _decoded(model, asked, limit=10, batch=2)
    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in expected]
    assert [answer.about for answer in found] != [answer.about for answer in expected]


@given(rows=st.integers(1, 9), bias=st.booleans())
def test_a_product_of_few_rows(rows: int, bias: bool) -> None:
    layer = torch.nn.Linear(6, 7, bias=bias).double()
    hidden = torch.randn(rows, 1, 6, dtype=torch.float64).transpose(0, 1)
    torch.testing.assert_close(product(layer, hidden), layer(hidden), rtol=1e-12, atol=1e-12)
    with few_rows(layer):
        torch.testing.assert_close(layer(hidden), product(layer, hidden), rtol=0, atol=0)
    assert "forward" not in vars(layer)


def test_fewer_heads_draft_less() -> None:
    model, asked = _model("llama", "causal", 4), [[2, 3], [4]]
    answered = [_decoded(model, asked, limit=9, batch=2, heads=heads) for heads in (1, 2, 4)]
    assert len({str([answer.token_ids for answer in each]) for each in answered}) == 1
    for each in answered[0]:
        length = len(each.token_ids)
        assert each.about[SPECULATION] == {"tokens": length, "forwards": length, "accepted": []}
    assert [len(each[0].about[SPECULATION]["accepted"]) for each in answered] == [0, 1, 3]


def _changed(**settings: Any) -> Any:
    model = copy.deepcopy(_model("llama", "independent", 2))
    for name, value in settings.items():
        setattr(model.config, name, value)
    return model


@pytest.mark.parametrize(
    ("model", "heads", "line"),
    [
        (lambda: tree_decoder(), 0, "the model has no heads to draft with; train it with objective=mtp"),
        (lambda: _changed(), 3, "decoding.heads=3: the model has 2 heads"),
        (lambda: _changed(sliding_window=6), 0, "attends to the last 6 tokens, and questions and answers have up to 8"),
        (lambda: _changed(layer_types=["linear_attention"] * 4), 0, "linear_attention cannot be rolled back"),
        (lambda: add_heads(fixed_mask(), MTPConfig(keep_depth=True)), 0, "own mask counts the tokens of a row"),
        (lambda: _changed(_attn_implementation="flash_attention_2"), 0, "attention by flash_attention_2 takes no mask"),
    ],
)
def test_one_line_for_a_model_that_cannot_be_drafted_for(model: Any, heads: int, line: str) -> None:
    with pytest.raises(UserError, match=line) as caught:
        _decoded(model(), [[2, 3]], limit=6, batch=1, heads=heads)
    assert "\n" not in str(caught.value)
