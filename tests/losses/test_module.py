"""`NumberTokenLoss`: the values of `ce_ntl`, its shift, denominators of a step, weights, devices and torch.compile."""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, KINDS, WIDTH, all_positions, batch, tokenizer, weights_of
from torch import Tensor

from ntl import NumberTokenLoss
from ntl.losses import ce_ntl, fast, linear_ce_ntl, rows, squashed_cost

LABELS = torch.tensor([[3, 1, 4, 12, 2, 7, 7], [1, -100, -100, 9, 5, 2, -100]])


def logits(width: int = 13, dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(2, 7, width, dtype=dtype, requires_grad=True)


def value_and_gradient(loss: Callable[..., Tensor], given: Tensor, *others: Tensor, **named: object) -> list[Tensor]:
    leaf = given.detach().clone().requires_grad_()
    total = loss(leaf, *others, **named)
    total.backward()
    assert leaf.grad is not None
    return [total.detach(), leaf.grad]


def test_it_is_ce_ntl_and_the_shift_that_of_sliced_logits() -> None:
    given = logits()
    for kind in KINDS:
        how: dict[str, Any] = {"kind": kind, "weight": 0.7, **KINDS[kind]}
        for shift, seen, labels in ((False, slice(None), LABELS), (True, slice(-1), LABELS[:, 1:])):
            found = value_and_gradient(NumberTokenLoss(DIGITS, shift=shift, **how), given, LABELS)

            def expected(x: Tensor, seen: slice = seen, labels: Tensor = labels, how: Any = how) -> Tensor:
                return ce_ntl(x[:, seen], labels, DIGITS, implementation="reference", **how).total

            torch.testing.assert_close(found, value_and_gradient(expected, given))


def test_no_parameters_nothing_saved_and_values_that_a_type_does_not_round() -> None:
    vocab = type(DIGITS).from_values([math.nan, 1000.5, 3.25, 70001.0])
    loss = NumberTokenLoss(vocab, shift=False, cost=squashed_cost(vocab.token_values, 3.0))
    assert list(loss.parameters()) == []
    assert loss.state_dict() == {}
    held = torch.nn.ModuleList([loss]).to(torch.bfloat16)
    assert loss.token_values.tolist() == [1000.5, 3.25, 70001.0]
    assert torch.equal(loss.options["cost"], squashed_cost(vocab.token_values, 3.0))
    given, labels = logits(4), torch.tensor([[1, 2, 3, 0, 1, 1, 2]] * 2)
    for again in (held[0], copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert again(given, labels).item() == loss(given, labels).item()
    moved = loss.to("meta")
    assert {each.device.type for each in (*moved.buffers(), moved.options["cost"])} == {"meta"}
    assert moved.number_vocab.min_logits == 4
    table = torch.randn(13, 2)
    for embedding, device in ((table, "meta"), (torch.nn.Parameter(table), "cpu")):  # a model moves its own
        emo = NumberTokenLoss(DIGITS, shift=False, kind="emo", embedding=embedding).to("meta")
        assert emo.options["embedding"].device.type == device
    assert NumberTokenLoss(DIGITS.to("meta"), shift=True).number_vocab.min_logits == 13
    assert "kind='was', weight=0.3, shift=False" in repr(loss)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["was", "gce", "number_level"])
def test_the_denominators_of_a_step(kind: str, weighted: bool) -> None:
    """CE adds up to its mean over the step; the mean over number labels is weighted by each batch's share."""
    given, labels = batch()
    loss, weights = NumberTokenLoss(DIGITS, kind=kind, shift=False), weights_of(labels) if weighted else None
    whole = loss.parts(given, labels, loss_weights=weights).base
    items = whole.count if weighted else int(whole.count)
    alone, cut = [], []
    for half in (slice(0, 1), slice(1, 4)):
        own = None if weights is None else weights[half]
        alone.append(loss.parts(given[half], labels[half], loss_weights=own))
        cut.append(loss.parts(given[half], labels[half], loss_weights=own, num_items_in_batch=items))
    shares = [part.base.count / whole.count for part in alone]
    assert shares[0] != shares[1]
    by_hand = sum(share * part.total for share, part in zip(shares, alone, strict=True))
    torch.testing.assert_close(sum(part.total for part in cut), by_hand)
    torch.testing.assert_close(sum(part.base.sum for part in cut), whole.sum)


# ---- torch.compile and devices


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "was",
        *(
            pytest.param(kind, marks=pytest.mark.soak)
            for kind in ("crps", "number_level", "gce+was_cdf", "smmd", "ntil")
        ),
    ],
)
def test_it_compiles_without_a_graph_break(kind: str) -> None:
    torch._dynamo.reset()
    given, labels = batch()
    smoothing = {} if "gce" in kind else {"label_smoothing": 0.1}
    loss = NumberTokenLoss(DIGITS, kind=kind, shift=True, **smoothing)
    run = torch.compile(loss, fullgraph=True, backend="aot_eager")
    how = {"loss_weights": weights_of(labels), "num_items_in_batch": torch.tensor(30)}
    expected = value_and_gradient(loss, given, labels, **how)
    torch.testing.assert_close(value_and_gradient(run, given, labels, **how), expected)


@pytest.mark.slow
def test_on_a_device_nothing_waits_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, reading a value or a shape that depends on one raises an error."""
    with pytest.raises(RuntimeError):
        torch.empty(3, device="meta").sum().item()
    with pytest.raises(NotImplementedError):
        torch.empty(3, device="meta").nonzero()
    for module in (rows, fast):
        monkeypatch.setattr(module, "number_index", all_positions)
    for kind in KINDS:
        loss = NumberTokenLoss(DIGITS, kind=kind, shift=True, implementation="fused", **KINDS[kind]).to("meta")
        given = torch.empty(2, 7, 13, device="meta", requires_grad=True)
        labels = torch.empty(2, 7, dtype=torch.long, device="meta")
        for items in (None, 30, torch.empty((), device="meta")):
            loss(given, labels, num_items_in_batch=items).backward()
        assert given.grad is not None
        # A trainer moves its model, and not its loss.
        left = NumberTokenLoss(DIGITS, kind=kind, shift=True, implementation="fused", **KINDS[kind])
        left.compute_loss_func({"logits": given}, torch.full((2, 7), 3)).backward()
        assert left.values.device.type == "meta"


# ---- loss_weights


def test_two_weights_for_each_label_are_those_of_ce_and_of_the_number_loss() -> None:
    given, labels = batch()
    weights, of_numbers = weights_of(labels), (torch.arange(labels.numel()).view_as(labels) % 3 > 0).double()
    both, head = torch.stack([weights, of_numbers], dim=-1), torch.eye(WIDTH, dtype=torch.float64)
    for kind in ("was", "number_level", "was_vocab", "was+crps", "smmd", "dist2", "digit_entropy", "place_weighted"):
        how: dict[str, Any] = {"kind": kind, **KINDS[kind]}
        expected = [
            ce_ntl(given, labels, DIGITS, loss_weights=each, implementation="reference", **how)
            for each in (weights, of_numbers)
        ]
        for other in ("reference", "fused"):
            found = ce_ntl(given, labels, DIGITS, loss_weights=both, implementation=other, **how)
            torch.testing.assert_close(found.base, expected[0].base)
            torch.testing.assert_close(found.number, expected[1].number)
        found = linear_ce_ntl(given, head, labels, DIGITS, loss_weights=both, **how)
        torch.testing.assert_close((found.base, found.number), (expected[0].base, expected[1].number))


def test_a_weight_is_shifted_with_its_label() -> None:
    given, labels = batch()
    loss, head = NumberTokenLoss(DIGITS, shift=True), torch.eye(WIDTH, dtype=torch.float64)
    for weights in (weights_of(labels), torch.stack([weights_of(labels), torch.ones(labels.shape)], dim=-1)):
        expected = ce_ntl(given[:, :-1], labels[:, 1:], DIGITS, loss_weights=weights[:, 1:]).total
        torch.testing.assert_close(loss({"logits": given}, labels, loss_weights=weights), expected)
        torch.testing.assert_close(loss.linear(given, head, labels, loss_weights=weights), expected)
    bias = torch.arange(WIDTH, dtype=torch.float64)
    found = loss.linear(given, head, labels, bias=bias, logit_scale=0.5, softcap=3.0, num_items_in_batch=30)
    made = 3.0 * torch.tanh(0.5 * (given + bias) / 3.0)
    torch.testing.assert_close(found, loss(made, labels, num_items_in_batch=30))


# ---- wrong arguments raise an error or warn when the loss is made, before any training


# As GPT-2's, with a token of value 66,666,666.
WIDE_TOKENS = tokenizer(*"0123456789", "a", "Ġ2024", "66666666")


def made(**arguments: Any) -> NumberTokenLoss:
    return NumberTokenLoss.from_tokenizer(WIDE_TOKENS, shift=False, digits_only=False, **arguments)


def test_squash_bounds_the_number_loss() -> None:
    loss = made(squash=3.0)
    # Uniform over 12 number tokens. For the label 0, 66,666,666 costs 3 and all others cost 1, up to rounding.
    parts = loss.parts(torch.zeros(1, 13), torch.tensor([0]))
    assert parts.number.sum.item() == pytest.approx((9 * 1 + 1 * (1 + 2 * 2023 / 66666665) + 3) / 12)
    assert torch.equal(loss.options["cost"], squashed_cost(loss.token_values, 3.0))
    again = made(kind="was_vocab", squash=5.0)
    assert again.options["cost"].max() == 5.0
