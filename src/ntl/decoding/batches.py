"""One loop over batches for every decoding, and the answers on disk that let an interrupted one continue."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ntl.config.decoding import DecodingConfig
from ntl.config.targets import build

# A plain dict, as answers are pickled between processes.
NOTHING: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """A decoded answer: its text and its token ids, with the end token if there is one and without padding.

    ``about`` holds further columns of its row in predictions.jsonl.
    """

    text: str
    token_ids: list[int]
    about: Mapping[str, Any] = NOTHING


Example = Mapping[str, Any]
Collate = Callable[[list[Example]], dict[str, torch.Tensor]]
# What ``decoding._target_`` returns: a batch and its inputs on the model's device -> one answer per example.
Read = Callable[[Sequence[Example], Mapping[str, torch.Tensor]], list[Answer]]


def batches(examples: Sequence[Example], size: int) -> list[list[int]]:
    """The indices of each batch's examples. Long questions come first, so that a batch has little padding."""
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]["question_ids"]))
    return [order[start : start + size] for start in range(0, len(order), size)]


@torch.inference_mode()
def decode(
    config: DecodingConfig,
    *,
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    collate: Collate,
    max_new_tokens: int,
    progress: Callable[[int], None] = lambda done: None,
    journal: "Journal | None" = None,
    **options: Any,
) -> list[Answer]:
    """Decode by ``config._target_``: one answer per example, in the order of the examples.

    Args:
        model: Put into evaluation mode meanwhile.
        examples: Encoded examples, decoded in ``batches``.
        collate: Makes the inputs of a batch, for example input_ids and attention_mask (B, S).
        max_new_tokens: Used where the config says 0; taken from the training data, never from the test answers.
        progress: Called after each batch with the number of examples that are done.
        journal: Stores the answers of each batch. Batches that it has already are not decoded again.
        options: Further arguments of the decoding itself.
    """
    was_training = model.training
    model.eval()
    limit = config.max_new_tokens or max_new_tokens
    read: Read = build(config, model=model, tokenizer=tokenizer, max_new_tokens=limit, **options)
    known = journal.answers if journal else {}
    done = journal.examples if journal else 0
    answers: dict[int, Answer] = {}
    for number, indices in enumerate(batches(examples, config.batch_size)):
        if number in known:
            answers.update(zip(indices, known[number], strict=True))
            continue
        batch = [examples[index] for index in indices]
        found = read(batch, {name: tensor.to(model.device) for name, tensor in collate(batch).items()})
        answers.update(zip(indices, found, strict=True))
        if journal:
            journal.add(number, found)
        done += len(indices)
        progress(done)
    model.train(was_training)
    return [answers[index] for index in range(len(examples))]


class Journal:
    """Answers on disk: a first line that says what they answer, then one line per batch.

    A line has the batch's index, its answers, and a sha256 of the first line, the index, the ids of the examples and
    the answers. Lines whose digest does not match, or that were cut off, are ignored.

    ``answers`` are the stored ones by batch index; none where the first line is not this ``key``.

    Args:
        batches: The ids of each batch's examples.
    """

    def __init__(self, path: Path, key: Mapping[str, Any], batches: Sequence[Sequence[str]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.batches = batches
        self.answers: dict[int, list[Answer]] = {}
        self._first = _line(key, sort_keys=True)
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        whole = [line for line in lines if line.endswith(b"\n")] if lines[:1] == [self._first] else []
        for line in whole[1:]:
            self.answers.update(self._read(line))
        with path.open("r+b" if lines else "wb") as file:
            file.truncate(sum(map(len, whole)))
            if not whole:
                file.write(self._first)

    @property
    def examples(self) -> int:
        """The number of examples in ``answers``."""
        return sum(map(len, self.answers.values()))

    def add(self, batch: int, answers: Sequence[Answer]) -> None:
        """Append to the file; ``answers`` stays as it was read."""
        with self.path.open("ab") as file:
            file.write(_line({"batch": batch, "sha256": self._digest(batch, answers), "answers": answers}))

    def _digest(self, batch: int, answers: Sequence[Answer]) -> str:
        return hashlib.sha256(self._first + _line([batch, self.batches[batch], answers])).hexdigest()

    def _read(self, line: bytes) -> dict[int, list[Answer]]:
        try:
            entry = json.loads(line)
            batch, answers = entry["batch"], [Answer(*fields) for fields in entry["answers"]]
            return {batch: answers} if entry["sha256"] == self._digest(batch, answers) else {}
        except (ValueError, TypeError, LookupError):
            return {}


def _line(value: Any, sort_keys: bool = False) -> bytes:
    return json.dumps(value, sort_keys=sort_keys).encode("ascii") + b"\n"
