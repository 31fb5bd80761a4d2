"""Logits with a cache against those without."""

import pytest
import torch
from tree_models import MODELS, prompts, teacher_forced

from ntl.decoding.stepping import stepper

QUESTIONS = [[2, 3, 4], [5], [6, 2, 7, 8, 9]]


@pytest.mark.parametrize("family", MODELS)
@torch.inference_mode()
def test_rows_are_chosen_anew_at_every_step(family: str) -> None:
    """Repeated, dropped and in another order; padding, on whichever side, changes nothing."""
    model = MODELS[family]()
    steps = stepper(model, prompts(model, QUESTIONS))
    histories = [(question, ()) for question in QUESTIONS]
    found = steps.start()
    for rows, tokens in (([0, 1, 2], [4, 5, 6]), ([2, 2, 0, 2], [7, 8, 9, 7]), ([3, 0], [5, 2]), ([1], [4])):
        expected = torch.stack([teacher_forced(model, question, read)[-1] for question, read in histories])
        torch.testing.assert_close(found.log_softmax(-1), expected, rtol=0, atol=1e-10)
        histories = [(histories[row][0], (*histories[row][1], token)) for row, token in zip(rows, tokens, strict=True)]
        found = steps.step(torch.tensor(rows), torch.tensor(tokens))
    (last,) = histories
    torch.testing.assert_close(found[0].log_softmax(-1), teacher_forced(model, *last)[-1], rtol=0, atol=1e-10)
