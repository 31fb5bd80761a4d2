"""On a GPU: every loss and its gradient are those of the CPU in float64, and number losses never wait for the host."""

import platform
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, FAST, KINDS, WIDTH, batch, weights_of
from torch import Tensor

from ntl.losses import ce_ntl, joint, linear_ce_ntl
from ntl.losses.registry import Terms

pytestmark = pytest.mark.gpu

IMPLEMENTATIONS = ["reference", "fused", "linear", *(["triton"] if platform.system() == "Linux" else [])]
DOORS: dict[str, dict[str, Any]] = {name: {"implementation": name} for name in IMPLEMENTATIONS}
DOORS["in place"] = {"implementation": "fused", "inplace": True}
# Whether Triton's kernels are loops on the host, which take long: where the GPU is simulated.
IS_INTERPRETED = "triton" in IMPLEMENTATIONS and joint.triton_kernel(None).INTERPRETED


def inputs(device: str = "cpu", dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Return hidden states, the weight of the head, and labels.

    Every logit is a multiple of 1/16 below 16, which bfloat16 holds exactly: in each type it is the loss of the same
    logits, and in half precision only gradients are rounded.
    """
    generator = torch.Generator().manual_seed(0)
    hidden = 2.0 * torch.randint(2, (6, 11, 7), generator=generator) - 1
    head = torch.randint(-32, 33, (WIDTH, 7), generator=generator) / 16
    return hidden.to(device, dtype), head.to(device, dtype), batch((6, 11))[1].to(device)


def options_of(kind: str) -> dict[str, Any]:
    return {"embedding": inputs()[1]} if kind == "emo" else KINDS.get(kind, {})


def computed(door: str, kind: str, device: str, dtype: torch.dtype, **how: Any) -> list[Tensor]:
    """Return the total and its gradients on the CPU, with respect to hidden states and head, or to logits."""
    hidden, head, labels = inputs(device, dtype)
    loss, leaves = (linear_ce_ntl, [hidden, head]) if door == "linear" else (ce_ntl, [hidden @ head.T])
    given = [leaf.requires_grad_().view_as(leaf) for leaf in leaves]  # what is computed in place must not be a leaf
    total = loss(*given, labels, DIGITS.to(device), kind=kind, **options_of(kind), **how).total
    (total * 1.7).backward()
    found = [total.detach(), *(leaf.grad for leaf in leaves)]
    assert [(each.device.type, each.dtype) for each in found[1:]] == [(device, dtype)] * len(leaves)
    return [each.cpu().double() for each in found]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["emo", *FAST])
def test_every_kind_by_every_implementation(kind: str, dtype: torch.dtype) -> None:
    for door, how in DOORS.items():
        if door == "triton" and IS_INTERPRETED and kind not in ("was", "was_vocab", "gce"):
            continue
        for weights in (None, weights_of(inputs()[2])):
            expected = computed(door, kind, "cpu", torch.float64, loss_weights=weights, implementation="reference")
            own = DOORS["reference"] if kind == "emo" else how  # emo has no other
            found = computed(door, kind, "cuda", dtype, loss_weights=weights, **own)
            torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=0)
            for gradient, exact in zip(found[1:], expected[1:], strict=True):
                if dtype == torch.float32:
                    torch.testing.assert_close(gradient, exact, rtol=1e-4, atol=1e-6)
                else:  # rounded two or three times, by at most 1/256
                    assert (gradient - exact).norm() < 1e-2 * exact.norm(), door


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_float16_with_a_grad_scaler(implementation: str) -> None:
    hidden, head, labels = inputs("cuda", torch.float32)
    weight = torch.nn.Parameter(head.clone())
    optimizer, scaler = torch.optim.SGD([weight], lr=1.0), torch.amp.GradScaler("cuda", init_scale=1024.0)
    with torch.autocast("cuda", torch.float16):
        loss = linear_ce_ntl(hidden, weight, labels, DIGITS.to("cuda"), implementation=implementation).total
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    gradient = computed("linear", "was", "cpu", torch.float64, implementation="reference")[2] / 1.7
    torch.testing.assert_close((head - weight.detach()).cpu().double(), gradient, rtol=1e-2, atol=1e-3)
    assert scaler.get_scale() == 1024.0


def waits(call: Callable[[], Any], mode: str = "warn") -> int:
    """Return how often a call waits for the host; in the mode "error" that is one, where it waits."""
    call()  # what is made once, such as the workspace of cuBLAS, may wait
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode(mode)
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("called a synchronizing CUDA operation" in str(each.message) for each in told)


@pytest.mark.parametrize("kind", FAST)
def test_no_number_loss_waits_for_the_host(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does its sum with CE, weighted or not."""
    if IS_INTERPRETED:
        monkeypatch.setattr(joint.triton_kernel(None), "launch", lambda *_: None)
    hidden, head, labels = inputs("cuda", torch.float32)
    logits, vocab, terms = (hidden @ head.T).requires_grad_(), DIGITS.to("cuda"), Terms.of(kind, 0.3, options_of(kind))
    for implementation in {*IMPLEMENTATIONS} - {"linear"}:
        for weights in (None, weights_of(labels).to("cuda")):
            how: dict[str, Any] = {"implementation": implementation, "loss_weights": weights}
            waits(lambda how=how: ce_ntl(logits, labels, vocab, kind=terms, **how).total.backward(), "error")
    if terms.numbers:
        waits(lambda: terms.number(logits, labels, vocab).backward(), "error")


def test_linear_waits_once() -> None:
    hidden, head, labels = inputs("cuda", torch.float32)
    leaves, vocab = [hidden.requires_grad_(), head.requires_grad_()], DIGITS.to("cuda")
    assert (once := waits(labels.nonzero)) > 0
    for how in ({"implementation": "linear"}, {}):  # it is the default for hidden states
        loss = partial(linear_ce_ntl, *leaves, labels, vocab, **how)
        assert waits(lambda loss=loss: loss().total.backward()) == once
