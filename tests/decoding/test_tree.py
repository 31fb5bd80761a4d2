"""Which token sequences write a number, and the search against the enumeration of every token sequence."""

import itertools
import math
import pickle
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tree_models import END, MODELS, NAMES, PAD, TreeTokenizer, V, answer_logits, prompts, tiny

from ntl.config import UserError
from ntl.decoding.distribution import NumberDistribution, represent
from ntl.decoding.tree import (
    ENDS,
    START,
    NumberTokens,
    advance,
    read_numbers,
    reads_masks,
)
from ntl.numbers import parse_number

NUMBER = re.compile(r"\s*[-+−]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


@given(st.text("0 15.-+−,ex\n²", max_size=6), st.text("0 15.-+−,ex", max_size=4))
def test_a_text_ends_where_the_number_grammar_says_and_tokens_do_not_matter(first: str, second: str) -> None:
    text = first + second
    accepted = advance(START, text) in ENDS
    assert accepted == bool(NUMBER.fullmatch(text))
    assert not accepted or parse_number(text) is not None
    assert advance(advance(START, first), second) == advance(START, text)


def test_a_tokenizer_without_digits() -> None:
    with pytest.raises(UserError, match="no token with a digit"):
        NumberTokens.from_tokenizer(TreeTokenizer(["<pad>", "</s>", "▁", "-", "x"]))


QUESTIONS = [[2, 3, 4], [5], [6, 2, 7, 8, 9]]
LENGTH = 4  # tokens of the longest answer, the end included
TOKENS = NumberTokens.from_tokenizer(TreeTokenizer())
ALL = 10**15  # nothing is too unlikely to be read on


@torch.inference_mode()
def read(model: Any, questions: Any = QUESTIONS, num_beams: int = ALL, **changes: Any) -> list[NumberDistribution]:
    settings = {"max_new_tokens": LENGTH, **changes}
    return read_numbers(model, prompts(model, questions), TOKENS, num_beams=num_beams, **settings)


def enumerate_numbers(model: Any, question: list[int]) -> tuple[dict[str, float], float]:
    """Text -> probability by teacher forcing alone, and the probability of what ends and is no number."""
    numbers, other = defaultdict(float), 0.0
    for length in range(LENGTH):
        written = [answer for answer in itertools.product(range(V), repeat=length) if END not in answer]
        with torch.no_grad():
            log_p = answer_logits(model, question, written).log_softmax(-1)
        ended = torch.tensor([(*answer, END) for answer in written])
        masses = log_p.gather(-1, ended[..., None]).sum((1, 2)).exp().tolist()
        for answer, p in zip(written, masses, strict=True):
            text = "".join(NAMES[token] for token in answer).replace("▁", " ").strip()
            special = any(NAMES[token] == "<pad>" for token in answer)
            # The grammar of the search: no white space behind the number.
            ends_blank = bool(answer) and NAMES[answer[-1]] == "▁"
            if parse_number(text) is None or special or ends_blank:
                other += p
            else:
                numbers[text] += p
    return numbers, other


def test_an_answer_may_end_with_any_of_several_tokens() -> None:
    model, question, x = tiny("decoder"), QUESTIONS[0], NAMES.index("x")
    tokens = NumberTokens.from_tokenizer(TreeTokenizer(), [END, x])
    with torch.inference_mode():
        (found,) = read_numbers(model, prompts(model, [question]), tokens, num_beams=ALL, max_new_tokens=2)
        p = {token: answer_logits(model, question, [(NAMES.index(token),)])[0].softmax(-1) for token in ("1", "▁1")}
    expected = sum(p[token][0, NAMES.index(token)] * (p[token][1, END] + p[token][1, x]) for token in p)
    assert found.probabilities[found.values == 1] == pytest.approx(float(expected), rel=1e-6)


def test_which_models_read_an_example_as_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call has a mask: without one, transformers warns of padding."""
    masks = list[torch.Tensor | None]()
    warn = "transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask"
    monkeypatch.setattr(warn, lambda model, ids, mask: masks.append(mask))
    assert [family for family in MODELS if reads_masks(tiny(family))] == ["decoder", "grouped_heads"]
    assert masks
    assert all(mask is not None for mask in masks)


@pytest.mark.parametrize("family", MODELS)
def test_a_batch_is_each_prompt_alone(family: str) -> None:
    """Also where an example ends long before a later one."""
    model = tiny(family)
    for settings in ({}, {"num_beams": 5}, *({"tolerance": 0.5**step, "max_new_tokens": 9} for step in range(1, 6))):
        settings = {"num_beams": 40, **settings}
        for question, found in zip(QUESTIONS, read(model, **settings), strict=True):
            (alone,) = read(model, [question], **settings)
            assert (found.texts, found.covered) == (alone.texts, pytest.approx(alone.covered, abs=1e-9))
            assert found.probabilities == pytest.approx(alone.probabilities, abs=1e-9)


@pytest.mark.parametrize("family", MODELS)
def test_a_wider_search_ends_where_all_is_read(family: str) -> None:
    model = tiny(family)
    for num_beams in (1, 3, 20, 100, 10**4):
        for found in read(model, num_beams=num_beams):
            assert 0 <= found.covered <= found.represented <= 1 + 1e-12
    assert all(found.covered == pytest.approx(found.represented) for found in read(model, num_beams=10**8))


class Fixed(torch.nn.Module):
    """The same logits at every step."""

    def __init__(self, probabilities: dict[str, float]) -> None:
        super().__init__()
        logits = [math.log(probabilities[name]) if name in probabilities else -math.inf for name in NAMES]
        self.logits = torch.tensor(logits, dtype=torch.float64)
        self.config = type("Config", (), {"is_encoder_decoder": False})()

    def forward(self, input_ids, attention_mask, past_key_values, use_cache):
        cache = type("Cache", (), {"reorder_cache": lambda self, rows: None})()
        logits = self.logits.expand(*input_ids.shape, V)
        return type("Output", (), {"logits": logits, "past_key_values": cache})()


def test_an_example_ends_at_the_tolerance() -> None:
    """Its one prefix of each length has 1/2, 1/4 and 1/8."""
    for tolerance, longest in ((0.5, 0), (0.49, 1), (0.25, 1), (0.24, 2), (0.0, 3)):
        (found,) = read(Fixed({"1": 0.5, "</s>": 0.5}), [[4]], tolerance=tolerance + 1e-12)
        assert found.covered == pytest.approx(1 / 2 - 1 / 2 ** (longest + 1) if longest else 0)


SIGNED = ["<pad>", "</s>", "-", ".", *"0123456789"]


class Chain(torch.nn.Module):
    """Random logits of the next token by its place and the token before; an end is likelier at every place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        sizes = (5, len(SIGNED), len(SIGNED))  # places, tokens before, tokens
        self.logits = torch.randn(5, 1, len(SIGNED)) + 0.2 * torch.randn(sizes, dtype=torch.float64)
        self.logits[:, :, END] += torch.tensor([-9.0, 0, 2, 4, 9])[:, None]
        self.logits[:, :, PAD] = -9
        self.config = type("Config", (), {"is_encoder_decoder": False})()

    def forward(self, input_ids, attention_mask, past_key_values, use_cache):
        cache = type("Cache", (), {"reorder_cache": lambda self, rows: None})()
        logits = self.logits[attention_mask.sum(1, keepdim=True) - 1, input_ids]
        return type("Output", (), {"logits": logits, "past_key_values": cache})()


def every_number(model: Chain, first: int) -> NumberDistribution:
    """Of up to four tokens, by the product of their probabilities: also -0.5, 007 and 1."""
    found: dict[str, float] = {}
    steps, tokens = model.logits.softmax(-1).tolist(), range(END + 1, len(SIGNED))
    for answer in itertools.chain.from_iterable(itertools.product(tokens, repeat=length) for length in range(5)):
        text = "".join(SIGNED[token] for token in answer)
        if advance(START, text) in ENDS:
            pairs = itertools.pairwise([first, *answer, END])
            found[text] = math.prod(steps[place][before][token] for place, (before, token) in enumerate(pairs))
    return NumberDistribution.of(found)


@pytest.mark.parametrize("seed", range(3))
def test_a_narrow_search_has_the_statistics_of_every_number(seed: int) -> None:
    """Within 2% of the standard deviation, where little more than a half of the probability was read, the mean 6%."""
    model, tokens = Chain(seed), NumberTokens.from_tokenizer(TreeTokenizer(SIGNED))
    exact, scale = every_number(model, 4), every_number(model, 4).moments()[1]
    inputs = {"input_ids": torch.tensor([[4]]), "attention_mask": torch.ones(1, 1, dtype=torch.int64)}
    (whole,) = read_numbers(model, inputs, tokens, num_beams=ALL, max_new_tokens=5)
    assert whole.probabilities == pytest.approx(exact.probabilities, abs=1e-9)
    (found,) = read_numbers(model, inputs, tokens, num_beams=300, max_new_tokens=5, tolerance=1e-3)
    assert found.covered < 0.7 * exact.represented
    assert found.represented == pytest.approx(exact.represented, abs=0.02)
    for statistic in (lambda each: each.crps(12), lambda each: each.quantile(0.25), lambda each: each.median):
        assert statistic(found) == pytest.approx(statistic(exact), abs=0.02 * scale)
    assert found.mean == pytest.approx(exact.mean, abs=0.06 * scale)  # numbers of many digits are few


ARCHITECTURES = ["qwen3", "gemma2", "mistral", "gpt_neox", "opt", "bloom", "cohere", "glm"]


@pytest.mark.parametrize("name", [*MODELS, *ARCHITECTURES])
def test_a_wide_tree_is_the_full_enumeration(name: str) -> None:
    """Also what is said of the numbers: by sums over all strings, and samples by chi-square."""
    model, question = tiny(name), QUESTIONS[0]
    expected, other = enumerate_numbers(model, question)
    assert {"1", "-1", "12", "1.", ".2", "-12", "122", "1212", "121212"} <= set(expected)
    (found,), exact = read(model, [question]), NumberDistribution.of(expected)
    assert (found.values.tolist(), found.texts) == (exact.values.tolist(), exact.texts)
    assert found.probabilities == pytest.approx(exact.probabilities, rel=1e-6)
    # What is longer, and what is no number, is uncovered.
    assert 0 < other < 1 - found.covered
    assert found.covered == pytest.approx(found.represented)
    assert not read(model, [question], max_new_tokens=1)[0].texts  # the limit includes the end token
    assert read(model, [question], max_new_tokens=2)[0].texts == ["1", "2", "12"]
    values, shares = exact.values, exact.probabilities / exact.probabilities.sum()
    assert min(values) < 0
    assert found.mean == pytest.approx(values @ shares)
    for share in (0.25, 0.5, 0.75):
        assert found.quantile(share) == min(v for v in values if shares[values <= v].sum() >= share - 1e-6)
    distances = np.abs(values[:, None] - values)
    for label in (-3.5, 1.0, 20.0):
        assert found.crps(label) == pytest.approx(shares @ np.abs(values - label) - shares @ distances @ shares / 2)
    drawn, common = found.sample(20_000, seed=0), shares > 1e-3
    counts = [*((drawn == value).sum() for value in values[common]), np.isin(drawn, values[~common]).sum()]
    assert chisquare(counts, 20_000 * np.array([*shares[common], shares[~common].sum()])).pvalue > 1e-3


# Statistics of a distribution over numbers by hand, and what stands for prefixes that were not read on.


def of(**masses: float) -> NumberDistribution:
    return NumberDistribution.of({text.replace("_", ""): mass for text, mass in masses.items()})


def test_a_distribution_by_hand() -> None:
    """2, 4 and 10 with 0.1, 0.2 and 0.1: a quarter, a half and a quarter of 0.4."""
    found = NumberDistribution.of({" 10": 0.1, "4": 0.2, "2": 0.1, "-": 0.3}, covered=0.15)
    assert found.values.tolist() == [2, 4, 10]
    assert found.probabilities == pytest.approx([0.1, 0.2, 0.1])
    assert found.shares == pytest.approx([0.25, 0.5, 0.25])
    assert (found.represented, found.covered) == (pytest.approx(0.4), 0.15)
    assert found.moments() == pytest.approx((5, math.sqrt((9 + 2 * 1 + 25) / 4)))
    assert (found.mean, found.median) == (pytest.approx(5), 4)
    shares = (0, 0.1, 0.25, 0.26, 0.5, 0.74, 0.75, 0.76, 1)
    assert [found.quantile(share) for share in shares] == [2, 2, 2, 4, 4, 4, 4, 10, 10]
    assert (found.interval(0.5), found.interval(0.52)) == ((2, 4), (2, 10))
    # E|X - 5| = 3/4 + 1/2 + 5/4; of two such numbers the difference is 2, 6 or 8 with 1/4, 1/4 and 1/8.
    assert found.crps(5) == pytest.approx(2.5 - (2 / 4 + 6 / 4 + 8 / 8) / 2)
    drawn = found.sample(4000, seed=1)
    assert [np.mean(drawn == value) for value in found.values] == pytest.approx(found.shares, abs=0.03)
    assert np.array_equal(drawn, pickle.loads(pickle.dumps(found)).sample(4000, seed=1))
    assert np.array_equal(found.sample(9), found.sample(9, seed=0))
    assert found.interval(0) == (4, 4)
    assert repr(found) == "NumberDistribution(median=4, mean=5, 90% in [2, 10], 3 numbers, covered 0.15)"
    for share in (1.5, -0.1, math.nan):
        with pytest.raises(ValueError, match=f"^{share}: a share of the probability is from 0 to 1"):
            found.quantile(share)
        with pytest.raises(ValueError, match=f"^{share}: the level of an interval is from 0 to 1"):
            found.interval(share)


def test_texts_of_one_value_are_added_up_and_written_as_the_likeliest() -> None:
    found = NumberDistribution.of({"7": 0.1, "07": 0.2, "7.0": 0.05, "8": 0.3})
    assert (found.values.tolist(), found.texts) == ([7, 8], ["07", "8"])
    assert found.shares == pytest.approx([0.35 / 0.65, 0.3 / 0.65])


def test_tails_are_cut_by_probability_not_by_number() -> None:
    """Of 1, 2, 3 and a billion with 0.1, 0.4, 0.4 and 0.1 a fifth at either end leaves 2 and 3 with 0.3 each."""
    found = of(_1=0.1, _2=0.4, _3=0.4, _1000000000=0.1)
    assert found.moments(0.2) == pytest.approx((2.5, 0.5))
    # 0.05 of the least and of the greatest go, 0.05 of either stay.
    mean = (0.05 * 1 + 0.4 * 2 + 0.4 * 3 + 0.05 * 1e9) / 0.9
    assert found.moments(0.05)[0] == pytest.approx(mean)
    assert found.mean == pytest.approx(0.1 + 0.8 + 1.2 + 1e8)
    assert of(_5=0.7).moments(0.25) == (5, 0)
    assert of(_0=0.4).moments() == (0, 0)


def test_crps_with_a_far_number_of_hardly_any_probability() -> None:
    """Of 1 to 10 with a tenth each: E|X - 5.5| = 2.5 and E|X - X'| = 99/30. A sum of tenths is not quite 1."""
    near = {str(number): 0.1 for number in range(1, 11)}
    for far in ("400000000000000000000", "-400000000000000000000"):
        assert NumberDistribution.of({**near, far: 1e-39}).crps(5.5) == pytest.approx(2.5 - 99 / 60)


def test_without_a_number_there_is_no_statistic() -> None:
    found = NumberDistribution.of({"-": 0.5, "1e400": 0.1})
    assert (found.represented, found.covered, len(found.values)) == (0, 0, 0)
    assert repr(found) == "NumberDistribution(no number, covered 0)"
    for ask in (found.moments, lambda: found.median, lambda: found.crps(1), lambda: found.sample(1, 0)):
        with pytest.raises(ValueError, match="the distribution has no number"):
            ask()


MASSES = st.lists(st.floats(0, 1) | st.just(0.0), min_size=1, max_size=40).map(np.array)


def test_what_was_not_read_goes_on_as_the_nearest_of_its_shape() -> None:
    masses, shapes = np.array([0.3, 0.1, 0.1, 0.1, 0.4, 1e-9, 0.0]), np.array([7, 7, 7, 7, 3, 5, 7])
    read, like = represent(masses, shapes, 3)
    # c = 0.3: 0.4, 0.3 and, of three tenths, the middle one; the shape 5 is too rare to be read.
    assert (read.tolist(), like.tolist()) == ([0, 2, 4], [0, 1, 1, 1, 2, -1, -1])
    # All are read where there are no more, however rare.
    for rare in ([0.004, 0.002], [1e-300, 1e-305]):
        read, like = represent(np.array([1.0, *rare]), np.zeros(3), 3)
        assert (read.tolist(), like.tolist()) == ([0, 1, 2], [0, 1, 2])
    # One more where a shape would have none.
    read, like = represent(np.array([0.6, 0.2, 0.19, 0.01]), np.array([1, 1, 1, 2]), 2)
    assert (read.tolist(), like.tolist()) == ([0, 1, 3], [0, 1, 1, 2])


@given(MASSES, st.integers(1, 45), st.data())
def test_all_go_on_as_one_of_their_shape(masses: np.ndarray, count: int, data: st.DataObject) -> None:
    shapes = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(masses), max_size=len(masses))))
    read, like = represent(masses, shapes, count)
    own = like >= 0
    assert (shapes[own] == shapes[read[like[own]]]).all()
    assert (read[like[read]] == read).all()
    assert masses[~own].sum() <= 0.01 * masses.sum()
    if count >= np.count_nonzero(masses):
        assert read.tolist() == np.flatnonzero(masses).tolist()
