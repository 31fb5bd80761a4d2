"""What the losses refuse, when they are made or called: the error, and in its one line the argument's name."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR, LOSSES, TEXT, TOKEN_LOSSES, WIDTH, batch, tokenizer

from ntl import NumberTokenLoss, losses
from ntl.losses import ce_ntl, linear_ce_ntl, ntl_was, ntl_was_cdf, place_weighted
from ntl.losses.registry import Terms
from ntl.losses.rows import of_number_rows
from ntl.numbers import NumberVocabulary

TOKENS = tokenizer(*"0123456789", "a")
WIDE = tokenizer(*"0123456789", "a", "Ġ2024", "66666666")  # as GPT-2's
NARROW = NumberTokenLoss.from_tokenizer(TOKENS, shift=False, vocab_size=304)
LOGITS, LABELS = torch.zeros(2, 3, WIDTH), torch.tensor([[1, 5, 2], [6, 2, 3]])
HIDDEN, HEAD = torch.zeros(2, 3, 7), torch.zeros(WIDTH, 7)
WEIGHTS, SHIFTED = torch.ones(2, 3), NumberTokenLoss(DIGITS, shift=True)
SCALAR = of_number_rows(lambda rows: rows.targets_N.mean())
DECIMALS = NumberVocabulary.from_values([0.0, 0.5, *[TEXT] * 9])
NOTHING: Any = None
joint, linear = partial(ce_ntl, LOGITS, LABELS, DIGITS), partial(linear_ce_ntl, HIDDEN, HEAD, LABELS, DIGITS)
cdf = partial(ntl_was_cdf, torch.zeros(6, 9), IRREGULAR.token_ids, IRREGULAR)


def made(**options: Any) -> Callable[[], Any]:
    return lambda: NumberTokenLoss.from_tokenizer(TOKENS, **{"shift": False, **options})


Calls = dict[str, list[Callable[[], Any]]]
TYPE_ERRORS: Calls = {
    "shift": [made(shift="no"), lambda: NumberTokenLoss(DIGITS)],  # pyright: ignore[reportCallIssue]
    "weight": [made(weight="0.3")],
    "'gpt2', a str, is no tokenizer": [lambda: NumberTokenLoss.from_tokenizer("gpt2", shift=True)],
    "NumberVocabulary": [partial(NumberTokenLoss, TOKENS, shift=True), partial(ntl_was, *batch()[:2], TOKENS)],
    "labels must be integer token ids": [
        partial(call, LOGITS, wrong, **vocab)
        for wrong in (LABELS.float(), LABELS > 3)
        for call, vocab in ((SHIFTED, {}), (ntl_was, {"number_vocab": DIGITS}))
    ],
    "labels": [lambda: SHIFTED.compute_loss_func({"logits": LOGITS}, NOTHING)],
    "point_id must be the id of a token": [
        partial(losses.ntl_number_level, LOGITS, LABELS, DIGITS, point_id=wrong)  # type: ignore[arg-type]
        for wrong in (".", True)
    ],
    "without logits": [
        partial(SHIFTED, outputs, LABELS) for outputs in (SimpleNamespace(), {"loss": LOGITS}, (), "logits", None)
    ],
}
INDEX_ERRORS: Calls = {
    "": [
        partial(call, torch.zeros(1, WIDTH), torch.tensor([label]), DIGITS)
        for call in (*TOKEN_LOSSES.values(), partial(ce_ntl, implementation="fused"))
        for label in (WIDTH, -7)
    ]
}
VALUE_ERRORS: Calls = {
    "kind": [
        made(kind="wass"),
        lambda: joint(kind="emo", embedding=HEAD, implementation="fused"),
        lambda: joint(kind="emo", embedding=HEAD, inplace=True),
        lambda: linear(kind="emo", embedding=HEAD, implementation="linear"),
    ],
    "weight": [made(weight=-1)],
    "cost": [
        made(cost=torch.full((10, 10), math.nan)),
        lambda: ntl_was(torch.zeros(9), torch.tensor(0), IRREGULAR, cost=torch.zeros(6, 5)),
    ],
    "text_cost": [made(kind="was_vocab", text_cost=-1.0)],
    "alpha": [made(kind="smmd", alpha=math.nan)],
    "factor": [made(kind="digit_entropy", factor=-1.0)]
    + [partial(losses.squashed_cost, torch.arange(10.0), factor) for factor in (1.0, -3.0, math.nan, math.inf)],
    "base": [made(kind="place_weighted", base=-10.0)],
    "target": [
        made(kind="was_cdf", target=torch.zeros(1)),
        lambda: cdf(target=torch.zeros(6, 9)),
        lambda: cdf(target=torch.zeros(6, 6), sigma=1.0),
    ],
    "label_smoothing": [
        made(kind="gce", label_smoothing=0.1),
        made(label_smoothing=1.0),
        lambda: joint(label_smoothing=-0.1, implementation="reference"),
        lambda: joint(label_smoothing=-0.1, implementation="fused"),
    ],
    "squash": [made(squash=3.0, kind="mse"), made(squash=3.0, cost=torch.zeros(10, 10))],
    "embedding": [made(kind="emo"), lambda: losses.emo(LOGITS, LABELS, embedding=torch.zeros(4, 2))],
    "point_id": [
        partial(NumberTokenLoss, DIGITS, shift=False, kind=kind) for kind in ("digit_entropy", "place_weighted")
    ],
    "sigma": [
        lambda: joint(kind="was", sigma=1.0),
        lambda: joint(kind=Terms.of("was", 0.3, {}), sigma=1.0),
        lambda: cdf(sigma=0.0),
        lambda: losses.smmd(LOGITS, LABELS, DIGITS, sigma=0.0),
    ],
    "return one loss for each number label, (3,), not ()": [partial(SCALAR, LOGITS, LABELS, DIGITS)],
    "delta must be positive and finite": [lambda: losses.ntl_huber(LOGITS, LABELS, DIGITS, delta=0)],
    "temperature": [lambda: losses.dist2(LOGITS, LABELS, DIGITS, temperature=-1.0)],
    "implementation": [lambda: joint(implementation="fast")],
    "inplace": [
        lambda: joint(inplace=True, implementation="reference"),
        lambda: linear(inplace=True),
        lambda: ce_ntl(torch.zeros(WIDTH, 6).t(), torch.zeros(6).long(), DIGITS, inplace=True),
        lambda: ce_ntl(LOGITS.half(), LABELS, DIGITS, inplace=True),
    ],
    "(2, 3, 7), (16, 6), (2, 3)": [lambda: linear_ce_ntl(HIDDEN, HEAD[:, 1:], LABELS, DIGITS)],
    "labels' shape (2, 3), not (2, 1)": [
        lambda: joint(loss_weights=WEIGHTS[:, :1]),
        lambda: linear(loss_weights=WEIGHTS[:, :1]),
        lambda: SHIFTED(LOGITS, LABELS, loss_weights=WEIGHTS[:, :1]),
    ],
    "loss_weights": [
        lambda: joint(loss_weights=-WEIGHTS),
        lambda: linear(loss_weights=WEIGHTS * math.nan),
        lambda: SHIFTED(LOGITS, LABELS, loss_weights=WEIGHTS * math.inf),
    ],
    "those of its logits: shift=False": [
        partial(SHIFTED, SimpleNamespace(logits=LOGITS, encoder_last_hidden_state=LOGITS), LABELS)
    ],
    "one weight": [lambda kind=kind: joint(kind=kind, loss_weights=torch.ones(2, 3, 2)) for kind in ("gce", "ntil")],
    "ntil": [made(kind="ntil+was"), lambda: joint(kind="ntil+number_level")],
    "labels of shape (3,) with shift=True": [
        lambda: SHIFTED.linear(HIDDEN[0], HEAD, LABELS[0]),
        lambda: SHIFTED.compute_loss_func({"logits": LOGITS[0]}, LABELS[0]),
    ],
    "width 7, but the largest number-token id is 7": [
        partial(loss, torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), IRREGULAR)
        for name, loss in LOSSES.items()
        if name != "cross_entropy"
    ],
    "vocab_size=304": [
        partial(call, labels=torch.ones(1, 4, dtype=torch.long))
        for call in (
            partial(NARROW, torch.zeros(1, 4, 200)),
            partial(NARROW.linear, torch.zeros(1, 4, 3), torch.zeros(200, 3)),
        )
    ],
    "(2, 3, 16), (2, 2)": [partial(loss, LOGITS, LABELS[:, :2], DIGITS) for loss in LOSSES.values()],
    "reduction": [
        *(partial(loss, LOGITS, LABELS, DIGITS, reduction="avg") for loss in LOSSES.values()),
        lambda: losses.squared_error(torch.zeros(2), torch.zeros(2), reduction="median"),  # type: ignore[arg-type]
    ],
    "(2, 2) and targets (2,)": [lambda: losses.squared_error(torch.zeros(2, 2), torch.zeros(2))],
    "values": [
        lambda: losses.euclidean_cost(torch.tensor([math.nan, 1.0])),
        lambda: losses.euclidean_cost(torch.ones(1, 2)),
    ],
    "distance": [
        partial(place_weighted, LOGITS, LABELS, DIGITS, point_id=None, distance=distance)  # type: ignore[arg-type]
        for distance in ("wass", "ce", "ntil", "was_vocab", "place_weighted", len)
    ],
    "single digits": [
        partial(losses.digit_entropy, LOGITS, LABELS, DECIMALS, point_id=None),
        partial(place_weighted, LOGITS, LABELS, DECIMALS, point_id=None),
        partial(losses.ntil, LOGITS, LABELS, DECIMALS),
        partial(losses.ntl_number_level, LOGITS, LABELS, DECIMALS),
    ],
}
REFUSED = [(TypeError, TYPE_ERRORS), (IndexError, INDEX_ERRORS), (ValueError, VALUE_ERRORS)]


@pytest.mark.parametrize(("error", "named"), [(error, named) for error, table in REFUSED for named in table])
def test_what_does_not_fit_is_refused(error: type[Exception], named: str) -> None:
    for call in dict(REFUSED)[error][named]:
        with pytest.raises(error) as caught:
            call()
        assert named in str(caught.value)
        assert "\n" not in str(caught.value)


def test_integers_of_every_type_are_labels() -> None:
    for dtype in (torch.int32, torch.int16, torch.uint8):  # uint8 has no -100
        assert SHIFTED(LOGITS, LABELS.to(dtype)) == SHIFTED(LOGITS, LABELS)
    assert NARROW(torch.zeros(1, 4, 304), torch.ones(1, 4, dtype=torch.long)).isfinite()


def test_wide_values_are_told_once_with_the_largest_where_they_matter() -> None:
    make = partial(NumberTokenLoss.from_tokenizer, WIDE, shift=False, digits_only=False)
    wide: list[dict[str, Any]] = [{}, {"kind": "was_cdf"}, {"kind": "mse"}, {"kind": "gce+was_cdf"}]
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
