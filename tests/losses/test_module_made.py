"""Creating a loss with wrong arguments raises an error or warns, before any training."""

import math
import re
import warnings
from typing import Any

import pytest
import torch
from loss_cases import DIGITS

from ntl import NumberTokenLoss
from ntl.losses import ntl_was, squashed_cost
from ntl.numbers import NumberVocabulary


class Wide:
    """A vocabulary like GPT-2's, with a token of value 66,666,666."""

    def get_vocab(self) -> dict[str, int]:
        return {"a": 10, **{str(digit): digit for digit in range(10)}, "Ġ2024": 11, "66666666": 12}


class Digits:
    def get_vocab(self) -> dict[str, int]:
        return {str(digit): digit for digit in range(10)} | {"a": 10}


def made(**arguments: Any) -> NumberTokenLoss:
    return NumberTokenLoss.from_tokenizer(Wide(), shift=False, digits_only=False, **arguments)


def test_squash_bounds_the_number_loss() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = made(squash=3.0)
    # Uniform over 12 number tokens. For the label 0, 66,666,666 costs 3 and all others cost 1, up to rounding.
    parts = loss.parts(torch.zeros(1, 13), torch.tensor([0]))
    assert parts.number.sum.item() == pytest.approx((9 * 1 + 1 * (1 + 2 * 2023 / 66666665) + 3) / 12)
    assert loss.cost is not None
    assert torch.equal(loss.cost, squashed_cost(loss.token_values, 3.0))
    again = made(kind="was_vocab", squash=5.0)
    assert again.cost is not None
    assert again.cost.max() == 5.0


def test_wide_values_are_told_once_with_the_largest_where_they_matter() -> None:
    for arguments in (
        {},
        *({"kind": kind} for kind in ("was_cdf", "mse", "gce+was_cdf")),
        {"kind": "was+mse", "cost": torch.eye(12)},
    ):
        with pytest.warns(UserWarning, match=r"span 0 to 66666664 \('66666666'\).*squash=3\.0") as told:
            made(**arguments)
        assert len(told) == 1
        assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumberTokenLoss.from_tokenizer(Digits(), shift=False, kind="mse")
        NumberTokenLoss(NumberVocabulary.from_values([0.0, 1e6]), shift=True)
        made(cost=torch.zeros(12, 12), kind="was+digit_ce")
        for kind in ("ce", "gce", "digit_ce", "number_level"):
            made(kind=kind)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"weight": -1}, ValueError, "weight must be finite and not negative, not -1"),
    ({"weight": "0.3"}, TypeError, "weight must be a number, not a str"),
    ({"kind": "gce+was_cdf", "sigma": math.nan}, ValueError, "sigma must be positive, not nan"),
    ({"cost": torch.zeros(9, 9)}, ValueError, r"cost must be \(K, K\) with K=10 number tokens, not \(9, 9\)"),
    (
        {"kind": "wass"},
        ValueError,
        "kind 'wass' is none of ce, emo, gce, crps, digit_ce, digit_entropy, dist2, huber, mae, mse, ntil, "
        "number_level, place_weighted, smmd, was, was_cdf, was_vocab",
    ),
    ({"kind": "was_cdf", "target": torch.zeros(1)}, ValueError, "target belongs to a single batch"),
    ({"kind": "gce", "label_smoothing": 0.1}, ValueError, "takes no option 'label_smoothing'"),
    ({"squash": 1.0}, ValueError, "squash factor must be above 1"),
    ({"squash": 3.0, "kind": "mse"}, ValueError, r"squash needs kinds that take a cost \(was and was_vocab\)"),
    ({"squash": 3.0, "cost": torch.zeros(10, 10)}, ValueError, "a squash or a cost, not both"),
]


def test_what_cannot_be_is_refused_when_the_loss_is_made() -> None:
    for arguments, error, message in REFUSED:
        with pytest.raises(error, match=message) as refused:
            NumberTokenLoss.from_tokenizer(Digits(), shift=False, **arguments)
        assert "\n" not in str(refused.value)
    with pytest.raises(TypeError, match="shift"):
        NumberTokenLoss(DIGITS)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match=r"'gpt2', a str, is no tokenizer.*ntl\.tokenizers\.load_tokenizer"):
        NumberTokenLoss.from_tokenizer("gpt2", shift=True)
    tokenizer: Any = Digits()
    line = re.escape("number_vocab must be a NumberVocabulary, not a Digits: NumberVocabulary.from_tokenizer(")
    with pytest.raises(TypeError, match=line):
        NumberTokenLoss(tokenizer, shift=True)
    with pytest.raises(TypeError, match=line):
        ntl_was(torch.zeros(1, 13), torch.tensor([3]), tokenizer)


def test_logits_of_another_width_than_was_said() -> None:
    vocab_size = 32000
    loss = NumberTokenLoss.from_tokenizer(Digits(), shift=False, vocab_size=50304)
    hidden, head = torch.zeros(1, 4, 3), torch.zeros(vocab_size, 3)
    message = f"logits have width {vocab_size}, but the number vocabulary was made with vocab_size=50304"
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(1, 4, vocab_size), torch.ones(1, 4, dtype=torch.long))
    for implementation in ("reference", "fused"):
        loss.implementation = implementation
        with pytest.raises(ValueError, match=message):
            loss.linear(hidden, head, torch.ones(1, 4, dtype=torch.long))
    assert loss(torch.zeros(1, 4, 50304), torch.ones(1, 4, dtype=torch.long)).isfinite()


def test_flattened_rows_cannot_be_shifted() -> None:
    loss = NumberTokenLoss(DIGITS, shift=True)
    labels = torch.tensor([3, 4, 5, 6])
    message = r"labels of shape \(4,\) with shift=True: .*logits \(B, T, V\) and labels \(B, T\).*shift=False"
    for call in (
        lambda: loss.linear(torch.zeros(4, 5), torch.zeros(13, 5), labels),
        lambda: loss.compute_loss_func({"logits": torch.zeros(4, 13)}, labels),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert loss(torch.zeros(1, 4, 13), labels.unsqueeze(0)).isfinite()
    assert NumberTokenLoss(DIGITS, shift=False)(torch.zeros(4, 13), labels).isfinite()
