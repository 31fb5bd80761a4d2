"""What the losses refuse, when they are made or called, in one line that names the argument."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR, LOSSES, TEXT, TOKEN_LOSSES, WIDTH, batch, tokenizer

from ntl import NumberTokenLoss, losses
from ntl.losses import ce_ntl, linear_ce_ntl, ntl_was, ntl_was_cdf, place_weighted
from ntl.losses.registry import Terms
from ntl.numbers import NumberVocabulary

TOKENS = tokenizer(*"0123456789", "a")
WIDE = tokenizer(*"0123456789", "a", "Ġ2024", "66666666")  # as GPT-2's
Options = dict[str, Any]
MADE: list[tuple[Options, type[Exception], str]] = [
    ({"shift": "no"}, TypeError, "shift must be True or False, not 'no'"),
    ({"weight": -1}, ValueError, "weight must be finite and not negative, not -1"),
    ({"weight": "0.3"}, TypeError, "weight must be a number, not a str"),
    ({"cost": torch.full((10, 10), math.nan)}, ValueError, "cost must be finite"),
    ({"kind": "was_vocab", "text_cost": -1.0}, ValueError, "text_cost"),
    ({"kind": "smmd", "alpha": math.nan}, ValueError, "alpha must be 0 to 1"),
    ({"kind": "digit_entropy", "factor": -1.0}, ValueError, "factor"),
    ({"kind": "place_weighted", "base": -10.0}, ValueError, "base"),
    ({"kind": "wass"}, ValueError, "kind 'wass' is none of ce, emo, gce, crps,"),
    ({"kind": "was_cdf", "target": torch.zeros(1)}, ValueError, "target belongs to a single batch"),
    ({"kind": "gce", "label_smoothing": 0.1}, ValueError, "'label_smoothing'"),
    ({"label_smoothing": 1.0}, ValueError, "label_smoothing must be at least 0 and below 1"),
    ({"squash": 3.0, "kind": "mse"}, ValueError, "squash"),
    ({"squash": 3.0, "cost": torch.zeros(10, 10)}, ValueError, "a squash or a cost"),
    ({"kind": "ntil+was"}, ValueError, "they cannot be one mean"),
    ({"kind": "emo"}, ValueError, "needs the option 'embedding'"),
]


@pytest.mark.parametrize(("options", "error", "named"), MADE)
def test_a_loss_that_cannot_be_made(options: Options, error: type[Exception], named: str) -> None:
    with pytest.raises(error) as caught:
        NumberTokenLoss.from_tokenizer(TOKENS, **{"shift": False, **options})
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_loss_without_a_shift_or_a_vocabulary() -> None:
    with pytest.raises(TypeError, match="shift"):
        NumberTokenLoss(DIGITS)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match=r"'gpt2', a str, is no tokenizer.*ntl\.tokenizers\.load_tokenizer"):
        NumberTokenLoss.from_tokenizer("gpt2", shift=True)
    for call in (partial(NumberTokenLoss, TOKENS, shift=True), partial(ntl_was, *batch()[:2], TOKENS)):
        with pytest.raises(TypeError, match="must be a NumberVocabulary, not a SimpleNamespace"):
            call()
    for name in ("digit_entropy", "place_weighted"):
        with pytest.raises(ValueError, match=f"kind '{name}' needs the option 'point_id'"):
            NumberTokenLoss(DIGITS, shift=False, kind=name)


LOGITS, LABELS = torch.zeros(2, 3, WIDTH), torch.tensor([[1, 5, 2], [6, 2, 3]])
HIDDEN, HEAD = torch.zeros(2, 3, 7), torch.zeros(WIDTH, 7)
WEIGHTS, SHIFTED = torch.ones(2, 3), NumberTokenLoss(DIGITS, shift=True)
joint, linear = partial(ce_ntl, LOGITS, LABELS, DIGITS), partial(linear_ce_ntl, HIDDEN, HEAD, LABELS, DIGITS)
cdf = partial(ntl_was_cdf, torch.zeros(6, 9), IRREGULAR.token_ids, IRREGULAR)
DECIMALS = NumberVocabulary.from_values([0.0, 0.5, *[TEXT] * 9])
CALLS: dict[str, list[Callable[[], Any]]] = {
    "kind 'was' takes no option 'sigma'": [lambda: joint(kind="was", sigma=1.0)],
    "leave sigma out": [lambda: joint(kind=Terms.of("was", 0.3, {}), sigma=1.0)],
    "implementation must be": [lambda: joint(implementation="fast")],
    "inplace=True needs": [
        lambda: joint(inplace=True, implementation="reference"),
        lambda: linear(inplace=True),
    ],
    "'linear' and inplace=True are for the kinds ce, gce,": [
        lambda: joint(kind="emo", embedding=HEAD, implementation="fused"),
        lambda: joint(kind="emo", embedding=HEAD, inplace=True),
        lambda: linear(kind="emo", embedding=HEAD, implementation="linear"),
    ],
    "contiguous logits": [lambda: ce_ntl(torch.zeros(WIDTH, 6).t(), torch.zeros(6).long(), DIGITS, inplace=True)],
    "float16": [lambda: ce_ntl(LOGITS.half(), LABELS, DIGITS, inplace=True)],
    "(2, 3, 7), (16, 6), (2, 3)": [lambda: linear_ce_ntl(HIDDEN, HEAD[:, 1:], LABELS, DIGITS)],
    "label_smoothing must be at least 0": [
        lambda: joint(label_smoothing=-0.1, implementation="reference"),
        lambda: joint(label_smoothing=-0.1, implementation="fused"),
    ],
    "labels' shape (2, 3), not (2, 1)": [
        lambda: joint(loss_weights=WEIGHTS[:, :1]),
        lambda: linear(loss_weights=WEIGHTS[:, :1]),
        lambda: SHIFTED(LOGITS, LABELS, loss_weights=WEIGHTS[:, :1]),
    ],
    "loss_weights must be finite and not negative": [
        lambda: joint(loss_weights=-WEIGHTS),
        lambda: linear(loss_weights=WEIGHTS * math.nan),
        lambda: SHIFTED(LOGITS, LABELS, loss_weights=WEIGHTS * math.inf),
    ],
    "give it one weight": [
        lambda: joint(kind="gce", loss_weights=torch.ones(2, 3, 2)),
        lambda: joint(kind="ntil", loss_weights=torch.ones(2, 3, 2)),
    ],
    "ntil counts numbers or rows": [lambda: joint(kind="ntil+number_level")],
    "labels of shape (3,) with shift=True": [
        lambda: SHIFTED.linear(HIDDEN[0], HEAD, LABELS[0]),
        lambda: SHIFTED.compute_loss_func({"logits": LOGITS[0]}, LABELS[0]),
    ],
    "width 7, but the largest number-token id is 7": [
        partial(loss, torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), IRREGULAR)
        for name, loss in LOSSES.items()
        if name != "cross_entropy"
    ],
    "(2, 3, 16), (2, 2)": [partial(loss, LOGITS, LABELS[:, :2], DIGITS) for loss in LOSSES.values()],
    "reduction must be": [
        *(partial(loss, LOGITS, LABELS, DIGITS, reduction="avg") for loss in LOSSES.values()),
        lambda: losses.squared_error(torch.zeros(2), torch.zeros(2), reduction="median"),  # type: ignore[arg-type]
    ],
    "predictions (2, 2) and targets (2,)": [lambda: losses.squared_error(torch.zeros(2, 2), torch.zeros(2))],
    "(6, 6), not (6, 9)": [lambda: cdf(target=torch.zeros(6, 9))],
    "not both": [lambda: cdf(target=torch.zeros(6, 6), sigma=1.0)],
    "must be positive": [
        lambda: cdf(sigma=0.0),
        lambda: losses.smmd(LOGITS, LABELS, DIGITS, sigma=0.0),
        lambda: losses.dist2(LOGITS, LABELS, DIGITS, temperature=-1.0),
    ],
    "K=6": [lambda: ntl_was(torch.zeros(9), torch.tensor(0), IRREGULAR, cost=torch.zeros(6, 5))],
    "above 1": [
        partial(losses.squashed_cost, torch.arange(10.0), factor) for factor in (1.0, -3.0, math.nan, math.inf)
    ],
    "token_values": [
        lambda: losses.euclidean_cost(torch.tensor([math.nan, 1.0])),
        lambda: losses.euclidean_cost(torch.ones(1, 2)),
    ],
    "embedding must be (V, D) with V=16": [lambda: losses.emo(LOGITS, LABELS, embedding=torch.zeros(4, 2))],
    "is no number loss of single positions": [
        partial(place_weighted, LOGITS, LABELS, DIGITS, point_id=None, distance=distance)  # type: ignore[arg-type]
        for distance in ("wass", "ce", "ntil", "was_vocab", "place_weighted", len)
    ],
    "needs number tokens that are single digits": [
        partial(losses.digit_entropy, LOGITS, LABELS, DECIMALS, point_id=None),
        partial(place_weighted, LOGITS, LABELS, DECIMALS, point_id=None),
        partial(losses.ntil, LOGITS, LABELS, DECIMALS),
        partial(losses.ntl_number_level, LOGITS, LABELS, DECIMALS),
    ],
}


@pytest.mark.parametrize("named", CALLS)
def test_a_call_that_does_not_fit(named: str) -> None:
    for call in CALLS[named]:
        with pytest.raises(ValueError) as caught:
            call()
        assert named in str(caught.value)


@pytest.mark.parametrize("label", [WIDTH, -7])
def test_a_label_that_is_no_token(label: int) -> None:
    given, labels = torch.zeros(1, WIDTH), torch.tensor([label])
    for call in (*TOKEN_LOSSES.values(), partial(ce_ntl, implementation="fused")):
        with pytest.raises(IndexError):
            call(given, labels, DIGITS)


def test_labels_that_are_no_integers() -> None:
    given, labels = torch.zeros(1, 3, 13), torch.tensor([[5, 3, 1]])
    for wrong in (labels.float(), labels > 3):
        for call in (partial(SHIFTED, given), partial(ntl_was, given, number_vocab=DIGITS)):
            with pytest.raises(TypeError, match="labels must be token ids"):
                call(labels=wrong)
    for dtype in (torch.int32, torch.int16, torch.uint8):  # uint8 has no -100
        assert SHIFTED(given, labels.to(dtype)) == SHIFTED(given, labels)


def test_logits_of_another_width_than_was_said() -> None:
    loss = NumberTokenLoss.from_tokenizer(TOKENS, shift=False, vocab_size=304)
    labels = torch.ones(1, 4, dtype=torch.long)
    message = "logits have width 200, but the number vocabulary was made with vocab_size=304"
    for implementation in ("reference", "fused"):
        loss.implementation = implementation
        for call in (
            partial(loss, torch.zeros(1, 4, 200)),
            partial(loss.linear, torch.zeros(1, 4, 3), torch.zeros(200, 3)),
        ):
            with pytest.raises(ValueError, match=message):
                call(labels=labels)
    assert loss(torch.zeros(1, 4, 304), labels).isfinite()


def test_wide_values_are_told_once_with_the_largest_where_they_matter() -> None:
    make = partial(NumberTokenLoss.from_tokenizer, WIDE, shift=False, digits_only=False)
    wide: list[Options] = [{}, {"kind": "was_cdf"}, {"kind": "mse"}, {"kind": "gce+was_cdf"}]
    for options in [*wide, {"kind": "was+mse", "cost": torch.eye(12)}]:
        with pytest.warns(UserWarning, match=r"span 0 to 66666664 \('66666666'\).*squash=3\.0") as told:
            make(**options)
        assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumberTokenLoss.from_tokenizer(TOKENS, shift=False, kind="mse")
        NumberTokenLoss(NumberVocabulary.from_values([0.0, 1e6]), shift=True)
        make(cost=torch.zeros(12, 12), kind="was+digit_ce")
        make(squash=3.0)
        for kind in ("ce", "gce", "digit_ce"):
            make(kind=kind)
