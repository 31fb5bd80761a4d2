"""What all ways of decoding share: the order in which examples are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ntl.config import DecodingConfig
from ntl.decoding.journal import Answer, Journal

Example = Mapping[str, Any]
Collate = Callable[[list[Example]], dict[str, torch.Tensor]]
Read = Callable[[Sequence[Example], Mapping[str, torch.Tensor]], list[Answer]]


def batches(examples: Sequence[Example], size: int) -> list[list[int]]:
    """The indices of each batch's examples, the longest questions first, so that a batch holds little padding."""
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]["question_ids"]))
    return [order[start : start + size] for start in range(0, len(order), size)]


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
        examples: Read in ``batches``.
        collate: Makes the inputs of a batch, which ``read`` gets on the model's device.
        progress: Told how many examples are done after each batch.
        journal: Of these batches. It gets every one; those that it has are not read again.
    """
    was_training = model.training
    model.eval()
    known = journal.answers if journal else {}
    done = journal.examples if journal else 0
    answers: list[Answer] = [Answer("", [])] * len(examples)
    for number, indices in enumerate(batches(examples, config.batch_size)):
        found = known.get(number)
        if found is None:
            batch = [examples[index] for index in indices]
            inputs = {name: tensor.to(model.device) for name, tensor in collate(batch).items()}
            found = read(batch, inputs)
        for index, answer in zip(indices, found, strict=True):
            answers[index] = answer
        if number in known:
            continue
        if journal:
            journal.add(number, found)
        done += len(indices)
        progress(done)
    model.train(was_training)
    return answers
