"""Losses that others proposed, against the values of their released code on one worked input, and their properties."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from loss_cases import tokenizer
from torch import Tensor

from ntl import losses
from ntl.losses import (
    NumberTokenLoss,
    ce_ntl,
    digit_entropy,
    dist2,
    emo,
    ntil,
    place_weighted,
    smmd,
)
from ntl.losses.registry import kinds
from ntl.losses.related_losses import transport_cost
from ntl.numbers import NumberVocabulary

POINT, TEXT = 10, 11
VOCAB = NumberVocabulary.from_values([*range(10), math.nan, math.nan])
# "12.34 x 7 x"
LABELS = torch.tensor([1, 2, POINT, 3, 4, TEXT, 7, TEXT])
ROWS = """
 4.1795  0.2353 -1.8502 -0.8726 -2.7973  5.1851  2.8656  0.3284 -0.6595 -0.8899  0.9085  0.3083
-0.9517 -1.4755 -1.1248  1.8151  0.1050 -1.0022 -1.6530  1.6677 -1.0504  0.0621 -2.2822 -1.5769
 1.7771 -0.3970 -2.2770 -0.3271 -0.1115  1.2626  1.0523 -1.0245 -1.4924 -1.0479 -2.3656  1.6319
 3.0295 -3.3705  2.2845 -2.0730 -1.0615 -0.9441 -2.0286 -1.9894  3.4121 -0.3106  3.0573  1.0755
-0.5999  0.9234  2.6385  0.8976 -1.4627  2.0446  2.0204  3.0176 -2.3278 -2.9862 -2.5425  0.8817
-0.6332  0.8920  1.9204  0.8859 -2.2659 -0.9535  2.2990 -0.6582 -1.0387  1.8220 -3.6087  0.1652
-0.7236 -0.8585 -0.5626 -0.9073 -3.4880  1.4871 -0.6854  4.3409  1.9683 -1.2056 -0.0187  2.3767
 0.4103 -0.3938  2.0153 -4.3491  3.1048 -0.0541 -2.0747 -4.1005 -0.3240  1.6479 -1.5987 -0.2537
"""
LOGITS = torch.tensor([[float(each) for each in row.split()] for row in ROWS.strip().splitlines()]).double()
EMBEDDING = torch.randn(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

RELEASED: dict[str, tuple[Callable[..., Tensor], float]] = {
    "CE": (losses.cross_entropy, 4.276411522),
    "NTL-WAS": (losses.ntl_was, 2.520356509),
    "SMMD": (smmd, 1.088103257),
    "MMD": (partial(smmd, alpha=0.0), 0.584662736),
    "DIST2": (dist2, 2.809868927),
    "DIST2, tau 4": (partial(dist2, temperature=4.0), 2.208500571),
    # The weighted mean of the ranks 2 1 - 2 1 - 1, of which the released code divides by their sum, 7.
    "DIST2, tau 2, by rank": (
        lambda *given: (
            place_weighted(*given, distance=partial(dist2, temperature=2.0), point_id=None, reduction="sum") / 7
        ),
        2.768406492,
    ),
    "DIST2 of DEL": (partial(place_weighted, distance="dist2", point_id=None), 4.404430324),
    "DEL": (partial(digit_entropy, point_id=POINT), 0.005580030553),
    "DEL, f 0.1": (partial(digit_entropy, point_id=POINT, factor=0.1), 0.05580030553),
    "NTIL": (ntil, 3.047285284),
    "NTIL's distances": (partial(place_weighted, base=1.2, point_id=None), 2.800114922),
    "EMO": (partial(emo, embedding=EMBEDDING), 4.276411522),  # whatever the embedding is
}
RIVALS: dict[str, Callable[..., Tensor]] = {
    "smmd": smmd,
    "dist2": dist2,
    "digit_entropy": partial(digit_entropy, point_id=POINT),
    "ntil": ntil,
    "emo": partial(emo, embedding=EMBEDDING),
    "place_weighted": partial(place_weighted, point_id=POINT),
}
every_rival = pytest.mark.parametrize("name", RIVALS)


def gradient(loss: Callable[..., Tensor], logits: Tensor = LOGITS, labels: Tensor = LABELS, **options: Any) -> Tensor:
    leaf = logits.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf, labels, VOCAB, **options), leaf)
    return found


@pytest.mark.parametrize("name", RELEASED)
def test_the_values_of_the_released_code(name: str) -> None:
    loss, expected = RELEASED[name]
    assert loss(LOGITS, LABELS, VOCAB).item() == pytest.approx(expected, rel=1e-6)
    assert loss(LOGITS.float(), LABELS, VOCAB).item() == pytest.approx(expected, rel=1e-5)


# ---- NTIL and EMO, whose gradients are not those of their values


def test_the_gradient_of_ntil_by_hand() -> None:
    """One number of two digits, 34, for which the likeliest digits write 72, and then 20."""
    labels = torch.tensor([3, 4])
    logits = 0.1 * LOGITS[[4, 0]]
    for high, low in ((7, 2), (2, 0)):
        logits[0, high], logits[1, low] = logits[:, :10].max() + 0.03, logits[:, :10].max() + 0.05
        digits, values = logits[:, :10], torch.arange(10.0, dtype=torch.float64)
        p, cost = digits.softmax(-1), (values - labels.unsqueeze(-1)).abs()
        powers = torch.tensor([[1.2], [1.0]], dtype=torch.float64)
        expected = powers / 2 * p * (cost - (p * cost).sum(-1, keepdim=True))
        soft = (digits / 0.1).softmax(-1)
        of_number = torch.tensor([[10.0], [1.0]]) * soft * (values - (soft * values).sum(-1, keepdim=True)) / 0.1
        number, label = 10 * high + low, 34
        relative = (label + 1) / (number + 1) ** 2 if number > label else -1 / (label + 1)
        magnitude = (1 if number > label else -1) / (number + 1)
        expected += 0.2 * (relative + magnitude) * of_number
        found = gradient(ntil, logits, labels)
        torch.testing.assert_close(found[:, :10], expected, rtol=1e-9, atol=1e-12)
        assert not found[:, 10:].any()
        emd = (powers * p * cost).sum() / 2
        terms = (
            abs(number - label) / (max(number, label) + 1),
            math.log((max(number, label) + 1) / (min(number, label) + 1)),
        )
        assert ntil(logits, labels, VOCAB).item() == pytest.approx(emd.item() + 0.2 * sum(terms))


def test_ntil_is_a_mean_over_rows_and_its_numbers_do_not_overflow() -> None:
    rows = torch.stack([LABELS, torch.full_like(LABELS, TEXT), LABELS.flip(0), torch.full_like(LABELS, -100)])
    logits = torch.stack([LOGITS, LOGITS, LOGITS.flip(0), LOGITS])
    each = ntil(logits, rows, VOCAB, reduction="none")
    assert each.nonzero().tolist() == [[0, 6], [2, 7]]  # at the last digits
    assert each[0, 6].item() == pytest.approx(3.047285284, rel=1e-6)
    assert each[2, 7].item() == pytest.approx(ntil(LOGITS.flip(0), LABELS.flip(0), VOCAB).item())
    # The row of text counts, the one without labels does not.
    assert ntil(logits, rows, VOCAB).item() == pytest.approx(each.sum().item() / 3)
    right, wrong = torch.full((60,), 9), torch.zeros(60, 12)
    wrong[:, 8] = 9.0
    found = gradient(ntil, wrong, right)
    assert found.isfinite().all()
    value = ntil(wrong, right, VOCAB).item()
    relative, magnitude = 1 / 9, math.log(9 / 8)
    assert value == pytest.approx(
        (1.2 ** torch.arange(60.0)).mean().item() * losses.ntl_was(wrong, right, VOCAB).item()
        + 0.2 * (relative + magnitude),
        rel=1e-5,
    )


def test_emo_by_hand_and_its_gradient() -> None:
    """Three tokens whose embeddings are orthogonal, but for the third, at 45 degrees to the second; its length is 3."""
    table = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0 / 2**0.5, 3.0 / 2**0.5]], dtype=torch.float64)
    logits, labels = torch.tensor([[0.5, 0.2, 0.3]], dtype=torch.float64).log(), torch.tensor([0])
    m = 1 - 0.2 * 0.0 - 0.3 * math.cos(math.pi / 4)
    assert transport_cost(logits, labels, table).item() == pytest.approx(m)
    ce = -math.log(0.5)
    leaf = logits.clone().requires_grad_()
    value = emo(leaf, labels, embedding=table)
    assert value.item() == pytest.approx(ce)
    value.backward()
    p, cost = logits.exp(), torch.tensor([[0.0, 1.0, 1 - math.cos(math.pi / 4)]])
    expected = 0.5 * (p - torch.tensor([[1.0, 0, 0]]) + ce / m * p * (cost - (p * cost).sum()))
    torch.testing.assert_close(leaf.grad, expected)
    # A row of zeros, and an ignored label.
    given, labels = torch.cat([logits, torch.full((1, 3), math.nan)]).requires_grad_(), torch.tensor([0, -100])
    value = emo(given, labels, embedding=table.index_fill(0, torch.tensor(1), 0.0))
    assert value.item() == pytest.approx(ce)
    (found,) = torch.autograd.grad(value, given)
    assert found[0].isfinite().all()
    assert not found[1].any()


# ---- places


def labels_of(text: str) -> Tensor:
    return torch.tensor([POINT if c == "." else -100 if c == "_" else TEXT if c in "x-" else int(c) for c in text])


# Text -> the weights of its digits in DEL. "_" is masked.
DEL_WEIGHTS = {
    "12.34x7": [4, 2, 0, 1.02**-2, 1.02**-3, 0, 2],
    "305": [6, 4, 2],
    ".5": [0, 2],
    "..51": [0, 0, 4, 2],
    "5.x": [2, 0, 0],
    "1.2.3": [2, 0, 1.02**-2, 0, 1.02**-4],
    "3_4": [2, 0, 2],
    "-0.5": [0, 2, 0, 1.02**-2],
}
# ... and base 10 with and without a point, and by rank with one.
PLACES = {
    "12.34x7": ([10, 1, 0, 0.1, 0.01, 0, 1], [10, 1, 0, 10, 1, 0, 1], [4, 3, 0, 2, 1, 0, 1]),
    "-305": ([0, 100, 10, 1],) * 2 + ([0, 3, 2, 1],),
    "5.x.5": ([1, 0, 0, 0, 1],) * 3,
    "31_4": ([10, 1, 0, 1],) * 2 + ([2, 1, 0, 1],),
}


def weights_in(loss: Callable[..., Tensor], text: str) -> list[float]:
    """Return the losses of a text, relative to those of its digits as numbers of one digit each, with the weight 1."""
    labels = labels_of(text)
    logits = torch.zeros(1, len(text), 12, dtype=torch.float64)
    each = loss(logits, labels.unsqueeze(0), VOCAB, reduction="none")[0]
    alone = [loss(logits[0, :1], label.view(1), VOCAB) if 0 <= label < 10 else math.inf for label in labels]
    return [float(one / other) for one, other in zip(each, alone, strict=True)]


def test_places() -> None:
    for text, expected in DEL_WEIGHTS.items():
        found = weights_in(partial(digit_entropy, point_id=POINT), text)
        assert found == pytest.approx([each / 2 for each in expected]), text
    for text, of_text in PLACES.items():
        settings = ({"point_id": POINT, "base": 10.0}, {"point_id": None, "base": 10.0}, {"point_id": POINT})
        for options, expected in zip(settings, of_text, strict=True):
            assert weights_in(partial(place_weighted, **options), text) == pytest.approx(expected), (text, options)


def test_a_number_ends_with_its_row() -> None:
    """3 at the end of a row and 4 at the beginning of the next are not 34."""
    logits = LOGITS[:4].view(2, 2, 12)
    labels = torch.tensor([[TEXT, 3], [4, TEXT]])
    for name, loss in RIVALS.items():
        each = loss(logits, labels, VOCAB, reduction="none")
        alone = torch.stack([loss(logits[i], labels[i], VOCAB, reduction="none") for i in range(2)])
        torch.testing.assert_close(each, alone, msg=name)
    apart = place_weighted(logits, labels, VOCAB, point_id=POINT)
    assert apart < place_weighted(logits.flatten(0, 1), labels.flatten(), VOCAB, point_id=POINT)


# ---- what holds for all


@every_rival
def test_a_weight_of_a_row_is_the_row_as_often(name: str) -> None:
    """For NTIL, whose mean is over rows, too."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(8, 6, 12, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 12, (8, 6), generator=generator)
    labels[0], labels[1, :3], labels[2] = TEXT, -100, -100
    how: dict[str, Any] = {"kind": name, "weight": 1.0, "implementation": "reference", **options_for(name)}
    weights = torch.arange(8.0).unsqueeze(1).expand(8, 6) / 2
    whole = ce_ntl(logits, labels, VOCAB, loss_weights=weights, **how)
    often = [i for i in range(8) for _ in range(i)]
    torch.testing.assert_close(whole.total, ce_ntl(logits[often], labels[often], VOCAB, **how).total)
    if name == "ntil":
        assert whole.number.count == (weights[[0, 1, 3, 4, 5, 6, 7], 0].sum())


def options_for(name: str) -> dict[str, Any]:
    return {option: {"point_id": POINT, "embedding": EMBEDDING}[option] for option in kinds()[name].required}


def test_a_kind_that_reads_the_tokenizer_or_the_embeddings() -> None:
    tokens = tokenizer(*"0123456789", ".", "x")
    wider = torch.randn(TEXT + 4, 5)  # an embedding of more tokens than the tokenizer's
    assert NumberTokenLoss.from_tokenizer(tokens, shift=False, kind="emo", embedding=wider).kind == "emo"
    both = torch.ones(8, 2)
    assert ce_ntl(LOGITS, LABELS, VOCAB, kind="emo", embedding=EMBEDDING, loss_weights=both).total.isfinite()
    loss = NumberTokenLoss.from_tokenizer(tokens, shift=False, kind="digit_entropy", weight=1.0)
    expected = losses.cross_entropy(LOGITS, LABELS) + 0.005580030553
    torch.testing.assert_close(loss(LOGITS, LABELS), expected, rtol=1e-9, atol=0)
