"""`NumberTokenLoss`: the values of `ce_ntl`, its shift, denominators of a step, weights, devices and torch.compile."""

import copy
import math
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, KINDS, WIDTH, all_positions, batch, tokenizer, weights_of
from torch import Tensor

from ntl import NumberTokenLoss
from ntl.losses import ce_ntl, fast, linear_ce_ntl, ntl_was, rows, squashed_cost
from ntl.numbers import NumberVocabulary

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
@pytest.mark.parametrize("kind", ["was", "crps", "number_level", "gce+was_cdf", "smmd", "ntil"])
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


def test_weights_that_do_not_fit() -> None:
    labels, ones = torch.tensor([[1, 5], [6, 2]]), torch.ones(2, 2)
    for weights, message in (
        (torch.ones(2, 1), r"loss_weights must have labels' shape \(2, 2\), not \(2, 1\)"),
        (ones.index_fill(1, torch.tensor(1), -0.5), "loss_weights must be finite and not negative, not -0.5"),
        (ones * torch.nan, "not nan"),
        (ones * torch.inf, "not inf"),
    ):
        with pytest.raises(ValueError, match=message):
            linear_ce_ntl(torch.zeros(2, 2, 5), torch.zeros(13, 5), labels, DIGITS, loss_weights=weights)
        with pytest.raises(ValueError, match=message):
            NumberTokenLoss(DIGITS, shift=True)(torch.zeros(2, 2, 13), labels, loss_weights=weights)


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
    with pytest.raises(ValueError, match="gce knows numbers by their labels: give it one weight"):
        ce_ntl(given, labels, DIGITS, kind="gce", loss_weights=both)


def test_labels_that_are_no_integers() -> None:
    loss, given = NumberTokenLoss(DIGITS, shift=True), logits()
    for labels in (LABELS.float(), LABELS > 0):
        with pytest.raises(TypeError, match="labels must be token ids, which are integers, not torch"):
            loss(given, labels, num_items_in_batch=5)
        with pytest.raises(TypeError, match="labels must be token ids"):
            ntl_was(given, labels, DIGITS)
    for dtype in (torch.int32, torch.int16, torch.uint8):  # uint8 has no -100
        assert loss(given, LABELS.clamp(0).to(dtype), num_items_in_batch=5) == loss(
            given, LABELS.clamp(0), num_items_in_batch=5
        )


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


DIGIT_TOKENS = tokenizer(*"0123456789", "a")
# As GPT-2's, with a token of value 66,666,666.
WIDE_TOKENS = tokenizer(*"0123456789", "a", "Ġ2024", "66666666")


def made(**arguments: Any) -> NumberTokenLoss:
    return NumberTokenLoss.from_tokenizer(WIDE_TOKENS, shift=False, digits_only=False, **arguments)


def test_squash_bounds_the_number_loss() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = made(squash=3.0)
    # Uniform over 12 number tokens. For the label 0, 66,666,666 costs 3 and all others cost 1, up to rounding.
    parts = loss.parts(torch.zeros(1, 13), torch.tensor([0]))
    assert parts.number.sum.item() == pytest.approx((9 * 1 + 1 * (1 + 2 * 2023 / 66666665) + 3) / 12)
    assert torch.equal(loss.options["cost"], squashed_cost(loss.token_values, 3.0))
    again = made(kind="was_vocab", squash=5.0)
    assert again.options["cost"].max() == 5.0


def test_wide_values_are_told_once_with_the_largest_where_they_matter() -> None:
    for arguments in (
        {},
        *({"kind": kind} for kind in ("was_cdf", "mse", "gce+was_cdf")),
        {"kind": "was+mse", "cost": torch.eye(12)},
    ):
        with pytest.warns(UserWarning, match=r"span 0 to 66666664 \('66666666'\).*squash=3\.0") as told:
            made(**arguments)
        assert len(told) == 1
        assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NumberTokenLoss.from_tokenizer(DIGIT_TOKENS, shift=False, kind="mse")
        NumberTokenLoss(NumberVocabulary.from_values([0.0, 1e6]), shift=True)
        made(cost=torch.zeros(12, 12), kind="was+digit_ce")
        for kind in ("ce", "gce", "digit_ce"):
            made(kind=kind)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"weight": -1}, ValueError, "weight must be finite and not negative, not -1"),
    ({"weight": "0.3"}, TypeError, "weight must be a number, not a str"),
    ({"cost": torch.full((10, 10), math.nan)}, ValueError, "cost must be finite and not negative"),
    ({"kind": "was_vocab", "text_cost": -1.0}, ValueError, "text_cost must be positive and finite, not -1.0"),
    ({"kind": "smmd", "alpha": math.nan}, ValueError, "alpha must be 0 to 1, not nan"),
    ({"kind": "digit_entropy", "factor": -1.0}, ValueError, "factor must be positive and finite, not -1.0"),
    ({"kind": "place_weighted", "base": -10.0}, ValueError, "base must be positive and finite, not -10.0"),
    (
        {"kind": "wass"},
        ValueError,
        "kind 'wass' is none of ce, emo, gce, crps, digit_ce, digit_entropy, dist2, huber, mae, mse, ntil, "
        "number_level, place_weighted, smmd, was, was_cdf, was_vocab",
    ),
    ({"kind": "was_cdf", "target": torch.zeros(1)}, ValueError, "target belongs to a single batch"),
    ({"kind": "gce", "label_smoothing": 0.1}, ValueError, "takes no option 'label_smoothing'"),
    ({"squash": 3.0, "kind": "mse"}, ValueError, r"squash needs kinds that take a cost \(was and was_vocab\)"),
    ({"squash": 3.0, "cost": torch.zeros(10, 10)}, ValueError, "a squash or a cost, not both"),
]


def test_what_cannot_be_is_refused_when_the_loss_is_made() -> None:
    for arguments, error, message in REFUSED:
        with pytest.raises(error, match=message) as refused:
            NumberTokenLoss.from_tokenizer(DIGIT_TOKENS, shift=False, **arguments)
        assert "\n" not in str(refused.value)
    with pytest.raises(TypeError, match="shift"):
        NumberTokenLoss(DIGITS)  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="shift must be True or False, not 'no'"):
        NumberTokenLoss(DIGITS, shift="no")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"'gpt2', a str, is no tokenizer.*ntl\.tokenizers\.load_tokenizer"):
        NumberTokenLoss.from_tokenizer("gpt2", shift=True)
    line = re.escape("number_vocab must be a NumberVocabulary, not a SimpleNamespace: NumberVocabulary.from_tokenizer(")
    with pytest.raises(TypeError, match=line):
        NumberTokenLoss(DIGIT_TOKENS, shift=True)
    with pytest.raises(TypeError, match=line):
        ntl_was(torch.zeros(1, 13), torch.tensor([3]), DIGIT_TOKENS)


def test_logits_of_another_width_than_was_said() -> None:
    vocab_size = 32000
    loss = NumberTokenLoss.from_tokenizer(DIGIT_TOKENS, shift=False, vocab_size=50304)
    hidden, head = torch.zeros(1, 4, 3), torch.zeros(vocab_size, 3)
    message = f"logits have width {vocab_size}, but the number vocabulary was made with vocab_size=50304"
    with pytest.raises(ValueError, match=message):
        loss(torch.zeros(1, 4, vocab_size), torch.ones(1, 4, dtype=torch.long))
    for implementation in ("reference", "fused"):
        loss.implementation = implementation
        with pytest.raises(ValueError, match=message):
            loss.linear(hidden, head, torch.ones(1, 4, dtype=torch.long))
    assert loss(torch.zeros(1, 4, 50304), torch.ones(1, 4, dtype=torch.long)).isfinite()


def test_flattened_rows_cannot_be_shifted() -> None:
    loss = NumberTokenLoss(DIGITS, shift=True)
    labels = torch.tensor([3, 4, 5, 6])
    message = r"labels of shape \(4,\) with shift=True: .*logits \(B, T, V\) and labels \(B, T\).*shift=False"
    for call in (
        lambda: loss.linear(torch.zeros(4, 5), torch.zeros(13, 5), labels),
        lambda: loss.compute_loss_func({"logits": torch.zeros(4, 13)}, labels),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert loss(torch.zeros(1, 4, 13), labels.unsqueeze(0)).isfinite()
    assert NumberTokenLoss(DIGITS, shift=False)(torch.zeros(4, 13), labels).isfinite()
