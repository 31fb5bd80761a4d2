"""Values by hand, and those that the original implementation returns for hand-made inputs, to 1e-5."""

from functools import partial

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR, LOSSES, NUMBER_LOSSES, WIDE, Loss, all_positions
from torch import Tensor
from torch.autograd import gradcheck

from ntl import losses
from ntl.losses import (
    count_numbers,
    euclidean_cost,
    ntl_crps,
    ntl_mae,
    ntl_number_level,
    ntl_was,
    ntl_was_cdf,
    rows,
    squared_error,
    squashed_cost,
)
from ntl.losses.rows import number_rows
from ntl.losses.sums import diagnostic_sums

A, POINT, ZERO = 1, 2, 3
LABEL = ZERO + 4
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
    "all on 9": (zeros_but({12: 0.0}, fill=-1e4), (25.0, 5.0, 4.5, 5.0, 5.0)),
    "a slope of 0.3": (0.3 * torch.arange(13.0), (7.105751, 2.665661, 2.165661, 3.184556, 3.184556)),
}


@pytest.mark.parametrize("case", ONE_POSITION)
def test_one_position(case: str) -> None:
    logits, expected = ONE_POSITION[case]
    found = [NUMBER_LOSSES[name](logits[None, None], torch.tensor([[LABEL]]), DIGITS).item() for name in COLUMNS]
    assert found == pytest.approx(expected, abs=1e-5)


def test_mixed_batch() -> None:
    logits, labels = torch.zeros(2, 3, 13), torch.tensor([[3, 1, 7], [12, 2, 0]])
    logits[0, 0, 3], logits[0, 1, 1], logits[0, 2, 12] = 2.0, 3.0, 1.0
    logits[1, 0, 5], logits[1, 1, 8], logits[1, 2, 2] = -1.0, 4.0, 0.5
    expected = {"ntl_mse": 9.214839, "ntl_mae": 2.745629, "ntl_huber": 2.245629, "ntl_was": 3.314541}
    expected |= {"ntl_was_cdf": 3.314541, "cross_entropy": 2.241605, "gaussian_cross_entropy": 2.384822}
    found = {name: LOSSES[name](logits, labels, DIGITS).item() for name in expected}
    assert found == pytest.approx(expected, abs=1e-5)
    assert losses.ntl_was_cdf(logits, labels, DIGITS, sigma=1.0).item() == pytest.approx(2.725286, abs=1e-5)


# ---- Gaussian


def test_a_text_token_costs_more_than_any_number() -> None:
    """Of 13 equal tokens the ten digits are |k - 4| away, 25 in sum; three of text cost 1.01 times 9, or 7.5."""
    logits, label = torch.zeros(1, 13, dtype=torch.float64), torch.tensor([LABEL])
    assert losses.ntl_was_vocab(logits, label, DIGITS).item() == pytest.approx((25 + 3 * 9.09) / 13)
    assert losses.ntl_was_vocab(logits, label, DIGITS, text_cost=7.5).item() == pytest.approx((25 + 3 * 7.5) / 13)


def test_the_gaussian_target() -> None:
    target = losses.gaussian_target(torch.tensor([0.0, 4.0]), torch.arange(10.0), 1.0)
    assert target.sum(-1).tolist() == pytest.approx([1, 1])
    torch.testing.assert_close(target[0, :4], torch.tensor([0.5703, 0.3459, 0.0772, 0.0063]), rtol=0, atol=5e-5)
    expected = torch.tensor([0.0001, 0.0044, 0.0540, 0.2420, 0.3989, 0.2420, 0.0540, 0.0044, 0.0001, 0.0000])
    torch.testing.assert_close(target[1], expected, rtol=0, atol=5e-5)
    # Tokens of equal value share alike.
    shared = losses.gaussian_target(torch.tensor(5.0), IRREGULAR.token_values, 1.0)
    assert shared[0] == shared[4] > 0.4


# ---- whole numbers by place value; if all logits are 0, the expected digit is 4.5


def digits(text: str) -> list[int]:
    return [POINT if each == "." else A if each == "a" else -100 if each == "_" else ZERO + int(each) for each in text]


def by_place(text: str, point_id: int | None = POINT) -> list[float]:
    logits = torch.zeros(1, len(text), 13, dtype=torch.float64)
    labels = torch.tensor([digits(text)])
    return ntl_number_level(logits, labels, DIGITS, point_id=point_id, reduction="none")[0].tolist()


NUMBERS = {
    "12": [0, (4.95 - 1.2) / 1.2],
    "0": [4.5],
    "0a7": [4.5, 0, 2.5 / 7],
    "1.5": [0, 0, (4.95 - 1.5) / 1.5],
    "0.05": [0, 0, 0, 4.995 - 0.05],  # divided by one unit of the first digit's place
    "7_7": [2.5 / 7, 0, 2.5 / 7],
    ".5a5.": [0, 0.5 / 5, 0, 0.5 / 5, 0],  # no digit before, none after: not a decimal point
    "1..2": [3.5, 0, 0, 2.5 / 2],
}


def test_numbers_by_place_value() -> None:
    for text, expected in NUMBERS.items():
        assert by_place(text) == pytest.approx(expected), text
    assert by_place("1.5", point_id=None) == pytest.approx([3.5, 0, 0.1])  # two numbers


def test_numbers_end_with_their_sequence() -> None:
    labels = torch.tensor([digits("a1"), digits("2a")])
    each = ntl_number_level(torch.zeros(2, 2, 13), labels, DIGITS, reduction="none")
    torch.testing.assert_close(each, torch.tensor([[0.0, 3.5], [1.25, 0.0]]))
    assert count_numbers(labels, DIGITS).item() == 2
    assert ntl_number_level(torch.zeros(2, 2, 13), labels, DIGITS).item() == pytest.approx(4.75 / 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_label_of_0_and_forty_digits_have_finite_gradients(dtype: torch.dtype) -> None:
    for text in ("0", "9" * 40):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn(1, len(text), 13, generator=generator).to(dtype).requires_grad_()
        loss = ntl_number_level(logits, torch.tensor([digits(text)]), DIGITS)
        loss.backward()
        assert loss.item() > 0
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
        assert logits.grad.any()


# ---- a number head


def test_squared_error_by_hand() -> None:
    predictions, targets = torch.tensor([[1.0, -2.0], [0.5, 8.0]]), torch.tensor([[3.0, -2.0], [0.0, 5.0]])
    assert squared_error(predictions, targets, reduction="none").tolist() == [[4, 0], [0.25, 9]]
    assert squared_error(predictions, targets, reduction="sum") == 13.25
    assert squared_error(predictions, targets) == 13.25 / 4
    assert gradcheck(lambda x: squared_error(x, targets.double()), predictions.double().requires_grad_())
    for dtype in (torch.float16, torch.bfloat16):  # beyond float16
        assert squared_error(torch.tensor([300.0], dtype=dtype), torch.tensor([0.0])) == torch.tensor(90_000.0)
    none = torch.zeros(0, requires_grad=True)
    squared_error(none, torch.zeros(0)).backward()
    assert none.grad is not None


# ---- the diagnostics of a batch


def test_they_are_the_losses_of_these_names_however_the_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 7, DIGITS.values.numel(), dtype=torch.float64)
    labels = torch.randint(0, DIGITS.values.numel(), (4, 7))
    labels[1] = -100
    found = number_rows(logits, labels, DIGITS, -100)
    total, each = diagnostic_sums(found), diagnostic_sums(found, per_example=True)
    assert (total.shape, each.shape) == ((4,), (4, 4))
    assert each[1].tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(each.sum(dim=0), total)
    for place, loss in ((0, ntl_was), (2, ntl_mae)):
        torch.testing.assert_close(total[place], loss(logits, labels, DIGITS, reduction="sum"))
    monkeypatch.setattr(rows, "number_index", all_positions)
    masked = number_rows(logits, labels, DIGITS, -100)
    torch.testing.assert_close(diagnostic_sums(masked), total)
    torch.testing.assert_close(diagnostic_sums(masked, per_example=True), each)


# ---- NTL-WAS, its form over the distribution function, CRPS, and the costs of distances


def test_a_target_is_read_at_number_labels_alone_and_that_of_one_position_has_one_dimension():
    generator, labels = torch.Generator().manual_seed(0), IRREGULAR.token_ids
    logits = 3 * torch.randn(6, 9, dtype=torch.float64, generator=generator)
    values = IRREGULAR.token_values.double()
    gaussian = losses.gaussian_target(IRREGULAR.values[labels].double(), values, 1.5)
    found = ntl_was_cdf(logits, labels, IRREGULAR, target=gaussian)
    torch.testing.assert_close(found, ntl_was_cdf(logits, labels, IRREGULAR, sigma=1.5))
    target = torch.randn(6, 6, dtype=torch.float64, generator=generator).softmax(-1)
    expected = ntl_was_cdf(logits[1:], labels[1:], IRREGULAR, target=target[1:])
    target[0] = torch.nan
    torch.testing.assert_close(ntl_was_cdf(logits, labels, IRREGULAR, target=target, ignore_index=0), expected)
    alone = ntl_was_cdf(logits[0], labels[0], IRREGULAR, target=torch.eye(6)[0])
    torch.testing.assert_close(alone, ntl_was(logits[0], labels[0], IRREGULAR))


GAUSSIAN = partial(ntl_was_cdf, sigma=1.5)


@pytest.mark.parametrize(("loss", "exact"), [(ntl_was_cdf, ntl_was), (ntl_crps, ntl_crps), (GAUSSIAN, GAUSSIAN)])
def test_float32_on_values_that_span_a_wide_range(loss: Loss, exact: Loss):
    """Each number is a label twice: with a confident prediction, and with an almost uniform one."""
    logits = torch.randn(2, 13, 14, generator=torch.Generator().manual_seed(0))
    logits[0, :, 11:] -= torch.tensor([6.0, 14.0, 20.0])
    labels = torch.arange(1, 14).expand(2, -1)
    logits[0] += 12.0 * torch.nn.functional.one_hot(labels[0], 14)
    found, expected = logits.requires_grad_(), logits.detach().double().requires_grad_()
    values, exact_values = loss(found, labels, WIDE, reduction="none"), exact(expected, labels, WIDE, reduction="none")
    torch.testing.assert_close(values.double(), exact_values, rtol=1e-3, atol=1e-5)
    (gradient,), (exact_gradient,) = (
        torch.autograd.grad(total.sum(), leaf) for total, leaf in ((values, found), (exact_values, expected))
    )
    largest = exact_gradient.abs().amax(-1, keepdim=True)
    assert ((gradient - exact_gradient).abs() / largest).max() < 1e-3


# ---- costs


def test_the_row_of_a_cost_is_the_label_and_distances_are_the_default():
    distribution = torch.tensor([0.3, 0.2, 0.1, 0.2, 0.1, 0.1], dtype=torch.float64)
    logits = torch.zeros(9, dtype=torch.float64).index_put((IRREGULAR.token_ids,), distribution.log())
    cost = torch.arange(36.0).reshape(6, 6)
    expected = (distribution * torch.arange(12.0, 18.0)).sum()  # id 3 is number token 2
    torch.testing.assert_close(ntl_was(logits, torch.tensor(3), IRREGULAR, cost=cost), expected)
    # For the label 7 (id 5), the distances of the values 5, 0, 100, 7, 5, -2.5 are 2, 7, 93, 0, 2, 9.5.
    by_hand = 0.3 * 2 + 0.2 * 7 + 0.1 * 93 + 0.1 * 2 + 0.1 * 9.5
    for each in (None, euclidean_cost(IRREGULAR.token_values)):
        assert ntl_was(logits, torch.tensor(5), IRREGULAR, cost=each).item() == pytest.approx(by_hand)


def test_a_cost_has_a_gradient():
    cost = squashed_cost(IRREGULAR.token_values.double(), 3.0).requires_grad_()
    labels = torch.tensor([0, 1, 7])
    logits = torch.randn(3, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, c: ntl_was(x, labels, IRREGULAR, cost=c), (logits, cost))


def test_squashed_costs_by_hand():
    row = squashed_cost(torch.arange(10.0), 3.0)[4]
    torch.testing.assert_close(row, torch.tensor([1.75, 1.5, 1.25, 1, 0, 1, 1.25, 1.5, 1.75, 2]))
    cost = squashed_cost(torch.tensor([5.0, 0.0, 100.0, 7.0]), 3.0)
    expected = torch.tensor([1.0, 1.0612, 2.8980, 3.0])
    torch.testing.assert_close(cost[[0, 0, 0, 1], [3, 1, 2, 2]], expected, rtol=0, atol=5e-5)
    # Digits have the factor 9 by themselves; a single distance costs 1; without a distance all is free.
    torch.testing.assert_close(squashed_cost(range(10), 9.0), euclidean_cost(range(10)))
    assert squashed_cost(torch.tensor([2.0, 7.0, 2.0]), 3.0).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert not squashed_cost(torch.tensor([3.0, 3.0]), 3.0).any()
