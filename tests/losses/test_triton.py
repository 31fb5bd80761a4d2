"""The Triton kernels: right by the interpreter, on a CPU, compiled for three families of GPUs, and chosen; and the
bytes that they, and all operations beside them, read and write. `test_joint` and `test_gpu` have more of their values.
"""

import csv
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loss_cases import (
    DIGITS,
    FAST,
    KINDS,
    TOLERANCE,
    WIDTH,
    assert_same,
    batch,
    exact,
    hidden_of,
    interpreted,
    of_hidden,
    of_logits,
    options_of,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import GPT2Config, GPT2LMHeadModel

from ntl import NumberTokenLoss, losses
from ntl.benchmarks.losses import Setting, benchmark
from ntl.config import UserError
from ntl.config.loss import NextTokenConfig
from ntl.losses import categorical, ce_ntl, joint, linear_ce_ntl, rows
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken

if platform.system() != "Linux":
    pytest.skip("Triton has no wheel here", allow_module_level=True)

Launch = tuple[str, tuple[int, ...], torch.dtype, torch.dtype]


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


@interpreted
@pytest.mark.parametrize("kind", FAST)
def test_every_kind(kind: str, launched: list[Launch]) -> None:
    """From logits and from hidden states, with smoothing and weights; the same in a second run."""
    logits, labels = batch((5,), torch.float32)
    how = options_of(kind, labels, smoothing=True, weights=True) if kind in KINDS else {"kind": kind}
    found = of_logits("triton", logits, labels, inplace=True, **how)
    assert [name for name, *_ in launched] == ["statistics", "gradient"]
    assert_same(found, exact(of_logits, logits, labels=labels, **how), TOLERANCE[torch.float32])
    again = of_logits("triton", logits, labels, **how)
    assert torch.equal(found[0].total, again[0].total)
    assert torch.equal(found[1][0], again[1][0])
    hidden, head = hidden_of((5,), torch.float32), {"logit_scale": 0.7, "softcap": 3.0, "labels": labels}
    expected = exact(of_hidden, *hidden, **head, **how)
    assert_same(of_hidden("triton", *hidden, **head, **how), expected, TOLERANCE[torch.float32])
    assert [name for name, *_ in launched][-2:] == ["statistics", "gradient"]


@interpreted
@pytest.mark.parametrize(("width", "ignored"), [(1, 0.0), (10, 0.5), (1000, 1.0), (32_129, 0.5)])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_types_and_widths(dtype: torch.dtype, width: int, ignored: float, launched: list[Launch]) -> None:
    """Logits of ignored rows are not read: they are NaN. Columns of a wider tensor are not copied."""
    generator = torch.Generator().manual_seed(0)
    values = torch.full((width,), torch.nan)
    values[:: max(width // 8, 1)] = torch.arange(len(values[:: max(width // 8, 1)]), dtype=torch.float32)
    vocab = NumberVocabulary.from_values(values)
    logits = (3 * torch.randn(4, width, generator=generator)).to(dtype)
    labels = vocab.token_ids[torch.arange(4) % len(vocab.token_ids)]
    labels[-1] = width - 1
    labels[: round(4 * ignored)] = -100
    logits[labels == -100] = torch.nan
    for kind in ("was", "was_vocab"):
        expected = exact(of_logits, logits, labels=labels, vocab=vocab, kind=kind)
        assert_same(of_logits("triton", logits, labels, vocab, kind=kind), expected, TOLERANCE[dtype])
    columns = torch.nn.functional.pad(logits, (0, width), value=torch.nan)[:, :width]
    columns = columns.requires_grad_()
    total = ce_ntl(columns, labels, vocab, kind="was_vocab", implementation="triton").total
    torch.testing.assert_close(total, expected[0].total)
    (total * 1.7).backward()
    torch.testing.assert_close(columns.grad, expected[1][0], rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    assert {each[1:] for each in launched} == {((4, width), dtype, dtype)}


@interpreted
def test_masked_logits_and_a_chunk_under_autocast(launched: list[Launch]) -> None:
    logits, labels = batch((7,), torch.float32, ignored=0.0)
    logits[1, 0] = logits[2, 1] = -torch.inf
    labels[1:3] = 5
    for kind in ("was", "gce", "was_vocab"):
        expected = exact(of_logits, logits, labels=labels, kind=kind)
        assert_same(of_logits("triton", logits, labels, kind=kind), expected, 1e-6)
    wide = torch.nn.functional.pad(logits, (8192, 0), value=-torch.inf)  # all that is read first is -inf
    vocab = NumberVocabulary.from_values(torch.nn.functional.pad(DIGITS.values, (8192, 0), value=torch.nan))
    expected = exact(of_logits, wide, labels=labels + 8192, vocab=vocab)
    assert_same(of_logits("triton", wide, labels + 8192, vocab), expected, 1e-6)
    labels[1:3] = torch.tensor([0, 1])
    assert ce_ntl(logits, labels, DIGITS, implementation="triton").total == torch.inf
    launched.clear()
    with torch.autocast("cpu", torch.bfloat16):
        of_hidden("triton", *hidden_of((7,), torch.float32), labels=labels)
    assert {each[2] for each in launched} == {torch.bfloat16}  # never converted


@interpreted
@pytest.mark.parametrize("implementation", ["fused", "triton"])
def test_the_weights_gradient_does_not_overflow_float16(implementation: str) -> None:
    """Half of 512 labels are one digit, and one channel of the hidden states is large, as a decoder's often is."""
    hidden, weight, _ = hidden_of((512,))
    hidden[:, 0] = 4000.0
    weight[:, 0] = 0.0
    given = [hidden.half(), weight.half()]
    labels = torch.tensor([3, 5] * 256)
    found, wanted = of_hidden(implementation, *given, labels=labels)[1], exact(of_hidden, *given, labels=labels)[1]
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() < 3e-3 * other.double().norm()


@interpreted
def test_what_was_saved_does_not_silently_change_in_place() -> None:
    logits, labels = batch((6,), torch.float32)
    activation = logits.requires_grad_().clone().tanh()  # its gradient reads its own result
    total = ce_ntl(activation, labels, DIGITS, implementation="triton", inplace=True).total
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


# ---- compiled, refused, chosen

COMPILE = """
import json, re, subprocess, sys
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from ntl.losses import kernel
from ntl.losses.fast import Pass

found = []
for capability, numbers, kind, width in (
    (80, 16, "bf16", None), (90, 16, "bf16", None), (100, 16, "bf16", None), (90, 2048, "fp32", None),
    (90, 1, "fp32", 1),  # the trial of implementation=auto: Triton makes an argument that is 1 a constant
):
    for each in (kernel.statistics, kernel.gradient):
        columns = dict.fromkeys(Pass._fields, "*fp32") | {"labels": "*i64", "counted": "*i1"}
        types = {"logits": "*" + kind, "out": "*" + kind, "rows": Pass(**columns), "token_ids": "*i64"}
        types |= dict.fromkeys(("stride", "out_stride", "width", "numbers", "masses"), "i32")
        constants = {"scale": 0.5, "cap": 30.0, "smoothing": 0.1, "BLOCK": kernel.MAX_BLOCK, "NUMBERS": numbers}
        places = {(len(types) + place,): value for place, value in enumerate(constants.values())}
        types |= dict.fromkeys(constants, "constexpr")
        if width:
            places[(list(types).index("width"),)], types["width"] = width, "constexpr"
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


@pytest.mark.slow
def test_compiled_without_a_gpu(tmp_path: Any) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "compile_kernels.py").write_text(COMPILE)  # Triton reads sources from files
    command = [sys.executable, "compile_kernels.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {chip for _, chip, *_ in found} == {"sm_80", "sm_90a", "sm_100a"}
    assert len(found) == 10
    for name, chip, shared, spilled, is_report in found:
        assert is_report
        assert (spilled, shared <= 48 << 10) == (0, True), (name, chip)


@interpreted
def test_what_cannot_be_computed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a training and in a benchmark, which run the kernels where they can."""
    logits, labels = batch((6,), torch.float32)
    kernel = joint.triton_kernel(None)
    setting = Setting(batch=1, length=2, vocab=20)
    rounds = list(benchmark(setting, ["ntl_was"], ["triton"], 2))
    assert {row["loss"] for row in rounds} == {"ce", "ntl_was triton"}
    with pytest.raises(ValueError, match="are for the kinds"):
        ce_ntl(logits, labels, DIGITS, kind="emo", embedding=torch.zeros(WIDTH, 7), implementation="triton")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WIDTH, n_positions=8, n_embd=8, n_layer=1, n_head=1))
    loss = NumberTokenLoss(DIGITS, shift=False, implementation="triton")
    objective = NextToken(NextTokenConfig(), model=model, loss=loss, implementation="triton").train()
    ids, counts = torch.tensor([[1, 5, 2]]), torch.tensor([3.0, 1.0])
    objective(ids, counts, input_ids=ids).total.backward()
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    for call in (
        lambda: next(benchmark(setting, ["ntl_was"], ["triton"], 2)),
        lambda: objective(ids, counts, input_ids=ids),
    ):
        with pytest.raises(UserError, match=r"^(--implementations |loss\.implementation=')triton"):
            call()
    NumberTokenLoss(DIGITS, shift=False, implementation="triton")  # made here, and moved later
    with pytest.raises(ValueError, match="computes on a GPU, not on a cpu: take 'fused'"):
        ce_ntl(logits, labels, DIGITS, implementation="triton")
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
def test_auto_takes_them_on_a_family_that_was_timed(
    monkeypatch: pytest.MonkeyPatch, launched: list[Launch], recwarn: pytest.WarningsRecorder
) -> None:
    logits, labels = batch((6,), torch.float32)
    path = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "kernels_gpu.csv"
    lines = path.read_text().splitlines()[1:] if path.is_file() else []
    assert {int(row["family"]) for row in csv.DictReader(lines) if row["loss"].endswith("triton")} == joint.TIMED
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


# ---- bytes


class Moved(TorchDispatchMode):
    """Counts the bytes that operations read and write; of an indexed tensor only what is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.made: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name.startswith(("empty", "detach", "alias")):
            return result
        read = args[1:] if name in ("index", "gather", "index_select") else args
        again = [result] if read is not args else []
        tensors = [each for each in tree_leaves((read, kwargs, again, result)) if isinstance(each, Tensor)]
        self.bytes += sum(each.numel() * each.itemsize for each in tensors)
        if "out" not in (kwargs or {}) and not name.endswith("_"):
            self.made += [tuple(each.shape) for each in tree_leaves(result) if isinstance(each, Tensor)]
        return result

    def launch(self, each: Any, logits: Tensor, out: Tensor, columns: Any, *_: Any) -> None:
        """Count what `test_a_kernel_reads_each_logit_once` finds, and compute nothing."""
        passes = [logits, out] if each.__name__ == "gradient" else [logits]
        self.bytes += sum(tensor.numel() * tensor.itemsize for tensor in (*passes, *columns))


@interpreted
def test_a_kernel_reads_each_logit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    moved: dict[str, int] = {}

    def counting(name: str) -> Callable[..., Any]:
        original, place = getattr(InterpreterBuilder, name), {"create_masked_load": 1, "create_masked_store": 2}[name]

        def call(builder: Any, *args: Any) -> Any:
            size = args[0].dtype.scalar.element_ty.primitive_bitwidth // 8
            moved[name] = moved.get(name, 0) + int(args[place].data.sum()) * size
            return original(builder, *args)

        return call

    for name in ("create_masked_load", "create_masked_store"):
        monkeypatch.setattr(InterpreterBuilder, name, counting(name))
    logits = torch.randn(2, 32_128, dtype=torch.bfloat16).requires_grad_()
    labels, each = torch.tensor([4, -100]), 32_128 * 2
    total = ce_ntl(logits, labels, DIGITS, implementation="triton").total
    assert each < moved.pop("create_masked_load") < 1.01 * each  # of one row: the other is ignored
    assert moved.pop("create_masked_store") < 0.01 * each
    total.backward()
    assert each < moved.pop("create_masked_load") < 1.01 * each
    assert 2 * each <= moved.pop("create_masked_store") < 2.01 * each  # zeros in the other


@pytest.mark.parametrize("kind", FAST)
def test_three_times_the_logits_are_moved(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On tensors without data, by the operations of a GPU, where the number rows are all positions."""
    for module in (rows, categorical, joint):
        monkeypatch.setattr(module, "keeps_shapes", lambda labels: True)
    times = {}
    for how in ("triton", "fused"):
        moved = Moved()
        monkeypatch.setattr(joint.triton_kernel(None), "launch", moved.launch)
        logits = torch.empty(32, 64, 32_128, dtype=torch.bfloat16, device="meta").requires_grad_()
        labels = torch.empty(32, 64, dtype=torch.long, device="meta")
        given = {"kind": kind, "implementation": how, **KINDS.get(kind, {})}
        with moved:
            ce_ntl(logits, labels, DIGITS.to("meta"), **given).total.backward()
        times[how] = moved.bytes / (logits.numel() * logits.itemsize)
    assert 3.0 < times["triton"] < 3.3
    assert times["fused"] > 15  # the counter does count


@interpreted
def test_of_each_chunk_there_is_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, moved = joint.triton_kernel(None), Moved()
    monkeypatch.setattr(kernel, "launch", moved.launch)
    monkeypatch.setattr(kernel, "cache_bytes", lambda device: 64 * 4096 * 2)
    hidden, weight = (torch.zeros(size, 8, dtype=torch.bfloat16, requires_grad=True) for size in (256, 4096))
    with moved:
        linear_ce_ntl(hidden, weight, torch.full((256,), 5), DIGITS, implementation="triton").total.backward()
    made = sum(math.prod(shape) for shape in moved.made if shape != weight.shape)  # but the product for its gradient
    assert moved.made.count((64, 4096)) == 1
    assert made < 1.2 * 64 * 4096
