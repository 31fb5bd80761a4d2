"""What holds for every loss: shapes, types, reductions, gradients, errors."""

import functools
import os
import subprocess
import sys

import pytest
import torch
from loss_cases import IRREGULAR, LOSSES, NUMBER_LOSSES, TOKEN_LOSSES
from torch import Tensor

import ntl.losses
from ntl import losses
from ntl.losses import count_labels, count_number_labels
from ntl.losses.rows import label_rows

SHAPES = [(), (1,), (7,), (2, 3), (3, 1, 5), (0,), (2, 0)]
TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WIDTH = 9


def example(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits that require a gradient, and labels of all kinds: numbers, text, ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, WIDTH, generator=generator, dtype=torch.float64).mul(2).to(dtype).requires_grad_()
    labels = torch.randint(0, WIDTH, shape, generator=generator)
    return logits, labels.masked_fill(torch.rand(shape, generator=generator) < 0.2, -100)


def denominator(name: str, labels: Tensor) -> int:
    count = losses.count_number_labels if name in NUMBER_LOSSES else losses.count_labels
    return max(int(count(labels, IRREGULAR)), 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_types_shapes_and_reductions(name: str, dtype: torch.dtype, shape: tuple[int, ...]):
    loss, (logits, labels) = LOSSES[name], example(shape, dtype)
    each, total, mean = (loss(logits, labels, IRREGULAR, reduction=how) for how in ("none", "sum", "mean"))

    assert each.shape == labels.shape
    assert total.shape == mean.shape == ()
    assert each.dtype == total.dtype == mean.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(each.sum(), total)
    torch.testing.assert_close(mean * denominator(name, labels), total)

    (gradient,) = torch.autograd.grad(total, logits)
    assert gradient.dtype == dtype
    assert gradient.isfinite().all()

    exact_logits = logits.detach().double().requires_grad_()
    exact = loss(exact_logits, labels, IRREGULAR, reduction="sum")
    torch.testing.assert_close(total.double(), exact, rtol=1e-5, atol=1e-5)
    (exact_gradient,) = torch.autograd.grad(exact, exact_logits)
    precision = max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=precision, atol=20 * precision)


@pytest.mark.parametrize("name", LOSSES)
def test_each_position_is_scored_by_itself(name: str):
    logits, labels = example((4, 5))
    counted = (labels != -100) & (~IRREGULAR.values[labels.clamp(min=0)].isnan() | (name in TOKEN_LOSSES))
    each = LOSSES[name](logits, labels, IRREGULAR, reduction="none")
    assert counted.any()
    assert not counted.all()
    assert not each[~counted].any()
    for row, column in counted.nonzero().tolist():
        alone = LOSSES[name](logits[row, column], labels[row, column], IRREGULAR)
        torch.testing.assert_close(alone, each[row, column])


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_right(name: str):
    logits, labels = example((2, 4), seed=1)
    for how in ("mean", "none"):
        loss = functools.partial(LOSSES[name], labels=labels, number_vocab=IRREGULAR, reduction=how)
        assert torch.autograd.gradcheck(loss, (logits,))


@pytest.mark.parametrize("name", NUMBER_LOSSES)
def test_a_number_loss_moves_number_logits_at_number_labels_only(name: str):
    logits, labels = example((3, 6))
    logits.grad = None
    NUMBER_LOSSES[name](logits, labels, IRREGULAR).backward()
    assert logits.grad is not None
    touched = logits.grad != 0
    is_number = ~IRREGULAR.values.isnan()
    assert not touched[..., ~is_number].any()
    assert not touched[~torch.isin(labels, IRREGULAR.token_ids)].any()
    assert touched.any()


@pytest.mark.parametrize("name", LOSSES)
def test_non_contiguous_logits_and_other_label_types(name: str):
    logits, labels = example((3, 6))
    expected = LOSSES[name](logits[:, :-1].contiguous(), labels[:, 1:].contiguous(), IRREGULAR)
    torch.testing.assert_close(LOSSES[name](logits[:, :-1], labels[:, 1:], IRREGULAR), expected)
    torch.testing.assert_close(LOSSES[name](logits[:, :-1], labels[:, 1:].int(), IRREGULAR), expected)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("ignore_index", [-1, 0, 1])
def test_another_ignore_index(name: str, ignore_index: int):
    logits, labels = example((3, 6))
    expected = LOSSES[name](logits, labels.masked_fill(labels == ignore_index, -100), IRREGULAR)
    moved = labels.masked_fill(labels == -100, ignore_index)
    torch.testing.assert_close(LOSSES[name](logits, moved, IRREGULAR, ignore_index=ignore_index), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_misuse_is_refused(name: str):
    logits, labels = example((2, 3))
    with pytest.raises(ValueError, match=r"\(2, 3, 9\), \(2, 2\)"):
        LOSSES[name](logits, labels[:, :2], IRREGULAR)
    with pytest.raises(ValueError, match="reduction must be"):
        LOSSES[name](logits, labels, IRREGULAR, reduction="avg")


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "cross_entropy"])
def test_logits_narrower_than_the_number_vocabulary(name: str):
    with pytest.raises(ValueError, match="width 7, but the largest number-token id is 7"):
        LOSSES[name](torch.zeros(2, 7), torch.zeros(2, dtype=torch.long), IRREGULAR)


@pytest.mark.parametrize("name", TOKEN_LOSSES)
def test_a_label_outside_the_vocabulary_is_an_error(name: str):
    for label in (-100, WIDTH):
        with pytest.raises(IndexError):
            TOKEN_LOSSES[name](torch.zeros(1, WIDTH), torch.tensor([label]), IRREGULAR, ignore_index=-1)


def test_cross_entropy_needs_no_number_vocabulary():
    logits, labels = example((3, 6))
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(losses.cross_entropy(logits, labels), expected)


def test_nothing_is_copied_at_full_width_for_a_number_loss():
    # The gradient of a number loss is the only tensor of the size of the logits.
    logits = torch.zeros(64, 4096, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.numel()) or x, lambda x: x):
        losses.ntl_was(logits, torch.zeros(64, dtype=torch.long), IRREGULAR)
    assert 0 < max(saved) <= 64 * len(IRREGULAR.token_ids)


def test_every_export_is_a_function_whatever_was_imported_before():
    for _ in range(2):
        for name in ntl.losses.__all__:
            assert getattr(ntl.losses, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_loss"):
        _ = ntl.losses.no_such_loss


def test_the_package_alone_imports_no_torch_and_any_export_can_come_first():
    code = "import sys, ntl.losses; print('torch' in sys.modules); from ntl.losses import linear_ce_ntl"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True).strip() == "False"


# ---- the positions that count

LABELS = torch.tensor([[0, 1, 2, -100], [8, 7, -100, -100], [500, -7, 5, 3]])


def test_counts():
    assert count_labels(LABELS).item() == count_labels(LABELS, IRREGULAR).item() == 9
    assert count_number_labels(LABELS, IRREGULAR).item() == 5


def test_an_ignored_number_does_not_count():
    assert count_number_labels(LABELS, IRREGULAR, ignore_index=0).item() == 4
    assert count_labels(LABELS, ignore_index=0).item() == 11


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_no_labels(shape: tuple[int, ...]):
    labels = torch.zeros(shape, dtype=torch.long)
    assert count_labels(labels).item() == count_number_labels(labels, IRREGULAR).item() == 0


def test_fully_labelled_logits_are_not_copied():
    logits = torch.zeros(2, 3, 9)
    labels = torch.ones(2, 3, dtype=torch.long)
    assert label_rows(logits, labels, -100).logits_NV.data_ptr() == logits.data_ptr()
    labels[0, 0] = -100
    assert label_rows(logits, labels, -100).logits_NV.shape == (5, 9)
