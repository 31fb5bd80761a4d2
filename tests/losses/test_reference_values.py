"""The values that the original implementation returns for hand-made inputs, to 1e-5."""

import pytest
import torch
from loss_cases import DIGITS, LOSSES, NUMBER_LOSSES, TEXT
from torch import Tensor

from ntl import losses
from ntl.numbers import NumberVocabulary

LABEL = 3 + 4
COLUMNS = ("ntl_mse", "ntl_mae", "ntl_huber", "ntl_was", "ntl_was_cdf")


def zeros_but(entries: dict[int, float], fill: float = 0.0) -> Tensor:
    logits = torch.full((13,), fill)
    for token_id, logit in entries.items():
        logits[token_id] = logit
    return logits


ONE_POSITION = {
    "uniform": (torch.zeros(13), (0.25, 0.5, 0.125, 2.5, 2.5)),
    "text mass is ignored": (zeros_but({1: 100.0}), (0.25, 0.5, 0.125, 2.5, 2.5)),
    "half on 0, half on 8": (zeros_but({3: 0.0, 11: 0.0}, fill=-1e4), (0.0, 0.0, 0.0, 4.0, 4.0)),
    "all on 4": (zeros_but({7: 0.0}, fill=-1e4), (0.0, 0.0, 0.0, 0.0, 0.0)),
    "all on 0": (zeros_but({3: 0.0}, fill=-1e4), (16.0, 4.0, 3.5, 4.0, 4.0)),
    "all on 3": (zeros_but({6: 0.0}, fill=-1e4), (1.0, 1.0, 0.5, 1.0, 1.0)),
    "all on 5": (zeros_but({8: 0.0}, fill=-1e4), (1.0, 1.0, 0.5, 1.0, 1.0)),
    "all on 9": (zeros_but({12: 0.0}, fill=-1e4), (25.0, 5.0, 4.5, 5.0, 5.0)),
    "a slope of 0.3": (0.3 * torch.arange(13.0), (7.105751, 2.665661, 2.165661, 3.184556, 3.184556)),
}


@pytest.mark.parametrize("case", ONE_POSITION)
def test_one_position(case: str):
    logits, expected = ONE_POSITION[case]
    found = [NUMBER_LOSSES[name](logits[None, None], torch.tensor([[LABEL]]), DIGITS).item() for name in COLUMNS]
    assert found == pytest.approx(expected, abs=1e-5)


def mixed_batch() -> tuple[Tensor, Tensor]:
    logits = torch.zeros(2, 3, 13)
    logits[0, 0, 3], logits[0, 1, 1], logits[0, 2, 12] = 2.0, 3.0, 1.0
    logits[1, 0, 5], logits[1, 1, 8], logits[1, 2, 2] = -1.0, 4.0, 0.5
    return logits, torch.tensor([[3, 1, 7], [12, 2, 0]])


def test_mixed_batch():
    logits, labels = mixed_batch()
    expected = {"ntl_mse": 9.214839, "ntl_mae": 2.745629, "ntl_huber": 2.245629, "ntl_was": 3.314541}
    expected |= {"ntl_was_cdf": 3.314541, "cross_entropy": 2.241605, "gaussian_cross_entropy": 2.384822}
    found = {name: LOSSES[name](logits, labels, DIGITS).item() for name in expected}
    assert found == pytest.approx(expected, abs=1e-5)
    assert losses.ntl_was_cdf(logits, labels, DIGITS, sigma=1.0).item() == pytest.approx(2.725286, abs=1e-5)
    without_text = labels.clone()
    without_text[1, 1:] = -100
    for loss in NUMBER_LOSSES.values():  # text labels change no number loss
        torch.testing.assert_close(loss(logits, without_text, DIGITS), loss(logits, labels, DIGITS), rtol=0, atol=0)


def test_ignored_positions_of_an_rt_vocabulary_are_no_labels():
    # The original's NTL-MSE uses -100 as an index from the end, where this vocabulary has a number, and returns 8.25.
    vocab = NumberVocabulary.from_values([TEXT] * 3 + list(range(10)) + [8.0] * 100)
    vocab_width_of_logits = torch.full((1, 3, 113), -1e4)
    vocab_width_of_logits[..., 3:13] = 0.0
    loss = losses.ntl_mse(vocab_width_of_logits, torch.tensor([[LABEL, -100, -100]]), vocab)
    assert loss.item() == pytest.approx(0.25, abs=1e-5)


def test_gaussian_losses_at_one_position():
    label = torch.tensor(LABEL)
    for sigma, uniform, peaked in ((0.5, 2.564949, 2.134838), (1.0, 2.564949, 6.011116), (2.0, 2.564949, 7.977058)):
        for logits, expected in ((torch.zeros(13), uniform), (zeros_but({LABEL: 0.0}, fill=-10.0), peaked)):
            loss = losses.gaussian_cross_entropy(logits, label, DIGITS, sigma=sigma)
            assert loss.item() == pytest.approx(expected, abs=1e-5)
    for digit, expected in ((4, 0.7276), (0, 0.5201), (9, 0.5201)):  # not met by the label alone
        logits = zeros_but({3 + digit: 0.0}, fill=-1e4)
        loss = losses.ntl_was_cdf(logits, torch.tensor(3 + digit), DIGITS, sigma=1.0)
        assert loss.item() == pytest.approx(expected, abs=5e-5)


def test_squashed_cost():
    for factor, expected in ((None, 2.5), (2.0, 1.1), (3.0, 1.3), (9.0, 2.5)):
        cost = None if factor is None else losses.squashed_cost(DIGITS.token_values, factor)
        loss = losses.ntl_was(torch.zeros(1, 1, 13), torch.tensor([[LABEL]]), DIGITS, cost=cost)
        assert loss.item() == pytest.approx(expected, abs=1e-5)
