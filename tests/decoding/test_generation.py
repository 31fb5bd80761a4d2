"""Greedy and beam search, digit medians and drafts against step-by-step references, and the order of the answers."""

import copy
import functools
import itertools
import math
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mtp_cases import decoder, spread
from transformers import GenerationConfig
from tree_models import END, NAMES, PAD, TreeTokenizer, answers, prompts, step_by_step, tiny

from ntl.config import DecodingConfig, UserError
from ntl.config.decoding import DigitMedianConfig, SpeculativeConfig, TreeConfig
from ntl.config.loss import MTPConfig
from ntl.decoding import DigitMedian, speculative
from ntl.decoding.batches import Answer
from ntl.decoding.speculative import SPECULATION
from ntl.decoding.tree import reads_masks
from ntl.models.interface import lm_head
from ntl.models.mtp import Decoder, Heads, add_heads
from ntl.system.errors import Diverged

QUESTIONS = [[2, 3], [4], [5, 6, 2, 3], [6], [3, 3, 3]]
LENGTH = 5


@pytest.fixture(params=["decoder", "encoder_decoder"])
def model(request: pytest.FixtureRequest) -> Any:
    """Over seven tokens, so that some answers end early."""
    shape = {"decoder": {"spread": 0.6}, "encoder_decoder": {"num_layers": 1, "spread": 2.0}}
    return tiny(request.param, vocab_size=7, **shape[request.param]).float()


def decoded(model: Any, progress: Callable[[int], None] = lambda done: None, **changes: Any) -> list[Answer]:
    config = DecodingConfig(name="x", **{"batch_size": 2, **changes})
    return answers(model, config, QUESTIONS, max_new_tokens=LENGTH, progress=progress)


def ids(model: Any, **changes: Any) -> list[list[int]]:
    return [answer.token_ids for answer in decoded(model, **changes)]


def test_greedy_is_the_most_likely_next_token_in_the_order_of_the_examples(model: Any) -> None:
    """Answers end with the end token, if there is one, and hold no padding; it is no part of their text."""
    expected = [step_by_step(model, question, LENGTH) for question in QUESTIONS]
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
        model, steps = tiny("decoder"), itertools.count()

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
    greedy, beams = [step_by_step(model, question, LENGTH) for question in QUESTIONS], ids(model, num_beams=3)
    for own in OWN:
        before = say(model, **own)
        assert ids(model) == greedy
        assert ids(model, num_beams=3) == beams
        assert model.generation_config is before


def test_an_answer_ends_at_every_end_token_of_the_models_own_config(model: Any) -> None:
    greedy = [step_by_step(model, question, LENGTH) for question in QUESTIONS]
    other = next(token for answer in reversed(greedy) for token in reversed(answer) if token != END)
    expected = [answer[: answer.index(other) + 1] if other in answer else answer for answer in greedy]
    assert expected != greedy
    say(model, eos_token_id=[END, other])
    assert ids(model) == expected


# The digit median against values by hand, an independent loop, and transformers' own ways to call it.


WORDS = ["<pad>", "</s>", *"0123456789", "-", ".", "▁1", "▁2", "▁7", "12", "40", "99", "▁10", "▁dog"]
ID = {word: number for number, word in enumerate(WORDS)}


class Words:
    """A tokenizer with digits alone, with a word-start mark, and in pairs."""

    def get_vocab(self) -> dict[str, int]:
        return ID


def chosen(**probabilities: float) -> list[str]:
    """The tokens that are left, of these probabilities; a name begins with ``_`` in place of the mark."""
    scores = torch.full((1, len(WORDS)), -20.0)
    for word, probability in probabilities.items():
        scores[0, ID[word.removeprefix("n").replace("_", "▁")]] = torch.tensor(probability).log()
    left = DigitMedian(Words())(torch.zeros(1, 1, dtype=torch.long), scores + 3.0)
    return [word for word, kept in zip(WORDS, (left[0] > -torch.inf).tolist(), strict=True) if kept]


def test_the_median_digit_by_hand() -> None:
    """0.3 at 1, 0.25 at 4 and 0.4 at 9 reach half of 0.95 at 4; 0.5 at 1 reaches it there."""
    assert chosen(n1=0.3, n4=0.25, n9=0.4) == ["4"]
    assert chosen(n1=0.45, n9=0.45) == ["1"]  # the lower one of two
    # Only tokens that are written like the likeliest one.
    assert chosen(n1=0.05, _1=0.25, _2=0.1, _7=0.3) == ["▁2"]
    assert chosen(n9=0.2, n12=0.25, n40=0.05, n99=0.3) == ["40"]
    # Signs, words and ends stay what they are.
    for word in ("-", ".", "▁dog", "</s>"):
        scores = torch.full((1, len(WORDS)), -5.0)
        scores[0, ID[word]], scores[0, ID["3"]] = 1.0, 0.9
        assert DigitMedian(Words())(scores.long(), scores).equal(scores)


@given(
    st.lists(st.floats(-8, 8, width=32), min_size=len(WORDS), max_size=len(WORDS)),
    st.sampled_from(["float32", "bfloat16"]),
)
def test_the_median_has_the_least_expected_distance(values: list[float], dtype: str) -> None:
    scores = torch.tensor([values]).to(getattr(torch, dtype))
    top = WORDS[int(scores.argmax())]
    left = DigitMedian(Words())(scores.long(), scores)
    if top not in set("0123456789"):
        return
    digits = torch.tensor([ID[digit] for digit in "0123456789"])
    shares = scores[0, digits].double().softmax(-1)
    distance = (torch.arange(10.0)[:, None] - torch.arange(10.0)).abs().double() @ shares
    (kept,) = (left[0] > -torch.inf).nonzero().flatten().tolist()
    assert distance[digits.tolist().index(kept)] <= distance.min() + 1e-5


@pytest.mark.parametrize(("logit", "message"), [(float("nan"), "NaN"), (float("inf"), "NaN"), (None, "num_beams=1")])
def test_logits_without_a_median_are_refused(logit: float | None, message: str) -> None:
    scores = torch.randn(2, len(WORDS), generator=torch.Generator().manual_seed(0))
    if logit is None:
        scores = scores.log_softmax(-1)
    else:
        scores[1, 3] = logit
    read = DigitMedian(Words())
    if logit is None:  # once it may be chance: a z-loss trains logits to sum to about 1
        assert read(scores.long(), scores).shape == scores.shape
        read(scores.long(), scores + 0.01)
        read(scores.long(), scores)
    with pytest.raises(ValueError if logit is None else Diverged, match=message):
        read(scores.long(), scores)
    with pytest.raises(ValueError, match="no token of digits"):
        DigitMedian(type("T", (), {"get_vocab": lambda self: {"one": 0}})())


ASKED = [[2, 3], [4], [5, 6, 2, 3], [6], [3, 3, 3], [7], [8, 8], [9, 2]]
DIGITS = range(4, 10)
DIGIT_NAMES = ["<pad>", "</s>", "-", ".", *"135789", "▁1", "12"]


def median(logits: torch.Tensor) -> int:
    """By addition; "▁1" and "12" are alone among those written like them."""
    top = int(logits.argmax())
    shares = logits[4:10].softmax(-1).tolist()
    return 4 + [total >= 0.5 for total in accumulate(shares)].index(True) if top in DIGITS else top


@pytest.mark.parametrize("kind", ["decoder", "grouped_heads", "encoder_decoder"])
def test_digit_medians_of_a_model(kind: str) -> None:
    """In batches with padding on the left, one by one, and in ``generate`` of transformers; beams are refused."""
    model = tiny(kind, **{"seed": 1, "num_layers": 1} if kind == "encoder_decoder" else {}).float()
    tokenizer = TreeTokenizer(DIGIT_NAMES)
    expected = [step_by_step(model, question, 6, median) for question in ASKED]
    assert expected != [step_by_step(model, question, 6) for question in ASKED]
    for size in (8, 1):
        config = DigitMedianConfig(name="digit_median", batch_size=size)
        found = answers(model, config, ASKED, max_new_tokens=6, tokenizer=tokenizer)
        assert [answer.token_ids for answer in found] == expected
    how: dict[str, Any] = {"max_new_tokens": 6, "logits_processor": [DigitMedian(tokenizer)]}
    (row,) = model.generate(**prompts(model, ASKED[2:3]), **how, do_sample=False).tolist()
    assert row[1 if kind == "encoder_decoder" else 4 :] == expected[2]
    given = how.pop("logits_processor")
    model.generate = partial(model.generate, logits_processor=given)  # as for a caller that hands in nothing
    assert model.generate(**prompts(model, ASKED[2:3]), **how, do_sample=False).tolist() == [row]
    with pytest.raises(ValueError, match="num_beams=1"):
        model.generate(**prompts(model, ASKED), **how, num_beams=3)


# ---- drafts by heads and their verification: the tokens of greedy decoding, and the drafts of heads without a cache


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
    add_heads(model, MTPConfig(heads=heads, **KINDS[kind]))
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
    """A pass has as many rows as have passes left, and the last row's tokens and drafts are those that it has alone.

    Linear maps, some with a bias, are computed in another form for a few rows.
    """
    model, asked, sizes = _model("qwen2", kind, 4), [[2, 3], [4], [3, 3, 2], [2, 4, 4], [3]], []
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
def test_drafts_are_of_frequent_tokens_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or of those of the question; the answers stay those of greedy decoding."""
    model, asked = _model("llama", kind, 4, 6), [[2, 3], [4], [3, 3, 2]]
    expected = _decoded(model, asked, limit=10, batch=2)
    monkeypatch.setattr(speculative, "FREQUENT", 1)
    found = _decoded(model, asked, limit=10, batch=2)
    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in expected]
    assert [answer.about for answer in found] != [answer.about for answer in expected]


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
        (lambda: tiny("decoder"), 0, "the model has no heads to draft with; train it with objective=mtp"),
        (lambda: _changed(), 3, "decoding.heads=3: the model has 2 heads"),
        (lambda: _changed(sliding_window=6), 0, "attends to the last 6 tokens, and questions and answers have up to 8"),
        (lambda: _changed(layer_types=["linear_attention"] * 4), 0, "linear_attention cannot be rolled back"),
        (
            lambda: add_heads(tiny("fixed_mask"), MTPConfig(keep_depth=True)),
            0,
            "own mask counts the tokens of a row",
        ),
        (lambda: _changed(_attn_implementation="flash_attention_2"), 0, "attention by flash_attention_2 takes no mask"),
    ],
)
def test_one_line_for_a_model_that_cannot_be_drafted_for(model: Any, heads: int, line: str) -> None:
    with pytest.raises(UserError, match=line) as caught:
        _decoded(model(), [[2, 3]], limit=6, batch=1, heads=heads)
    assert "\n" not in str(caught.value)
