"""The sums of plain text, from a stand-in whose logits are known."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ntl.config.decoding import LikelihoodConfig
from ntl.data.collate import CausalCollator
from ntl.decoding import decode
from ntl.decoding.likelihood import PIECES, Piece
from ntl.system.errors import Diverged

# Ids 0 to 9 are the digits, 10 is a word, 11 the end token and padding.
WORD, END = 10, 11


class _Tokenizer:
    def get_vocab(self) -> dict[str, int]:
        return {**{str(digit): digit for digit in range(10)}, "word": WORD, "<end>": END}


class _Model(torch.nn.Module):
    """After each token the probabilities of ``after``, and the rest evenly on the other tokens."""

    device = torch.device("cpu")

    def __init__(self, after: dict[int, dict[int, float]]) -> None:
        super().__init__()
        self.table = torch.zeros(12, 12)
        for token in range(12):
            known = after.get(token, {})
            rest = (1 - sum(known.values())) / (12 - len(known))
            self.table[token] = torch.tensor([known.get(other, rest) for other in range(12)]).log()
        self.embedding = torch.nn.Embedding(12, 2)

    def get_input_embeddings(self) -> torch.nn.Embedding:
        return self.embedding

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        assert not self.training
        # A constant on all logits changes no probability.
        return SimpleNamespace(logits=self.table[input_ids] + 5)


def scored(*examples: dict[str, Any], of_6: float = 0.125) -> list[list[Piece]]:
    answers = decode(
        LikelihoodConfig(name="likelihood", batch_size=len(examples)),
        model=_Model({END: {WORD: 0.5, 4: 0.25, 6: of_6}, WORD: {3: 0.4, 5: 0.2, WORD: 0.4 - 1e-6}, 4: {END: 0.9}}),
        tokenizer=_Tokenizer(),
        examples=examples,
        collate=CausalCollator(END),
        max_new_tokens=0,
    )
    return [answer.about[PIECES] for answer in answers]


def example(before: int, labels: list[int], first: int, *documents: int) -> dict[str, Any]:
    ids = {"question_ids": np.array([before]), "answer_ids": np.array(labels)}
    return {**ids, "documents": (first, list(documents))}


def test_by_hand() -> None:
    """Document 7: a word and 4; document 8: 5 and its end."""
    first, second = example(END, [WORD, 5, END], 7, 2, 1), example(END, [4], 8, 1)
    (one, other), (last,) = scored(first, second)
    # After the word, 3 has 0.4, 5 has 0.2, the word 0.4 − 1e-6; 9 tokens share 1e-6.
    rest = 1e-6 / 9
    digits = 0.6 + 8 * rest
    mean = (3 * 0.4 + 5 * 0.2 + rest * (45 - 8)) / digits
    assert one == Piece(
        7, 2, pytest.approx(-math.log(0.5 * 0.2), abs=1e-6), 1, 0, 2.0, pytest.approx(abs(mean - 5), abs=1e-5)
    )
    # After 5, all tokens have the same probability.
    assert other == Piece(8, 1, pytest.approx(math.log(12), abs=1e-6), 0, 0, 0.0, 0.0)
    # After the end, the word is the most probable token, and 4 the most probable digit: right among digits alone.
    rest = 0.125 / 9
    mean = (4 * 0.25 + 6 * 0.125 + rest * (45 - 10)) / (0.375 + 8 * rest)
    assert last == Piece(8, 1, pytest.approx(math.log(4), abs=1e-6), 1, 0, 0.0, pytest.approx(abs(mean - 4), abs=1e-5))


def test_logits_that_are_not_finite_are_told() -> None:
    """But not a token that cannot come."""
    assert scored(example(END, [4], 0, 1), of_6=0.0)[0][0].ce == pytest.approx(math.log(4), abs=1e-6)
    for value in (math.nan, math.inf):
        with pytest.raises(Diverged, match="NaN or infinite"):
            scored(example(END, [4], 0, 1), of_6=value)
