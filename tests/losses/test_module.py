"""`NumberTokenLoss`: the values of `ce_ntl`, its shift, denominators of a step, weights, devices and torch.compile; and
called by a transformers trainer.
"""

import copy
import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loss_cases import DIGITS, KINDS, WIDTH, all_positions, batch, tokenizer, weights_of
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator
from transformers.modeling_outputs import CausalLMOutput

from ntl import NumberTokenLoss
from ntl.data.weights import WeightedCollator
from ntl.losses import NumberTokenLossMixin, ce_ntl, fast, linear_ce_ntl, rows, squashed_cost

LABELS = torch.tensor([[3, 1, 4, 12, 2, 7, 7], [1, -100, -100, 9, 5, 2, -100]])


def logits(width: int = 13) -> Tensor:
    return torch.randn(2, 7, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


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


def test_whatever_holds_logits() -> None:
    loss, given = NumberTokenLoss(DIGITS, shift=True), logits()
    expected = loss(given, LABELS, num_items_in_batch=10)
    held: list[Any] = [CausalLMOutput(logits=given), {"logits": given}, (given, None), SimpleNamespace(logits=given)]
    for outputs in held:
        for call in (loss, loss.compute_loss_func):
            assert torch.equal(call(outputs, LABELS, num_items_in_batch=10), expected)


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


def test_squash_bounds_the_number_loss() -> None:
    """Uniform over 12 number tokens of GPT-2's kind: for the label 0, 66,666,666 costs 3 and all others cost 1."""
    wide, how = tokenizer(*"0123456789", "a", "Ġ2024", "66666666"), {"shift": False, "digits_only": False}
    loss = NumberTokenLoss.from_tokenizer(wide, squash=3.0, **how)
    parts = loss.parts(torch.zeros(1, 13), torch.tensor([0]))
    assert parts.number.sum.item() == pytest.approx((9 * 1 + 1 * (1 + 2 * 2023 / 66666665) + 3) / 12)
    assert torch.equal(loss.options["cost"], squashed_cost(loss.token_values, 3.0))
    again = NumberTokenLoss.from_tokenizer(wide, kind="was_vocab", squash=5.0, **how)
    assert again.options["cost"].max() == 5.0


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


# ---- loss_weights and denominators


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
        found = [ce_ntl(given, labels, DIGITS, loss_weights=both, implementation=other, **how)
                 for other in ("reference", "fused")]  # fmt: skip
        for each in (*found, linear_ce_ntl(given, head, labels, DIGITS, loss_weights=both, **how)):
            torch.testing.assert_close((each.base, each.number), (expected[0].base, expected[1].number))


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


# ---- a transformers trainer

ROWS: list[dict[str, Any]] = [{"input_ids": LABELS[i].clamp(min=0), "labels": LABELS[i]} for i in (0, 1, 0)]


class Mixed(NumberTokenLossMixin, Trainer):
    pass


def trainer_of(folder: Path, data: list[dict[str, Any]], of: type = Trainer, collate: Any = None, **how: Any) -> Any:
    """A trainer around a tiny model; what Trainer takes itself is ``number_token_loss`` and ``compute_loss_func``."""
    torch.manual_seed(0)
    drop = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=13, n_embd=8, n_layer=1, n_head=1, n_positions=8, **drop))
    own = {name: how.pop(name) for name in ("number_token_loss", "compute_loss_func") if name in how}
    loss_type = how.pop("loss_type", None)
    how = {"max_steps": 2, "report_to": "none", "save_strategy": "no", "use_cpu": True, "logging_steps": 1, **how}
    arguments: Any = TrainingArguments(str(folder), **how)
    arguments.loss_type = loss_type or "nll"  # TRL's
    return of(model, arguments, collate, train_dataset=data, eval_dataset=data, **own)


def losses_of(trainer: Trainer) -> list[float]:
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


@pytest.mark.parametrize("average", [False, True])
def test_several_devices_in_one_process(average: bool, tmp_path: Path) -> None:
    """DataParallel gives the loss of the whole batch; without a GPU it passes it to the model as it is."""
    found, loss = [], NumberTokenLoss(DIGITS, shift=True)
    data = [{name: each.clamp(min=0) for name, each in row.items()} for row in ROWS[:2]]
    for devices in (1, 2):
        trainer = trainer_of(tmp_path, data, compute_loss_func=loss, per_device_train_batch_size=2)
        trainer.args._n_gpu, trainer.args.average_tokens_across_devices = devices, average
        trainer.args.per_device_train_batch_size = 2 // devices
        trainer._train_batch_size = 2
        found.append(losses_of(trainer))
    assert found[1] == pytest.approx(found[0], rel=0.1 if not average else 1e-6)  # 11 labels // 2 are 5


def weighted_losses(folder: Path, weights: list[float], size: int) -> list[float]:
    data = [{**row, "w": weight} for row, weight in zip(ROWS, weights, strict=False)]
    how = {"gradient_accumulation_steps": len(weights) // size, "remove_unused_columns": False}
    how |= {"per_device_train_batch_size": size, "number_token_loss": NumberTokenLoss(DIGITS, shift=True)}
    trainer = trainer_of(folder, data, Mixed, WeightedCollator(default_data_collator, "w"), **how)
    return [trainer.evaluate()["eval_loss"], *losses_of(trainer)]


def test_a_row_of_weight_2_is_the_row_twice(tmp_path: Path) -> None:
    """In training and evaluation, and over accumulated batches."""
    twice = weighted_losses(tmp_path, [1.0, 1.0, 1.0], 3)
    assert weighted_losses(tmp_path, [6.0, 3.0], 2) == pytest.approx(twice, rel=1e-5)
    assert weighted_losses(tmp_path, [2.0, 1.0], 1)[1:] == pytest.approx(twice[1:], rel=1e-5)
    assert weighted_losses(tmp_path, [1.0, 1.0], 2)[1:] != pytest.approx(twice[1:], rel=1e-3)


@pytest.mark.parametrize("kind", ["was", "number_level", "ntil"])
def test_a_batch_of_eight_is_eight_batches_of_one(kind: str, tmp_path: Path) -> None:
    """The loss and the weights behind a step, in float64, of rows of which each has another share of numbers."""
    ids = torch.randint(3, 13, (8, 8), generator=torch.Generator().manual_seed(1))
    ids = ids.where(torch.arange(8) <= torch.arange(8).unsqueeze(1), 1)
    labels = ids.masked_fill(torch.arange(8) > torch.arange(15, 7, -1).unsqueeze(1) // 2, -100)
    data = [{"input_ids": ids[i], "labels": labels[i]} for i in range(8)]
    loss, found = NumberTokenLoss(DIGITS, shift=True, kind=kind), []
    counts = [loss.counts({"labels": labels[i : i + 1]}) for i in range(8)]
    assert len({float(numbers / labelled) for labelled, numbers in counts}) > 2
    for size in (8, 1):
        how = {"optim": "sgd", "max_grad_norm": 0.0, "learning_rate": 1.0, "max_steps": 1, "number_token_loss": loss}
        how |= {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size}
        trainer = trainer_of(tmp_path, data, Mixed, **how)
        trainer.model.double()
        expected = loss(trainer.model(ids).logits, labels).item()
        assert losses_of(trainer) == [pytest.approx(expected, rel=1e-6)]
        found.append(trainer.model.state_dict())
    for name, each in found[0].items():
        torch.testing.assert_close(found[1][name], each, rtol=0, atol=1e-12)


@pytest.mark.parametrize("other", ["loss_type='dft'", "compute_loss_func", "sequence parallelism"])
def test_a_trainer_with_another_loss_is_refused(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As TRL refuses a loss function with loss_type="dft"; with that parallelism transformers ignores one."""

    class Sharded(Trainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            sharding = SimpleNamespace(sp_enabled=other == "sequence parallelism")
            monkeypatch.setattr(self.accelerator.state, "parallelism_config", sharding)

    class MixedSharded(NumberTokenLossMixin, Sharded):
        pass

    loss = NumberTokenLoss(DIGITS, shift=True)
    given = {"compute_loss_func": {"compute_loss_func": loss}, "loss_type='dft'": {"loss_type": "dft"}}.get(other, {})
    with pytest.raises(ValueError, match=f"^there is a number_token_loss, and {other}.*: leave out one"):
        trainer_of(tmp_path, ROWS, MixedSharded, number_token_loss=loss, **given)


def test_a_trainers_label_smoothing_is_dropped_and_told(tmp_path: Path) -> None:
    """Unless both smooth alike."""
    loss = NumberTokenLoss(DIGITS, shift=True, label_smoothing=0.2)
    with pytest.warns(UserWarning, match=r"ignores label_smoothing_factor=0\.1 .*label_smoothing=0\.2: create"):
        trainer_of(tmp_path, ROWS, Mixed, number_token_loss=loss, label_smoothing_factor=0.1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*label_smoothing")
        trainer_of(tmp_path, ROWS, Mixed, number_token_loss=loss, label_smoothing_factor=0.2)


@pytest.mark.parametrize("kind", ["was", "ce"])
def test_both_terms_are_logged(kind: str, tmp_path: Path) -> None:
    """They add up to the loss, in training over two accumulated batches; without a number loss there is none."""
    how = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2, "max_steps": 1}
    loss = NumberTokenLoss(DIGITS, shift=True, kind=kind)
    trainer = trainer_of(tmp_path, ROWS[:2], Mixed, number_token_loss=loss, **how)
    before = trainer.evaluate()
    trainer.train()
    line = next(line for line in trainer.state.log_history if "loss" in line)
    assert {"ce", "ntl"} & line.keys() == ({"ce", "ntl"} if kind == "was" else {"ce"})
    for name in {"ce", "ntl"} & line.keys():
        assert line[name] == pytest.approx(before[f"eval_{name}"], rel=1e-6)
    assert line["loss"] == pytest.approx(line["ce"] + 0.3 * line.get("ntl", 0.0), rel=1e-4)
