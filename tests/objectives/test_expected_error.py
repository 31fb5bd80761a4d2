"""The expected error of whole answers in training: its prompts, targets, counts, and a row by itself."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPTNeoForCausalLM
from transformers.models.t5.modeling_t5 import T5LayerNorm
from tree_models import TreeTokenizer, tiny

from ntl.config.loss import ExpectedErrorConfig
from ntl.decoding.expected_error import expected_error, number_masses
from ntl.decoding.tree import NumberTokens
from ntl.losses import NumberTokenLoss, cross_entropy
from ntl.numbers import NumberVocabulary
from ntl.objectives.expected_error import ExpectedError

NAMES = ["<pad>", "</s>", "x", " ", "-", ".", *"0123456789"]
VOCAB = NumberVocabulary.from_values([float("nan")] * 6 + list(range(10)))
LIMITS = {"num_beams": 50, "max_new_tokens": 5}


TOKENS = NumberTokens.from_tokenizer(TreeTokenizer(NAMES))


def wrapped(network: Any) -> ExpectedError:
    config = ExpectedErrorConfig(weight=0.3, kind="crps", outside=0.5, num_beams=50)
    given: dict[str, Any] = {"model": network, "loss": NumberTokenLoss(VOCAB, shift=False, kind="ce")}
    given["error"] = partial(expected_error, kind=config.kind, outside=config.outside)
    return ExpectedError(config, tokens=TOKENS, masses=partial(number_masses, tokens=TOKENS, **LIMITS), **given)


# Question, answer and its number; the third is none, and the last has no label.
ROWS = [("xx 7x", "12", 12.0), ("x", " -3.5", -3.5), ("x-x", "1x", None), ("7", "0", 0.0), ("xxx", "", None)]


def error_of(objective: ExpectedError, question: str, number: float | None) -> Tensor:
    """Of a row alone, whose prompt has no padding."""
    if number is None:
        return torch.zeros((), dtype=torch.float64)
    ids = torch.tensor([[NAMES.index(each) for each in question]])
    found = number_masses(objective.model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, TOKENS, **LIMITS)
    return expected_error(*found, found[0].new_tensor([number]), kind="crps", outside=0.5)[0]


def of_a_decoder() -> dict[str, Tensor]:
    """As `CausalCollator` makes it: padded on the right, labels shifted."""
    ids = torch.zeros(len(ROWS), 10, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for row, (question, answer, _) in enumerate(ROWS):
        written = [*map(NAMES.index, question + answer), 1]
        ids[row, : len(written) - 1] = torch.tensor(written[:-1])
        mask[row, : len(written) - 1] = 1
        if answer:
            labels[row, len(question) - 1 : len(written) - 1] = torch.tensor(written[len(question) :])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def of_an_encoder() -> dict[str, Tensor]:
    """Whose questions an encoder reads, and the answers are those of the decoder."""
    ids, labels = torch.zeros(len(ROWS), 6, dtype=torch.long), torch.full((len(ROWS), 6), -100)
    for row, (question, answer, _) in enumerate(ROWS):
        ids[row, : len(question)] = torch.tensor([*map(NAMES.index, question)])
        if answer:
            labels[row, : len(answer) + 1] = torch.tensor([*map(NAMES.index, answer), 1])
    inputs = torch.nn.functional.pad(labels[:, :-1].clamp(min=0), (1, 0))
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels, "decoder_input_ids": inputs}


MODELS: dict[str, dict[str, Any]] = {"decoder": {}, "encoder_decoder": {}, "windows": {}}
MODELS["fixed_mask"] = {"max_position_embeddings": 11, "seed": 0}  # it counts what is hidden


def batch_for(name: str) -> dict[str, Tensor]:
    return of_an_encoder() if name == "encoder_decoder" else of_a_decoder()


@pytest.mark.parametrize("name", MODELS)
def test_the_total_and_its_gradient_are_those_of_the_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def normed(self: Any, states: Tensor) -> Tensor:  # T5's own is of float32
        return self.weight * states * torch.rsqrt(states.square().mean(-1, keepdim=True) + self.variance_epsilon)

    monkeypatch.setattr(T5LayerNorm, "forward", normed)
    objective, given = wrapped(tiny(name, vocab_size=len(NAMES), **MODELS[name])).train(), batch_for(name)
    counts = objective.count(given["labels"])
    assert counts.tolist() == [int((given["labels"] != -100).sum()), 3]
    joint = objective(**given, counts=counts)
    logits = objective.model(**{name: each for name, each in given.items() if name != "labels"}).logits
    errors = torch.stack([error_of(objective, question, number) for question, _, number in ROWS])
    expected = cross_entropy(logits, given["labels"]) + 0.3 * errors.sum() / 3
    torch.testing.assert_close(joint.total, expected)
    torch.testing.assert_close(joint.number.sum, errors.sum().detach())
    parameters = list(objective.model.parameters())
    ours, theirs = torch.autograd.grad(joint.total, parameters), torch.autograd.grad(expected, parameters)
    rounding = 1e-5 if isinstance(objective.model, GPTNeoForCausalLM) else 1e-7  # its attention is of float32
    torch.testing.assert_close(ours, theirs, rtol=rounding, atol=rounding / 100)
    assert any(each.any() for each in theirs)

    rows = [{name: each[row : row + 1] for name, each in given.items()} for row in range(len(ROWS))]
    parts = [objective(**row, counts=counts) for row in rows]
    torch.testing.assert_close(sum(part.total for part in parts), expected)
    with torch.no_grad():  # in evaluation there is one value for each example
        joint = objective.eval()(**given)
    torch.testing.assert_close(joint.number.sum, errors.detach())
    assert joint.number.count.tolist() == [1, 1, 0, 1, 0]
    assert joint.total.shape == (5,)


def test_a_loss_that_is_not_finite_is_returned() -> None:
    """A trainer stops at it, and names the step: no error of the search comes before that."""
    objective, given = wrapped(tiny("decoder", vocab_size=len(NAMES))), of_a_decoder()
    objective.model.transformer.wte.weight.data[NAMES.index("7")] = torch.nan
    for mode in (True, False):
        assert objective.train(mode)(**given).total.isnan().any()


@pytest.mark.parametrize("name", ["decoder", "encoder_decoder"])
def test_a_prompt_is_read_once(name: str) -> None:
    """And a decoder keeps it once: the prefixes of an example are one row."""
    objective, given, read = wrapped(tiny(name, vocab_size=len(NAMES))).train(), batch_for(name), []
    objective(**given, counts=objective.count(given["labels"]))  # what is tried once for a model is tried here
    for each in objective.model.modules():
        if isinstance(each, torch.nn.Embedding) and each.num_embeddings == len(NAMES):
            each.register_forward_hook(lambda _, ids, __: read.append(ids[0].shape))
    objective(**given, counts=objective.count(given["labels"]))
    ids = [given[name].shape for name in ("input_ids", "decoder_input_ids") if name in given]
    assert read[: len(ids)] == ids
    start, *steps = read[len(ids) :]
    assert start == (3, 1)  # three rows write a number
    if name == "decoder":
        assert {rows for rows, _ in steps} == {3}
    else:
        assert {width for _, width in steps} == {1}
