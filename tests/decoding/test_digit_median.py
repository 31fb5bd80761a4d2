"""The digit median against values by hand, an independent loop, and transformers' own ways to call it."""

from functools import partial
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree_models import END, MODELS, PAD, TreeTokenizer, answers, prompts

from ntl.config.decoding import DigitMedianConfig
from ntl.decoding import DigitMedian
from ntl.system.errors import Diverged

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


def test_by_hand() -> None:
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
def test_what_it_refuses(logit: float | None, message: str) -> None:
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


QUESTIONS = [[2, 3], [4], [5, 6, 2, 3], [6], [3, 3, 3], [7], [8, 8], [9, 2]]
DIGITS = range(4, 10)
NAMES = ["<pad>", "</s>", "-", ".", *"135789", "▁1", "12"]


@torch.no_grad()
def step_by_step(model: Any, question: list[int], median: bool = True) -> list[int]:
    """The median of six digits, by addition; "▁1" and "12" are alone among those written like them."""
    new: list[int] = []
    while len(new) < 6 and END not in new:
        if model.config.is_encoder_decoder:
            given = {"input_ids": torch.tensor([question]), "decoder_input_ids": torch.tensor([[PAD, *new]])}
        else:
            given = {"input_ids": torch.tensor([question + new])}
        logits = model(**given).logits[0, -1]
        top = int(logits.argmax())
        if median and top in DIGITS:
            shares = logits[4:10].softmax(-1).tolist()
            top = 4 + [total >= 0.5 for total in accumulate(shares)].index(True)
        new.append(top)
    return new


@pytest.mark.parametrize("kind", ["decoder", "grouped_heads", "encoder_decoder"])
def test_of_a_model(kind: str) -> None:
    """In batches with padding on the left, one by one, and in ``generate`` of transformers; beams are refused."""
    model = MODELS[kind](**{"seed": 1, "layers": 1} if kind == "encoder_decoder" else {}).float()
    tokenizer = TreeTokenizer(NAMES)
    expected = [step_by_step(model, question) for question in QUESTIONS]
    assert expected != [step_by_step(model, question, median=False) for question in QUESTIONS]
    for size in (8, 1):
        config = DigitMedianConfig(name="digit_median", batch_size=size)
        found = answers(model, config, QUESTIONS, max_new_tokens=6, tokenizer=tokenizer)
        assert [answer.token_ids for answer in found] == expected
    how: dict[str, Any] = {"max_new_tokens": 6, "logits_processor": [DigitMedian(tokenizer)]}
    (row,) = model.generate(**prompts(model, QUESTIONS[2:3]), **how, do_sample=False).tolist()
    assert row[1 if kind == "encoder_decoder" else 4 :] == expected[2]
    given = how.pop("logits_processor")
    model.generate = partial(model.generate, logits_processor=given)  # as for a caller that hands in nothing
    assert model.generate(**prompts(model, QUESTIONS[2:3]), **how, do_sample=False).tolist() == [row]
    with pytest.raises(ValueError, match="num_beams=1"):
        model.generate(**prompts(model, QUESTIONS), **how, num_beams=3)
