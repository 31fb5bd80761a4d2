"""The Triton kernels: right by the interpreter, on a CPU, compiled for three families of GPUs, and chosen."""

import csv
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, KINDS, TOLERANCE, WIDTH, assert_same, batch, options_of, value_and_gradients
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ntl import NumberTokenLoss, losses
from ntl.benchmarks.losses import Setting, benchmark
from ntl.config import UserError
from ntl.config.loss import NextTokenConfig
from ntl.losses import ce_ntl, joint, linear_ce_ntl
from ntl.losses.registry import Terms, kinds
from ntl.losses.sums import SumCount
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken

if platform.system() != "Linux":
    pytest.skip("Triton has no wheel here", allow_module_level=True)

interpreted = pytest.mark.skipif("TRITON_INTERPRET" not in os.environ, reason="kernels are compiled for the GPU here")
Launch = tuple[str, tuple[int, ...], torch.dtype, torch.dtype]
FAST = [kind for kind in sorted({*kinds(), *KINDS}) if kind != "emo"]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """The kernels that ran: name, shape of the logits, type of the logits and of what is written."""
    kernel, found = joint.triton_kernel(None), []
    launch = kernel.launch

    def counting(each: Any, logits: Tensor, out: Tensor, *given: Any) -> None:
        found.append((each.__name__, tuple(logits.shape), logits.dtype, out.dtype))
        launch(each, logits, out, *given)

    monkeypatch.setattr(kernel, "launch", counting)
    return found


def computed(
    how: str, logits: Tensor, labels: Tensor, vocab: NumberVocabulary = DIGITS, upstream: float = 1.7, **options: Any
) -> Any:
    def loss(x: Tensor) -> Any:
        return ce_ntl(x, labels, vocab, implementation=how, **options)

    return value_and_gradients(loss, logits, upstream=upstream)


def of_hidden(how: str, hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor, **options: Any) -> Any:
    def loss(hidden: Tensor, weight: Tensor, bias: Tensor) -> Any:
        head: dict[str, Any] = {"bias": bias, "logit_scale": 0.7, "softcap": 3.0, "implementation": how}
        return linear_ce_ntl(hidden, weight, labels, DIGITS.to(labels.device), **head, **options)

    return value_and_gradients(loss, hidden, weight, bias)


def exact(function: Callable[..., Any], *tensors: Tensor, **options: Any) -> Any:
    """Return loss and gradients by the reference in float64, in the types of the given tensors."""
    found, gradients = function("reference", *(each.double().cpu() for each in tensors), **options)
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    terms = [(each.sum.to(dtype), each.count) for each in (found.base, found.number)]
    terms = [SumCount(total, count.to(dtype) if count.is_floating_point() else count) for total, count in terms]
    gradients = [each.to(tensor.dtype) for each, tensor in zip(gradients, tensors, strict=True)]
    return found._replace(total=found.total.to(dtype), base=terms[0], number=terms[1]), gradients


def hidden_of() -> list[Tensor]:
    """Return hidden states, weight and bias."""
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(*size, generator=generator) for size in ((2, 4, 7), (WIDTH, 7), (WIDTH,))]


@interpreted
@pytest.mark.parametrize("kind", FAST)
def test_every_kind(kind: str, launched: list[Launch]) -> None:
    """From logits and from hidden states, with smoothing and weights; the same in a second run."""
    logits, labels = batch((2, 4), torch.float32)
    how = options_of(kind, labels, smoothing=True, weights=True) if kind in KINDS else {"kind": kind}
    found = computed("triton", logits, labels=labels, inplace=True, **how)
    assert [name for name, *_ in launched] == ["statistics", "gradient"]
    assert_same(found, exact(computed, logits, labels=labels, **how), TOLERANCE[torch.float32])
    again = computed("triton", logits, labels=labels, **how)
    assert torch.equal(found[0].total, again[0].total)
    assert torch.equal(found[1][0], again[1][0])
    launched.clear()
    found = of_hidden("triton", *hidden_of(), labels=labels, **how)
    assert [name for name, *_ in launched][-2:] == ["statistics", "gradient"]
    assert_same(found, exact(of_hidden, *hidden_of(), labels=labels, **how), TOLERANCE[torch.float32])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["was", "was_vocab", "gce"])
def test_on_a_gpu(kind: str, launched: list[Launch]) -> None:
    """Where there is one the kernels are compiled."""
    logits, labels = batch((2, 4), torch.float32)
    on_gpu = {"labels": labels.cuda(), "kind": kind}
    found = computed("triton", logits.cuda(), vocab=DIGITS.to("cuda"), **on_gpu)
    expected = exact(computed, logits, labels=labels, kind=kind)
    torch.testing.assert_close(found[0].total.cpu(), expected[0].total, rtol=1e-5, atol=0)
    torch.testing.assert_close(found[1][0].cpu(), expected[1][0], rtol=1e-4, atol=1e-6)
    found = of_hidden("triton", *(each.cuda() for each in hidden_of()), **on_gpu)
    expected = exact(of_hidden, *hidden_of(), labels=labels, kind=kind)
    for gradient, wanted in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(gradient.cpu(), wanted, rtol=1e-4, atol=1e-5)
    assert {name for name, *_ in launched} == {"statistics", "gradient"}


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FAST)
def test_nothing_waits_for_the_host(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = joint.triton_kernel(None)
    if kernel.INTERPRETED:  # on the simulated GPU, where a launch is a loop on the host
        monkeypatch.setattr(kernel, "launch", lambda *_: None)
    logits, labels = batch((2, 4), torch.float32)
    leaf, labels, vocab = logits.cuda().requires_grad_(), labels.cuda(), DIGITS.to("cuda")
    terms, before = Terms.of(kind, 0.3, KINDS.get(kind, {})), torch.cuda.get_sync_debug_mode()
    for mode in (before, "error"):  # what is made once may wait
        torch.cuda.set_sync_debug_mode(mode)
        try:
            ce_ntl(leaf, labels, vocab, kind=terms, implementation="triton").total.backward()
        finally:
            torch.cuda.set_sync_debug_mode(before)


@interpreted
@pytest.mark.parametrize("ignored", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("width", [1, 10, 1000, 32_129])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_types_and_widths(dtype: torch.dtype, width: int, ignored: float, launched: list[Launch]) -> None:
    """Logits of ignored rows are not read: they are NaN."""
    generator = torch.Generator().manual_seed(0)
    values = torch.full((width,), torch.nan)
    values[:: max(width // 8, 1)] = torch.arange(len(values[:: max(width // 8, 1)]), dtype=torch.float32)
    vocab = NumberVocabulary.from_values(values)
    logits = (3 * torch.randn(4, width, generator=generator)).to(dtype)
    labels = vocab.token_ids[torch.arange(4) % len(vocab.token_ids)]
    labels[0] = width - 1
    labels[: round(4 * ignored)] = -100
    logits[labels == -100] = torch.nan
    for kind in ("was", "was_vocab"):
        expected = exact(computed, logits, labels=labels, vocab=vocab, kind=kind)
        found = computed("triton", logits, labels=labels, vocab=vocab, kind=kind)
        assert_same(found, expected, TOLERANCE[dtype])
    assert {each[1:] for each in launched} == {((4, width), dtype, dtype)}


@interpreted
def test_backward_passes_are_scaled_before_they_are_rounded_and_repeated(launched: list[Launch]) -> None:
    """As with a GradScaler: float16 cannot represent the gradient of a mean over many rows."""
    logits, labels = batch((6,), torch.float16)
    given = {"base_count": 2.0**18, "number_count": 2.0**18}
    expected = exact(computed, logits, labels=labels, upstream=2.0**17, **given)[1][0]
    for inplace in (False, True):
        leaf = logits.clone().requires_grad_()
        total = ce_ntl(leaf.view_as(leaf), labels, DIGITS, implementation="triton", inplace=inplace, **given).total
        with pytest.raises(RuntimeError, match="have no second derivative; take 'reference'"):
            torch.autograd.grad(total, leaf, create_graph=True)
        first = torch.autograd.grad(total, leaf, torch.tensor(2.0**17), retain_graph=True)[0]
        (total * 2.0**17).backward()
        assert leaf.grad is not None
        assert torch.equal(first, leaf.grad)
        torch.testing.assert_close(first, expected, rtol=2e-3, atol=1e-7)
        assert (leaf.grad.data_ptr() == leaf.data_ptr()) == inplace


@interpreted
def test_what_was_saved_does_not_silently_change_in_place() -> None:
    logits, labels = batch((6,), torch.float32)
    before = logits.requires_grad_().view_as(logits).clone()
    activation = before.tanh()  # its gradient reads its own result
    total = ce_ntl(activation, labels, DIGITS, implementation="triton", inplace=True).total
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


@interpreted
def test_padded_rows_unlikely_labels_and_masked_logits() -> None:
    for kind in ("was", "gce", "was_vocab"):
        logits, labels = batch((7,), torch.float32, ignored=0.0)
        logits += 3e4  # float32 has three decimals here
        logits[0, labels[0]] -= 120.0
        logits[1, 0] = logits[2, 1] = -torch.inf
        labels[1:3] = 5
        wide = torch.full((7, 2 * WIDTH), torch.nan)
        wide[:, :WIDTH] = logits
        found = computed("triton", logits, labels, kind=kind)
        assert_same(found, exact(computed, logits, labels=labels, kind=kind), 1e-6)
        view = wide[:, :WIDTH].detach().requires_grad_()
        total = ce_ntl(view, labels, DIGITS, kind=kind, implementation="triton").total
        torch.testing.assert_close(total, found[0].total)
        total.backward()
        assert view.grad is not None
        assert view.grad.isfinite().all()
    labels[1:3] = torch.tensor([0, 1])  # masked
    assert ce_ntl(logits, labels, DIGITS, implementation="triton").total == torch.inf


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_and_a_gradient_scaler(dtype: torch.dtype, launched: list[Launch]) -> None:
    labels, updated = batch((2, 6))[1], []
    for how, enabled in (("triton", True), ("reference", False)):
        hidden, weight = torch.randn(2, 6, 7, generator=torch.Generator().manual_seed(0)), torch.ones(WIDTH, 7)
        weight = (weight * torch.linspace(-1, 1, WIDTH).unsqueeze(1)).requires_grad_()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=enabled)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            total = linear_ce_ntl(hidden, weight, labels, DIGITS, implementation=how).total
        scaler.scale(total).backward()
        scaler.step(optimizer)
        updated.append(weight.detach())
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(*updated, rtol=tolerance, atol=tolerance)
    assert {each[2] for each in launched} == {dtype}  # a chunk is never converted


# ---- compiled, refused, chosen

COMPILE = """
import json, re, subprocess, sys
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from ntl.losses import kernel
from ntl.losses.fast import Rows

found = []
for capability, numbers, kind in ((80, 16, "bf16"), (90, 16, "bf16"), (100, 16, "bf16"), (90, 2048, "fp32")):
    for each in (kernel.statistics, kernel.gradient):
        columns = dict.fromkeys(Rows._fields, "*fp32") | {"labels": "*i64", "counted": "*i1"}
        types = {"logits": "*" + kind, "out": "*" + kind, "rows": Rows(**columns), "token_ids": "*i64"}
        types |= dict.fromkeys(("stride", "out_stride", "width", "numbers", "masses"), "i32")
        constants = {"scale": 0.5, "cap": 30.0, "smoothing": 0.1, "BLOCK": kernel.MAX_BLOCK, "NUMBERS": numbers}
        places = {(len(types) + place,): value for place, value in enumerate(constants.values())}
        types |= dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn=each, signature=types, constexprs=places)
        options = {"num_warps": kernel.warps(kernel.MAX_BLOCK)}
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        (chip,) = re.findall(r"^\\.target (\\w+)", made.asm["ptx"], re.MULTILINE)
        Path("kernel.ptx").write_text(made.asm["ptx"])
        command = [get_ptxas(capability).path, "-v", f"--gpu-name={chip}", "kernel.ptx", "-o", "kernel.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        spilled = sum(map(int, re.findall(r"(\\d+) bytes spill", told)))
        found.append([each.__name__, chip, made.metadata.shared, spilled, "registers" in told])
print(json.dumps(found))
"""


def test_compiled_without_a_gpu(tmp_path: Any) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "compile_kernels.py").write_text(COMPILE)  # Triton reads sources from files
    command = [sys.executable, "compile_kernels.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {chip for _, chip, *_ in found} == {"sm_80", "sm_90a", "sm_100a"}
    assert len(found) == 8
    for name, chip, shared, spilled, is_report in found:
        assert is_report
        assert (spilled, shared <= 48 << 10) == (0, True), (name, chip)


@interpreted
def test_what_cannot_be_computed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = batch((6,), torch.float32)
    kernel = joint.triton_kernel(None)
    setting = Setting(batch=1, length=2, vocab=20)
    rounds = list(benchmark(setting, ["ntl_was"], ["triton"], 2))
    assert {row["loss"] for row in rounds} == {"ce", "ntl_was triton"}
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    with pytest.raises(UserError, match="--implementations triton: "):
        next(benchmark(setting, ["ntl_was"], ["triton"], 2))
    with pytest.raises(ValueError, match="computes on a GPU, not on a cpu: take 'fused'"):
        ce_ntl(logits, labels, DIGITS, implementation="triton")
    NumberTokenLoss(DIGITS, shift=False, implementation="triton")  # made here, and moved later
    with pytest.raises(ValueError, match="are for the kinds"):
        ce_ntl(logits, labels, DIGITS, kind="emo", embedding=torch.zeros(WIDTH, 7), implementation="triton")
    monkeypatch.delattr(losses, "kernel")
    monkeypatch.setitem(sys.modules, "ntl.losses.kernel", None)
    for call in (
        lambda: ce_ntl(logits, labels, DIGITS, implementation="triton"),
        lambda: NumberTokenLoss(DIGITS, shift=False, implementation="triton"),
    ):
        with pytest.raises(ValueError, match="needs the package triton") as caught:
            call()
        assert "\n" not in str(caught.value)


@interpreted
def test_a_training_runs_them_or_says_in_one_line_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, launched: list[Launch]
) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WIDTH, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    loss = NumberTokenLoss(DIGITS, shift=False, implementation="triton")
    objective = NextToken(NextTokenConfig(), model=model, loss=loss, implementation="triton").train()
    labels = torch.tensor([[1, 5, 2]])
    objective(labels, torch.tensor([3.0, 1.0]), input_ids=labels).total.backward()
    assert [name for name, *_ in launched] == ["statistics", "gradient"]
    monkeypatch.setattr(joint.triton_kernel(None), "INTERPRETED", False)
    with pytest.raises(UserError, match=r"^loss\.implementation='triton' computes on a GPU, not on a cpu"):
        objective(labels, torch.tensor([3.0, 1.0]), input_ids=labels)


@interpreted
def test_auto_takes_them_on_a_family_that_was_timed(
    monkeypatch: pytest.MonkeyPatch, launched: list[Launch], recwarn: pytest.WarningsRecorder
) -> None:
    logits, labels = batch((6,), torch.float32)
    assert timed_families() == joint.TIMED
    with monkeypatch.context() as patch:
        for timed in (False, True):
            patch.setattr(joint, "is_timed", lambda device, timed=timed: timed)
            ce_ntl(logits, labels, DIGITS)
            assert len(launched) == timed
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    for family in (8, 9):
        monkeypatch.setattr(joint, "TIMED", frozenset({family}))
        assert not joint.is_timed.__wrapped__(torch.device("cuda", 7))  # there is no such device
    (told,) = recwarn
    assert str(told.message).startswith("implementation='auto' does without 'triton', which fails here: ")
    assert "\n" not in str(told.message)


def timed_families() -> set[int]:
    """The families of GPUs of which the published times have rows of Triton."""
    path = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "kernels_gpu.csv"
    lines = path.read_text().splitlines()[1:] if path.is_file() else []
    return {int(row["family"]) for row in csv.DictReader(lines) if row["loss"].endswith("triton")}
