"""What all ways of decoding share: the order in which examples are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ntl.config import DecodingConfig
from ntl.decoding.journal import Answer, Journal

Example = Mapping[str, Any]
Collate = Callable[[list[Example]], dict[str, torch.Tensor]]
Read = Callable[[Sequence[Example], Mapping[str, torch.Tensor]], list[Answer]]


@torch.inference_mode()
def in_batches(
    config: DecodingConfig,
    *,
    model: Any,
    examples: Sequence[Example],
    collate: Collate,
    progress: Callable[[int], None],
    journal: Journal | None = None,
    read: Read,
) -> list[Answer]:
    """One answer per example, in the order of the examples.

    Args:
        examples: Sorted by length first, so that a batch holds little padding.
        collate: Makes the inputs of a batch, which ``read`` gets on the model's device.
        progress: Told how many examples are done after each batch.
        journal: Gets every batch; those that it has are not read again.
    """
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]["question_ids"]))
    answers: list[Answer] = [Answer("", [])] * len(order)
    done = journal.answers if journal else []
    for index, answer in zip(order, done, strict=False):
        answers[index] = answer
    for start in range(len(done), len(order), config.batch_size):
        indices = order[start : start + config.batch_size]
        batch = [examples[index] for index in indices]
        inputs = {name: tensor.to(model.device) for name, tensor in collate(batch).items()}
        found = read(batch, inputs)
        for index, answer in zip(indices, found, strict=True):
            answers[index] = answer
        if journal:
            journal.add(found)
        progress(start + len(indices))
    model.train(was_training)
    return answers
