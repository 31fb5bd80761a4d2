"""Objectives as runs build them: recomputed from the logits one example at a time, and heads in a checkpoint."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ntl.config import UserError
from ntl.config.loss import MTPConfig
from ntl.data.collate import token_collator
from ntl.models.mtp import add_heads
from ntl.results import read_record
from ntl.training.parts import RunParts
from ntl.training.record import METRICS, read_metrics
from ntl.training.train import train

FAMILIES = ["decoder", "t5"]


def _examples(parts: RunParts, count: int = 6) -> list[dict[str, np.ndarray]]:
    examples = list(parts.encoded("train").first(count))
    assert len({len(example["question_ids"]) for example in examples}) > 1
    assert len({len(example["answer_ids"]) for example in examples}) > 1
    return examples


def _batch(parts: RunParts, examples: list[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
    return token_collator(parts.model.config, parts.tokenizer)(examples)


@torch.no_grad()
def _log_probabilities(model: Any, example: dict[str, np.ndarray]) -> torch.Tensor:
    """(T, V): row t is what the model says of answer token t, from a forward over this example alone."""
    question, answer = (torch.tensor(example[name]).long()[None] for name in ("question_ids", "answer_ids"))
    if model.config.is_encoder_decoder:
        start = torch.tensor([[model.config.decoder_start_token_id]])
        logits = model(input_ids=question, decoder_input_ids=torch.cat([start, answer], dim=1)[:, :-1]).logits[0]
    else:
        everything = model(input_ids=torch.cat([question, answer], dim=1)).logits[0]
        logits = everything[question.shape[1] - 1 : -1]
    return logits.log_softmax(-1)


@pytest.mark.parametrize("loss", ["ntl_was", "ce"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_and_counts_by_hand(family: str, loss: str, parts: Callable[..., Any]) -> None:
    """CE of every answer token given what stands before it, and sum_k p_k |v_k - y| where that token is a digit.

    Beside CE alone the latter is told, too, and 0 would read as perfect.
    """
    made = parts(f"loss={loss}", dataset="multiplication", family=family)
    # Far from uniform, so that a label one place off costs something else.
    torch.manual_seed(7)
    for parameter in made.model.double().parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    objective = made.objective().eval()
    examples = _examples(made)
    digits = made.tokenizer.convert_tokens_to_ids(list("0123456789"))
    expected, diagnosed = [], []
    for example in examples:
        ce = ntl = mae = 0.0
        numbers = right = 0
        for row, label in zip(_log_probabilities(made.model, example), example["answer_ids"], strict=True):
            ce -= float(row[label])
            if label in digits:
                probabilities = row[digits].softmax(-1)
                distances = torch.tensor([abs(value - digits.index(label)) for value in range(10)])
                ntl += float((probabilities * distances).sum())
                mae += abs(float((probabilities * torch.arange(10.0)).sum()) - digits.index(label))
                right += digits.index(label) == int(probabilities.argmax())
                numbers += 1
        expected.append([ce, len(example["answer_ids"]), ntl, numbers, 0])
        diagnosed.append([ntl, right, mae, numbers])
    with torch.no_grad():
        found = objective(**_batch(made, examples))
    np.testing.assert_allclose(torch.stack(found.flat, dim=1).numpy(), expected, rtol=1e-5)
    assert all(numbers < length for _, length, _, numbers, _ in expected), "the end token is a label, too"
    np.testing.assert_allclose(objective.diagnosed, diagnosed, rtol=1e-5)
    assert 0 < sum(right for _, right, _, _ in diagnosed) < sum(numbers for *_, numbers in diagnosed)


@pytest.mark.slow
def test_a_checkpoint_is_decoded_and_continued(small: Callable[..., Any], tmp_path: Any) -> None:
    from ntl.training.predictor import restore

    own = ["objective=mtp", "model.n_layer=3", "objective.heads=3"]
    record = train(small(*own))
    parts, checkpoint = restore(record.parent)
    assert len(parts.model.mtp_heads) == 2
    assert parts.model.config.num_hidden_layers == 1
    stored = AutoModelForCausalLM.from_pretrained(checkpoint)  # an ordinary next-token model
    ids = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(stored(ids).logits, parts.model.eval()(ids).logits)
    with pytest.raises(UserError, match="it has 2 heads beside its own"):
        add_heads(stored, MTPConfig(heads=2), str(checkpoint))


@pytest.mark.slow
def test_shared_logits_fade_out_of_later_targets(small: Callable[..., Any]) -> None:
    """The number of weights is that of a next-token model; with the last heads gone, the loss is that of head 1."""
    own = ["objective=mtp", "objective.kind=shared", "objective.heads=3", "objective.head_schedule=annealed"]
    path = train(small(*own, "trainer.logging_steps=1"))
    first, *_, last = [line for line in read_metrics(path.parent / METRICS) if "loss" in line]
    assert first["loss"] > 2 * first["ce"]
    assert last["loss"] == pytest.approx(last["ce"] + 0.3 * last["ntl"], rel=1e-5)
    assert {"validation/ce/head2", "validation/ce/head3"} <= read_record(path).metrics.keys()
    with pytest.raises(UserError, match="no heads to draft with"):
        small(*own, "decoding=speculative")
