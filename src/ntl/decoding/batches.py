"""What all ways of decoding share: answers, and the order in which examples are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ntl.config import DecodingConfig

Example = Mapping[str, Any]
Collate = Callable[[list[Example]], dict[str, torch.Tensor]]


# A plain dict, as answers are pickled between processes.
NOTHING: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """A decoded answer: its text, and its tokens with the end token, if it ended, and without padding.

    ``about`` is what else a row of predictions.jsonl says of it.
    """

    text: str
    token_ids: list[int]
    about: Mapping[str, Any] = NOTHING


Read = Callable[[Sequence[Example], Mapping[str, torch.Tensor]], list[Answer]]


@torch.inference_mode()
def in_batches(
    config: DecodingConfig,
    *,
    model: Any,
    examples: Sequence[Example],
    collate: Collate,
    progress: Callable[[int], None],
    read: Read,
) -> list[Answer]:
    """One answer per example, in the order of the examples.

    Args:
        examples: Sorted by length first, so that a batch holds little padding.
        collate: Makes the inputs of a batch, which ``read`` gets on the model's device.
        progress: Told how many examples are done after each batch.
    """
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]["question_ids"]))
    answers: list[Answer] = [Answer("", [])] * len(order)
    for start in range(0, len(order), config.batch_size):
        indices = order[start : start + config.batch_size]
        batch = [examples[index] for index in indices]
        inputs = {name: tensor.to(model.device) for name, tensor in collate(batch).items()}
        for index, answer in zip(indices, read(batch, inputs), strict=True):
            answers[index] = answer
        progress(start + len(indices))
    model.train(was_training)
    return answers
