"""Every loss against its definition in float64, position by position, on any batch, type, mask and reduction."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import DIGITS, IRREGULAR, LOSSES, NUMBER_LOSSES, TEXT, TOKEN_LOSSES, WIDE
from torch import Tensor

from ntl import losses
from ntl.losses import count_labels, count_number_labels
from ntl.losses.rows import label_rows
from ntl.numbers import NumberVocabulary


def position(logits: Tensor, label: int, vocab: NumberVocabulary) -> Any:
    """What the definitions name, of logits (V,) in float64 and a label; without a number no definition reads ``at``."""
    values, own = vocab.token_values.double(), logits[vocab.token_ids]
    is_number = label in vocab.token_ids
    at = vocab.token_ids.tolist().index(label) if is_number else 0
    # Over the number tokens alone; uniform and without a gradient where all of them are -inf.
    log_q = (torch.zeros_like(own) if own.isneginf().all() else own).log_softmax(-1)
    known = {"values": values, "ids": vocab.token_ids, "at": at, "label": label, "is_number": is_number}
    known |= {"log_q": log_q, "q": log_q.exp(), "log_p": logits.log_softmax(-1)}
    return SimpleNamespace(**known, error=log_q.exp() @ values - values[at], distances=(values - values[at]).abs())


def near(p: Any, width: float) -> Tensor:
    """Shares that fall off with the squared distance."""
    return (-p.distances.square() / width).softmax(-1)


def wasserstein(one: Tensor, other: Tensor, values: Tensor) -> Tensor:
    order = values.argsort()
    gaps = values[order].diff()
    return ((one - other)[order].cumsum(0)[:-1].abs() * gaps).sum()


def expected(shares: Tensor, log_p: Tensor) -> Tensor:
    """The cross-entropy, in which no share times minus infinity is 0."""
    return -(shares * log_p.masked_fill(shares == 0, 0.0)).sum()


def huber(error: Tensor, delta: float) -> Tensor:
    return error**2 / 2 if error.abs() <= delta else delta * (error.abs() - delta / 2)


def spread(p: Any) -> Tensor:
    return p.q @ (p.values[:, None] - p.values).abs() @ p.q


def maximum_mean_discrepancy(p: Any) -> Tensor:
    distances = (p.values[:, None] - p.values).abs()
    kernel = (-0.5 * (losses.squashed_cost(p.values, 9.0).where(distances > 0, 0.0) / 2) ** 2).exp()
    residual = p.q - torch.eye(len(p.q), dtype=torch.float64)[p.at]
    share = 0.5 / kernel.sum(-1).mean()
    return (1 - share) * (residual @ kernel @ residual) + share * (kernel.sum(-1) * residual**2).sum()


def gaussian_cross_entropy(p: Any, sigma: float) -> Tensor:
    return expected(near(p, 2 * sigma**2), p.log_p[p.ids]) if p.is_number else -p.log_p[p.label]


DEFINITIONS: dict[str, Callable[[Any], Tensor]] = {
    "digit_cross_entropy": lambda p: -p.log_q[p.at],
    "ntl_mse": lambda p: p.error**2,
    "ntl_mae": lambda p: p.error.abs(),
    "ntl_huber": lambda p: huber(p.error, 1.0),
    "ntl_huber_2": lambda p: huber(p.error, 2.0),
    "ntl_was": lambda p: p.q @ p.distances,
    "ntl_was_squashed": lambda p: p.q @ losses.squashed_cost(p.values.float(), 3.0)[p.at].double(),
    "ntl_was_cdf": lambda p: p.q @ p.distances,
    "ntl_was_cdf_sigma": lambda p: wasserstein(p.q, near(p, 2 * 1.5**2), p.values),
    "ntl_crps": lambda p: p.q @ p.distances - spread(p) / 2,
    "smmd": maximum_mean_discrepancy,
    "dist2": lambda p: expected(near(p, 1.0), p.log_q) - expected(near(p, 1.0), near(p, 1.0).log()),
    "cross_entropy": lambda p: -p.log_p[p.label],
    "gaussian_cross_entropy": lambda p: gaussian_cross_entropy(p, 1.0),
    "gaussian_cross_entropy_2": lambda p: gaussian_cross_entropy(p, 2.0),
}
ONE = NumberVocabulary.from_values([TEXT, TEXT, 3.0])
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def random_logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=40)
@given(
    shape=st.sampled_from([(2, 3), (), (1,), (7,), (3, 1, 5), (0,), (2, 0)]),
    dtype=st.sampled_from(TYPES),
    vocab=st.sampled_from([DIGITS, IRREGULAR, ONE, WIDE]),
    padding=st.sampled_from([0, 4]),
    ignore_index=st.sampled_from([-100, -1, 0, 1]),
    poison=st.sampled_from([math.nan, math.inf, -math.inf]),
    masked=st.sampled_from(["none", "one", "all"]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_the_definitions(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    vocab: NumberVocabulary,
    padding: int,
    ignore_index: int,
    poison: float,
    masked: str,
    seed: int,
) -> None:
    """Whatever stands where nothing counts, and where number tokens cannot come; labels may be in the padding."""
    dtype = torch.float64 if vocab is WIDE else dtype  # others cannot hold the squares of its values
    width, generator = len(vocab.values) + padding, torch.Generator().manual_seed(seed)
    labels = torch.randint(0, width, shape, generator=generator)
    labels = labels.masked_fill(torch.rand(shape, generator=generator) < 0.2, ignore_index)
    logits = (2 * random_logits(*shape, width, seed=seed)).to(dtype)
    values = torch.cat([vocab.values, torch.full((padding,), math.nan)])
    counted = labels != ignore_index
    numbers = counted & ~values[labels.clamp(min=0)].isnan()
    own = vocab.token_ids[: {"none": 0, "one": 1, "all": None}[masked]]
    for name, loss in LOSSES.items():
        counts = numbers if name in NUMBER_LOSSES else counted
        leaf = logits.clone()
        if name in NUMBER_LOSSES:
            leaf[..., own] = -math.inf
        leaf = leaf.masked_fill(~counts.unsqueeze(-1), poison).requires_grad_()
        each, total, mean = (loss(leaf, labels, vocab, reduction=how, ignore_index=ignore_index)
                             for how in ("none", "sum", "mean"))  # fmt: skip
        assert (each.shape, total.shape, mean.shape) == (labels.shape, (), ())
        assert each.dtype == total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(mean * max(int(counts.sum()), 1), total)

        exact = leaf.detach().double().requires_grad_()
        rows = [position(exact[tuple(at)], int(labels[tuple(at)]), vocab) for at in counts.nonzero().tolist()]
        by_definition = [DEFINITIONS[name](row) for row in rows]
        assert not each[~counts].any()
        wanted = torch.stack(by_definition) if rows else exact.new_zeros(0)
        close = {"rtol": 1e-9, "atol": 1e-9 * (1 + float(vocab.token_values.abs().max()))}
        close = close if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(each[counts].double(), wanted.detach(), **close)
        if wanted.isinf().any():
            continue
        (gradient,) = torch.autograd.grad(total, leaf)
        assert gradient.dtype == dtype
        slopes = (
            torch.autograd.grad(wanted.sum(), exact)[0] if wanted.requires_grad and rows else torch.zeros_like(exact)
        )
        assert not gradient[~counts].any()
        if name in NUMBER_LOSSES:
            assert not gradient[..., values.isnan()].any()
        rounding = max(torch.finfo(dtype).eps, 1e-6)
        largest = max(float(slopes.nan_to_num().abs().max()) if slopes.numel() else 0.0, 1.0)
        found, slopes = gradient.double()[counts], slopes[counts].nan_to_num()
        torch.testing.assert_close(found, slopes, rtol=rounding, atol=20 * rounding * largest)


def test_extreme_logits_and_autocast() -> None:
    four, labels = 7, torch.tensor([7, 5, 1, -100])
    for loss in LOSSES.values():
        for scale in (1e4, 1e38):
            logits = torch.full((2, 13), -scale)
            logits[0, 12], logits[1, 1] = scale, scale
            leaf = (logits / 2).requires_grad_()
            value = loss(leaf, torch.tensor([four, four]), DIGITS)
            assert value.isfinite()
            assert torch.autograd.grad(value, leaf)[0].isfinite().all()
        given = random_logits(4, 13).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = loss(given, labels, DIGITS)
        torch.testing.assert_close(found, loss(given, labels, DIGITS), rtol=0, atol=0)


def test_seventy_thousand_number_tokens_in_float16() -> None:
    vocab = NumberVocabulary.from_values([TEXT, *range(70_000)])
    logits, labels = random_logits(4, 70_001).half(), torch.tensor([1, 50_000, 70_000, 0])
    for name, loss in LOSSES.items():
        if name not in ("ntl_was_squashed", "smmd"):  # a cost matrix and a kernel are K × K
            leaf = logits.clone().requires_grad_()
            each = loss(leaf, labels, vocab, reduction="none")
            each.sum().backward()
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()
            assert leaf.grad[:3].any(-1).all()
            expected = loss(logits.double(), labels, vocab, reduction="none")
            torch.testing.assert_close(each.double(), expected, rtol=1e-4, atol=1e-6)


def test_nothing_is_copied_at_full_width() -> None:
    """A number loss keeps no tensor of the size of the logits, and fully labelled logits are not copied."""
    logits = torch.zeros(64, 4096, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        losses.ntl_was(logits, torch.zeros(64, dtype=torch.long), IRREGULAR)
    assert 0 < max(saved) <= 64 * len(IRREGULAR.token_ids)
    assert label_rows(logits, torch.ones(64, dtype=torch.long), -100).logits_NV.data_ptr() == logits.data_ptr()


def test_the_denominators_of_a_mean() -> None:
    labels = torch.tensor([[0, 3, -100], [1, 2, 9]])
    assert (int(count_labels(labels)), int(count_number_labels(labels, DIGITS))) == (5, 2)
    assert TOKEN_LOSSES.keys() | NUMBER_LOSSES.keys() == DEFINITIONS.keys()
