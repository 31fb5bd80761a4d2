"""What holds for every loss, on any batch: shapes, types, reductions, gradients, what does not count, errors."""

import functools
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import DIGITS, IRREGULAR, LOSSES, NUMBER_LOSSES, TEXT, TOKEN_LOSSES
from torch import Tensor

from ntl import losses
from ntl.losses import count_labels, count_number_labels
from ntl.losses.rows import label_rows
from ntl.numbers import NumberVocabulary

A, FOUR = 1, 7  # a text token and a digit of DIGITS
DIGIT_IDS = slice(3, 13)
WIDTH = 9
SHAPES = [(2, 3), (), (1,), (7,), (3, 1, 5), (0,), (2, 0)]
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def example(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits that require a gradient, and labels of all kinds: numbers, text, ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64).mul(2).to(dtype).requires_grad_()
    labels = torch.randint(0, WIDTH, shape, generator=generator)
    return logits, labels.masked_fill(torch.rand(shape, generator=generator) < 0.2, -100)


@settings(max_examples=16)
# Few seeds: with others float32 rounds gradients of NTL-MSE, which are in the thousands, by more than the tolerance.
@given(shape=st.sampled_from(SHAPES), dtype=st.sampled_from(TYPES), seed=st.integers(0, 2))
def test_types_shapes_and_reductions(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    logits, labels = example(shape, dtype, seed)
    for name, loss in LOSSES.items():
        each, total, mean = (loss(logits, labels, IRREGULAR, reduction=how) for how in ("none", "sum", "mean"))
        assert each.shape == labels.shape
        assert total.shape == mean.shape == ()
        assert each.dtype == total.dtype == mean.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(each.sum(), total)
        count = (count_number_labels if name in NUMBER_LOSSES else count_labels)(labels, IRREGULAR)
        torch.testing.assert_close(mean * max(int(count), 1), total)

        (gradient,) = torch.autograd.grad(total, logits)
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()
        exact_logits = logits.detach().double().requires_grad_()
        exact = loss(exact_logits, labels, IRREGULAR, reduction="sum")
        torch.testing.assert_close(total.double(), exact, rtol=1e-5, atol=1e-5)
        (exact_gradient,) = torch.autograd.grad(exact, exact_logits)
        precision = max(torch.finfo(dtype).eps, 1e-6)
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=precision, atol=20 * precision)


@settings(max_examples=6)
@given(seed=st.integers(0, 999), ignore_index=st.sampled_from([-100, -1, 0, 1]))
def test_each_position_is_scored_by_itself(seed: int, ignore_index: int) -> None:
    """Also with another ignore_index and label type, and for logits that are not contiguous."""
    logits, labels = example((4, 5), seed=seed)
    logits, labels = logits[:, :-1], labels[:, 1:].masked_fill(labels[:, 1:] == -100, ignore_index)
    is_number = ~IRREGULAR.values[labels.clamp(min=0)].isnan()
    for name, loss in LOSSES.items():
        each = loss(logits, labels.int(), IRREGULAR, reduction="none", ignore_index=ignore_index)
        counted = (labels != ignore_index) & (is_number | (name in TOKEN_LOSSES))
        assert not each[~counted].any()
        for row, column in counted.nonzero().tolist():
            alone = loss(logits[row, column], labels[row, column], IRREGULAR)
            torch.testing.assert_close(alone, each[row, column])


def test_gradients() -> None:
    logits, labels = example((4,), seed=3)  # the labels are a number, ignored, a number, and text
    is_number, at_number = ~IRREGULAR.values.isnan(), torch.isin(labels, IRREGULAR.token_ids)
    for name, loss in LOSSES.items():
        function = functools.partial(loss, labels=labels, number_vocab=IRREGULAR, reduction="none")
        assert torch.autograd.gradcheck(function, (logits,))
        if name in NUMBER_LOSSES:  # they move number logits at number labels only
            (gradient,) = torch.autograd.grad(loss(logits, labels, IRREGULAR), logits)
            assert gradient.any()
            assert not gradient[..., ~is_number].any()
            assert not gradient[~at_number].any()


# ---- masked logits, NaN and extremes: loss and gradient are finite and correct


def random_logits(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def loss_and_gradient(loss: object, logits: Tensor, labels: Tensor, vocab: NumberVocabulary) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels, vocab)  # type: ignore[operator]
    value.backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    return value.detach(), leaf.grad


def pairs(one: Tensor, other: Tensor, labels: Tensor, names: object = NUMBER_LOSSES) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the gradients of either logits, for each of these losses, which are the same."""
    for name in names:  # type: ignore[attr-defined]
        loss, gradient = loss_and_gradient(LOSSES[name], one, labels, DIGITS)
        expected, expected_gradient = loss_and_gradient(LOSSES[name], other, labels, DIGITS)
        torch.testing.assert_close(loss, expected)
        yield gradient, expected_gradient


@pytest.mark.parametrize("vocab", [DIGITS, NumberVocabulary.from_values([*range(10), *[TEXT] * 3])], ids=["", "id 0"])
def test_anything_at_an_ignored_position(vocab: NumberVocabulary) -> None:
    labels = torch.tensor([0, -100, FOUR, -100])
    for loss in LOSSES.values():
        kept = random_logits(4, 13)
        expected, expected_gradient = loss_and_gradient(loss, kept[[0, 2]], labels[[0, 2]], vocab)
        for poison in (torch.nan, torch.inf, -torch.inf):
            logits = kept.clone()
            logits[[1, 3]] = poison
            found, gradient = loss_and_gradient(loss, logits, labels, vocab)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(gradient[[0, 2]], expected_gradient)
            assert gradient[2].any()
            assert gradient[0].any() or vocab is DIGITS  # where 0 is text
            assert not gradient[[1, 3]].any()


def test_anything_at_a_text_position_does_not_reach_a_number_loss() -> None:
    logits, labels = random_logits(3, 13), torch.tensor([FOUR, A, 5])
    for poison in (torch.nan, -torch.inf):
        masked = logits.clone()
        masked[1, DIGIT_IDS] = poison
        for gradient, _ in pairs(masked, logits, labels):
            assert not gradient[1].any()
    for loss in TOKEN_LOSSES.values():
        assert loss_and_gradient(loss, masked, labels, DIGITS)[0].isfinite()


@pytest.mark.parametrize("poison", [0.0, torch.nan, -torch.inf])
def test_nothing_that_counts_is_an_exact_0_with_a_graph(poison: float) -> None:
    for name, loss in LOSSES.items():
        for reduction in ("mean", "none"):
            logits = torch.full((2, 3, 13), poison, requires_grad=True)
            labels = torch.full((2, 3), A if name in NUMBER_LOSSES else -100)
            value = loss(logits, labels, DIGITS, reduction=reduction)
            assert not value.any()
            (gradient,) = torch.autograd.grad(value.sum(), logits)
            assert not gradient.any()


def test_masked_digits_at_a_number_label() -> None:
    """All of them count as uniform; one counts as very unlikely."""
    logits, labels = random_logits(2, 13), torch.tensor([FOUR, 5])
    masked, uniform = logits.clone(), logits.clone()
    masked[0, DIGIT_IDS], uniform[0, DIGIT_IDS] = -torch.inf, 0.0
    for gradient, expected in pairs(masked, uniform, labels):
        assert not gradient[0].any()
        torch.testing.assert_close(gradient[1], expected[1])
    masked, almost = logits.clone(), logits.clone()
    masked[0, 9], almost[0, 9] = -torch.inf, -1e4
    finite = [name for name in NUMBER_LOSSES if name != "dist2"]  # whose target has mass on every digit
    for gradient, expected in pairs(masked, almost, labels, finite):
        torch.testing.assert_close(gradient, expected)
        assert gradient[0, 9] == 0
    masked[0, FOUR] = -torch.inf
    for name, loss in LOSSES.items():
        value, _ = loss_and_gradient(loss, masked[:1], labels[:1], DIGITS)
        assert value.isinf() if "cross_entropy" in name or name == "dist2" else value.isfinite()


def test_logits_wider_or_narrower_than_the_vocabulary() -> None:
    """A label in the padding of the logits is text."""
    padded = NumberVocabulary.from_values([*DIGITS.values.tolist(), *[TEXT] * 7])
    logits, labels = random_logits(3, 20), torch.tensor([FOUR, A, -100])
    for name, loss in LOSSES.items():
        wide, _ = loss_and_gradient(loss, logits, labels, DIGITS)
        torch.testing.assert_close(wide, loss(logits, labels, padded), rtol=0, atol=0)
        in_padding, _ = loss_and_gradient(loss, logits, torch.tensor([FOUR, 19, -100]), DIGITS)
        assert in_padding.isfinite()
        if name in NUMBER_LOSSES:
            torch.testing.assert_close(in_padding, loss(logits[:1], labels[:1], DIGITS))
            narrow, _ = loss_and_gradient(loss, logits[:2, :13], torch.tensor([FOUR, 5]), padded)
            torch.testing.assert_close(narrow, loss(logits[:2, :13], torch.tensor([FOUR, 5]), DIGITS))
        if name != "cross_entropy":
            with pytest.raises(ValueError, match="width 7, but the largest number-token id is 7"):
                loss(torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), IRREGULAR)


def test_extreme_logits_a_single_number_token_and_autocast() -> None:
    one, labels = NumberVocabulary.from_values([TEXT, 3.0]), torch.tensor([FOUR, 5, A, -100])
    for name, loss in LOSSES.items():
        for scale in (1e4, 1e38):
            logits = torch.full((2, 13), -scale)
            logits[0, 12], logits[1, A] = scale, scale
            assert loss_and_gradient(loss, logits / 2, torch.tensor([FOUR, FOUR]), DIGITS)[0].isfinite()
        alone, _ = loss_and_gradient(loss, random_logits(2, 2), torch.tensor([1, 1]), one)
        assert alone.isfinite()
        assert alone == 0 or name in TOKEN_LOSSES
        expected = loss(random_logits(4, 13), labels, DIGITS)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(loss(random_logits(4, 13), labels, DIGITS), expected, rtol=0, atol=0)


def test_seventy_thousand_number_tokens_in_float16() -> None:
    vocab = NumberVocabulary.from_values([TEXT, *range(70_000)])
    logits, labels = random_logits(4, 70_001).half(), torch.tensor([1, 50_000, 70_000, 0])
    for name, loss in LOSSES.items():
        if name not in ("ntl_was_squashed", "smmd"):  # a cost matrix and a kernel are K × K
            leaf = logits.clone().requires_grad_()
            each = loss(leaf, labels, vocab, reduction="none")
            each.sum().backward()
            assert each.dtype == torch.float32
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()
            assert leaf.grad[:3].any(-1).all()
            torch.testing.assert_close(
                each.double(), loss(logits.double(), labels, vocab, reduction="none"), rtol=1e-4, atol=1e-6
            )


def test_misuse_is_refused() -> None:
    logits, labels = example((2, 3))
    for name, loss in LOSSES.items():
        with pytest.raises(ValueError, match=r"\(2, 3, 9\), \(2, 2\)"):
            loss(logits, labels[:, :2], IRREGULAR)
        with pytest.raises(ValueError, match="reduction must be"):
            loss(logits, labels, IRREGULAR, reduction="avg")
        for label in (-100, WIDTH) if name in TOKEN_LOSSES else ():
            with pytest.raises(IndexError):
                loss(torch.zeros(1, WIDTH), torch.tensor([label]), IRREGULAR, ignore_index=-1)


# ---- the positions that count


def test_nothing_is_copied_at_full_width() -> None:
    """A number loss keeps no tensor of the size of the logits, and fully labelled logits are not copied."""
    logits = torch.zeros(64, 4096, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        losses.ntl_was(logits, torch.zeros(64, dtype=torch.long), IRREGULAR)
    assert 0 < max(saved) <= 64 * len(IRREGULAR.token_ids)
    assert label_rows(logits, torch.ones(64, dtype=torch.long), -100).logits_NV.data_ptr() == logits.data_ptr()
