"""The Triton kernel: its values in Triton's interpreter, its compilation for two GPUs, and both on a real GPU.

Triton reads TRITON_INTERPRET when it is imported, so the tests in the interpreter need a process with this variable.
`test_the_kernel_in_the_interpreter` starts one.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, IRREGULAR
from torch import Tensor

from ntl.losses import rows
from ntl.losses.fused import plan
from ntl.losses.fused.joint import JointLoss, ce_ntl
from ntl.numbers import NumberVocabulary

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1, see the test that sets it")
compiled = pytest.mark.skipif(INTERPRETED, reason="TRITON_INTERPRET=1: nothing is compiled")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

KINDS: dict[str, dict[str, Any]] = {
    "ce": {},
    "was": {},
    "mse": {},
    "gce": {"sigma": 0.7},
    "gce+was_cdf": {},
    "was_vocab": {"text_cost": 20.0},
    "gce+was_vocab+crps": {},
    "number_level": {},
}
# Half a unit in the last place for each rounding in which the two gradients differ. The expected one is computed in
# float32 and rounded once. The kernel's is rounded when it is stored and when it is multiplied by 3, except for
# float16, whose gradient is stored in float32.
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-6},
    torch.bfloat16: {"rtol": 3 * 2**-8, "atol": 1e-6},
    torch.float16: {"rtol": 2 * 2**-11, "atol": 1e-6},
}


@pytest.mark.slow
@needs_triton
@compiled
def test_the_kernel_in_the_interpreter() -> None:
    """Run the tests below that need TRITON_INTERPRET=1; none of them may be skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "interpreter_", __file__]
    # Without pytest-xdist's variables, with which the new process would take itself for a worker.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, env=kept | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.fixture
def small_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use several blocks per row, the last of which is not full."""
    from ntl.losses.fused import triton_pass

    monkeypatch.setattr(triton_pass, "BLOCK", 4)


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all rows as number rows with a mask, as on a GPU, where selecting them would synchronise with the host."""

    def number_index(labels: Tensor, vocab: NumberVocabulary, ignore_index: int) -> tuple[None, Tensor]:
        return None, rows.is_number(labels, vocab, ignore_index).flatten()

    monkeypatch.setattr(plan, "number_index", number_index)


def batch(vocab: NumberVocabulary, shape: tuple[int, ...], extra: int = 0) -> tuple[Tensor, Tensor]:
    """Return logits (..., V + extra) with -inf at a number token, and labels (...) with ignored rows of NaN."""
    generator = torch.Generator().manual_seed(0)
    width = vocab.values.numel() + extra
    logits = torch.randn(*shape, width, generator=generator) * 3
    labels = torch.randint(0, width, shape, generator=generator)
    flat, flat_labels = logits.view(-1, width), labels.view(-1)
    if len(flat) > 3:
        flat_labels[0], flat_labels[1], flat_labels[2] = vocab.token_ids[0], vocab.token_ids[-1], -100
        flat[2] = torch.nan
        flat[0, vocab.token_ids[1]] = -torch.inf
        flat[3, :5] = -torch.inf  # all of the first block
        flat_labels[3] = vocab.token_ids[-1]
    return logits, labels


def results(
    implementation: str, logits: Tensor, labels: Tensor, vocab: NumberVocabulary, kind: str, **options: Any
) -> tuple[JointLoss, Tensor]:
    """Return the losses and the gradient of 3 · Σ total."""
    leaf = logits.clone().requires_grad_()
    given = leaf * 1 if options.get("inplace") else leaf  # a leaf must not be overwritten
    loss = ce_ntl(given, labels, vocab, kind=kind, implementation=implementation, **options)  # type: ignore[arg-type]
    (3 * loss.total.sum()).backward()
    assert leaf.grad is not None
    return loss, leaf.grad


def check_against_reference(
    logits: Tensor, labels: Tensor, vocab: NumberVocabulary, kind: str, *, inplace: bool = False, **options: Any
) -> None:
    dtype, tolerance = logits.dtype, dict(TOLERANCE[logits.dtype])
    found, gradient = results("triton", logits, labels, vocab, kind, inplace=inplace, **options)
    assert gradient.dtype == dtype
    if options.get("reduction") == "none":  # with "none", the gradient is computed by the reference and bit-identical
        expected, exact = results("reference", logits, labels, vocab, kind, **options)
        tolerance = {"rtol": 0, "atol": 0}
    else:
        expected, exact = results("reference", logits.float(), labels, vocab, kind, **options)
    torch.testing.assert_close(gradient, exact.to(dtype), **tolerance)
    for mine, its in zip(_flat(found), _flat(expected), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-5)


def _flat(loss: JointLoss) -> tuple[Tensor, ...]:
    return (loss.total, *loss.base, *loss.number)


every_kind = pytest.mark.parametrize("kind", KINDS)
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@interpreted
@pytest.mark.usefixtures("small_block")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@every_dtype
@every_kind
def test_interpreter_agrees_with_the_reference(kind: str, dtype: torch.dtype, reduction: str) -> None:
    logits, labels = batch(DIGITS, (2, 3))
    check_against_reference(logits.to(dtype), labels, DIGITS, kind, reduction=reduction, weight=0.7, **KINDS[kind])


@interpreted
@pytest.mark.usefixtures("small_block")
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kind", ["ce", "was", "was_vocab+crps"])
def test_interpreter_with_smoothing_and_weights(kind: str, reduction: str) -> None:
    logits, labels = batch(DIGITS, (2, 3), extra=2)
    logits = logits.clamp(min=-50.0)  # with smoothing, -inf anywhere is an infinite loss
    weights = torch.tensor([[0.5, 2.0, 1.0], [0.0, 0.1, 3.0]])
    for options in ({"label_smoothing": 0.2}, {"loss_weights": weights}):
        check_against_reference(logits, labels, DIGITS, kind, reduction=reduction, **options)
    options = {"label_smoothing": 0.2, "loss_weights": weights}
    check_against_reference(logits.bfloat16(), labels, DIGITS, kind, reduction=reduction, **options)


@interpreted
@pytest.mark.usefixtures("small_block", "as_on_a_gpu")
@pytest.mark.parametrize("reduction", ["mean", "none"])
@every_kind
def test_interpreter_with_every_row_a_number_row(kind: str, reduction: str) -> None:
    logits, labels = batch(IRREGULAR, (2, 4), extra=2)
    check_against_reference(logits, labels, IRREGULAR, kind, reduction=reduction, **KINDS[kind])


@interpreted
@pytest.mark.parametrize("shape", [(1,), (), (0,), (0, 3), (5,)], ids=str)
@pytest.mark.parametrize("kind", ["ce", "gce+was_vocab+crps"])
def test_interpreter_with_odd_shapes_in_one_block(kind: str, shape: tuple[int, ...]) -> None:
    logits, labels = batch(IRREGULAR, shape, extra=3)
    check_against_reference(logits, labels, IRREGULAR, kind)


@interpreted
@pytest.mark.parametrize("extra", [-13 + 4096, -13 + 4097])
def test_interpreter_at_the_edge_of_a_real_block(extra: int) -> None:
    logits, labels = batch(DIGITS, (4,), extra=extra)
    check_against_reference(logits, labels, DIGITS, "was")


@interpreted
@pytest.mark.usefixtures("small_block")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["ce", "was", "gce+was_vocab+crps"])
def test_interpreter_in_place(kind: str, dtype: torch.dtype) -> None:
    logits, labels = batch(IRREGULAR, (2, 3))
    check_against_reference(logits.to(dtype), labels, IRREGULAR, kind, inplace=True)


@interpreted
def test_interpreter_with_logits_that_are_not_contiguous() -> None:
    logits, labels = batch(DIGITS, (6,))
    check_against_reference(logits.t().contiguous().t(), labels, DIGITS, "was")
    check_against_reference(logits[:, :14][::2], labels[::2], DIGITS, "was")


@interpreted
def test_interpreter_ignores_all_rows() -> None:
    logits, labels = torch.full((2, 13), torch.nan), torch.full((2,), -100)
    loss, gradient = results("triton", logits, labels, DIGITS, "was")
    assert loss.total == 0
    assert torch.equal(gradient, torch.zeros(2, 13))


@interpreted
@pytest.mark.parametrize("label", [13, 10**6, -1])
def test_interpreter_makes_a_label_that_is_no_token_nan(label: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "check_labels", lambda *_: None)
    loss, _ = results("triton", torch.zeros(2, 13), torch.tensor([3, label]), DIGITS, "ce")
    assert loss.total.isnan()


@interpreted
def test_interpreter_without_a_gradient() -> None:
    logits, labels = batch(DIGITS, (6,))
    loss = ce_ntl(logits, labels, DIGITS, implementation="triton")
    torch.testing.assert_close(loss.total, ce_ntl(logits, labels, DIGITS, implementation="reference").total)


@compiled
def test_a_cpu_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="needs logits on a CUDA device, not on cpu; take 'fused'"):
        ce_ntl(torch.zeros(1, 13), torch.tensor([3]), DIGITS, implementation="triton")


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "ntl.losses.fused.triton_pass", raising=False)
    with pytest.raises(ValueError, match="needs the package triton: install it, or take 'fused'"):
        ce_ntl(torch.zeros(1, 13), torch.tensor([3]), DIGITS, implementation="triton")


def test_float64_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(ValueError, match="computes in float32: take 'fused' for "):
        ce_ntl(torch.zeros(1, 13).double(), torch.tensor([3]), DIGITS, implementation="triton")


def test_auto_is_not_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setitem(sys.modules, "ntl.losses.fused.triton_pass", None)
    assert ce_ntl(torch.zeros(1, 13), torch.tensor([3]), DIGITS).total.isfinite()


@needs_triton
@compiled
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("element", "stored"), [("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp32")])
def test_the_kernel_compiles_without_a_gpu(element: str, stored: str, capability: int) -> None:
    """With all of its optional arguments, and with none."""
    import triton  # pyright: ignore[reportMissingImports]
    from triton.backends.compiler import GPUTarget  # pyright: ignore[reportMissingImports]
    from triton.compiler import ASTSource  # pyright: ignore[reportMissingImports]

    from ntl.losses.fused.triton_pass import BLOCK, WARPS, row_kernel

    optional = {"counted": "*i1", "is_soft": "*i1"}
    optional |= dict.fromkeys(("patch", "excess", "soft", "soft_top", "weights"), "*fp32")
    signature = {"logits": f"*{element}", "gradient": f"*{stored}", "labels": "*i64", "token_ids": "*i64"}
    signature |= dict.fromkeys(("base_scale", "number_scale", "base_losses", "tops", "rests"), "*fp32")
    signature |= {"smoothing": "fp32"}
    signature |= dict.fromkeys(("V", "K", "logits_stride", "gradient_stride"), "i32")
    sizes = {"BLOCK": BLOCK, "BLOCK_K": 16}
    for given, left_out in ((optional, {"SMOOTH": True}), ({}, {**dict.fromkeys(optional), "SMOOTH": False})):
        constants = sizes | left_out
        types = signature | given | dict.fromkeys(constants, "constexpr")
        source = ASTSource(row_kernel, {name: types[name] for name in row_kernel.arg_names}, constants)
        done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": WARPS})
        assert f"sm_{capability}" in done.asm["ptx"]
        assert done.asm["cubin"]


@pytest.fixture
def without_waiting() -> Iterator[Callable[[], None]]:
    """Return a function that makes every synchronisation with the GPU an error until the test ends."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@needs_triton
@needs_gpu
@pytest.mark.parametrize("inplace", [False, True])
@every_kind
def test_cuda_agrees_with_the_reference(kind: str, inplace: bool, without_waiting: Callable[[], None]) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(4096, 50257, device="cuda", generator=generator).to(torch.bfloat16)
    labels = torch.randint(0, 50257, (4096,), device="cuda", generator=generator)
    labels[::2] = labels[::2] % 10 + 3
    labels[::7], logits[::7] = -100, torch.nan
    vocab = DIGITS.to("cuda")
    # The sum, because the gradient of the mean would be below the absolute tolerance. Without options that are Python
    # numbers, because copying them to the GPU synchronises with the host.
    check_against_reference(logits, labels, vocab, kind, inplace=inplace, reduction="sum")
    leaf = logits.requires_grad_()
    without_waiting()
    ce_ntl(leaf, labels, vocab, kind=kind, implementation="triton").total.backward()
