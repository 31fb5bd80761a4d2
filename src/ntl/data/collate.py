"""Examples to padded batches.

Padding is told apart by the attention mask and by labels of -100, never by its id, which may be the end token's.
``prompts`` are inputs to decode from; ``longest_input`` is the number of tokens in the longest input of a split, of
which ``about`` belongs to its ``EncodedDataset``.

Shapes: B batch, S sequence length (the question's unless stated), T answer length with its end token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from ntl.config.loss import MaskConfig
from ntl.losses.rows import IGNORE_INDEX, LOSS_WEIGHTS
from ntl.models.interface import pad_id
from ntl.numbers.text import signed_log
from ntl.objectives.masking import COPIES, with_copies

EncodedExample = dict[str, np.ndarray]
Batch = dict[str, torch.Tensor]
LN_10 = math.log(10)


def pad(rows: Sequence[np.ndarray], value: int, *, left: bool = False, dtype: Any = np.int64) -> torch.Tensor:
    """Rows of any lengths as one tensor (B, longest), padded with ``value``. pad_sequence takes 5 times as long."""
    width = max(map(len, rows))
    padded = np.full((len(rows), width, *np.shape(rows[0])[1:]), value, dtype=dtype)
    for line, row in zip(padded, rows, strict=True):
        start = width - len(row) if left else 0
        line[start : start + len(row)] = row
    return torch.from_numpy(padded)


def pad_inputs(rows: Sequence[np.ndarray], pad_token_id: int, *, left: bool = False) -> Batch:
    """input_ids and attention_mask, both (B, longest) int64."""
    masks = [np.ones(len(row), np.int64) for row in rows]
    return {"input_ids": pad(rows, pad_token_id, left=left), "attention_mask": pad(masks, 0, left=left)}


def pad_labels(labels: Sequence[np.ndarray], examples: Sequence[EncodedExample]) -> Batch:
    """The labels (B, T), which end as the answers do, and their weights, (B, T) or (B, T, 2) float32, if any."""
    batch = {"labels": pad(labels, IGNORE_INDEX)}
    if "answer_weights" in examples[0]:
        tails = [example["answer_weights"] for example in examples]
        hidden = [np.zeros((len(row) - len(tail), *tail.shape[1:])) for row, tail in zip(labels, tails, strict=True)]
        weights = [np.concatenate(pair) for pair in zip(hidden, tails, strict=True)]
        batch[LOSS_WEIGHTS] = pad(weights, 0, dtype=np.float32)
    return batch


@dataclass(frozen=True)
class QuestionCollator:
    """The question alone: input_ids and attention_mask (B, S)."""

    left: ClassVar[bool] = False  # the side of the padding of prompts
    pad_token_id: int

    def prompts(self, examples: Sequence[EncodedExample]) -> Batch:
        return pad_inputs([example["question_ids"] for example in examples], self.pad_token_id, left=self.left)

    def longest_input(self, about: Mapping[str, int]) -> int:
        return about["longest_question"]


@dataclass(frozen=True)
class Seq2SeqCollator(QuestionCollator):
    """Question to the encoder, answer to the decoder.

    Returns also labels (B, T) with -100 on padding, and decoder_input_ids (B, T): the labels one step later behind the
    start token, so that the logits at t predict labels[t].
    """

    start_token_id: int

    def __call__(self, examples: Sequence[EncodedExample]) -> Batch:
        answers = [example["answer_ids"] for example in examples]
        decoder_inputs = [np.concatenate([[self.start_token_id], answer[:-1]]) for answer in answers]
        batch = self.prompts(examples) | {"decoder_input_ids": pad(decoder_inputs, self.pad_token_id)}
        return batch | pad_labels(answers, examples)


@dataclass(frozen=True)
class RegressionCollator(QuestionCollator):
    """The question as input, the value of its answer as target: also returns labels (B,) float32."""

    def __call__(self, examples: Sequence[EncodedExample]) -> Batch:
        targets = [example["answer_values"][-1] for example in examples]
        return self.prompts(examples) | {"labels": torch.tensor(np.array(targets), dtype=torch.float32)}


@dataclass(frozen=True)
class CausalCollator(QuestionCollator):
    """Question and answer in one sequence, labels on the answer only.

    Returns input_ids, attention_mask and labels (B, S + T - 1). The labels are shifted here: labels[t] is the token
    after input_ids[t], or -100 where that is part of the question, so that the logits at t predict labels[t]. The end
    token is a label and never an input.
    """

    left = True

    def __call__(self, examples: Sequence[EncodedExample]) -> Batch:
        inputs, labels = [], []
        for example in examples:
            question, answer = example["question_ids"], example["answer_ids"]
            inputs.append(np.concatenate([question, answer[:-1]]))
            labels.append(np.concatenate([np.full(len(question) - 1, IGNORE_INDEX), answer]))
        return pad_inputs(inputs, self.pad_token_id) | pad_labels(labels, examples)

    def longest_input(self, about: Mapping[str, int]) -> int:
        return about["longest_example"] - 1


@dataclass(frozen=True)
class CopyCollator(CausalCollator):
    """`CausalCollator` whose batches have a second copy of each example, the answer of which is to be masked.

    The copies are made by `with_copies`; the end token stands between an example and its copy. The batch also has
    ``COPIES``.
    """

    min_answer: int
    joined: bool

    def __call__(self, examples: Sequence[EncodedExample]) -> Batch:
        whole = []
        for question, answer in ((example["question_ids"], example["answer_ids"]) for example in examples):
            labels = np.concatenate([np.full(len(question), IGNORE_INDEX), answer])
            whole.append((np.concatenate([question, answer]), labels))
        inputs, labels, copies = zip(*with_copies(whole, self.min_answer, joined=self.joined), strict=True)
        # The end token is an input only where a copy has one before or behind it.
        ends = [len(row) - (not length) for row, (_, _, length) in zip(inputs, copies, strict=True)]
        labels = [np.append(row[1:], IGNORE_INDEX)[:end] for row, end in zip(labels, ends, strict=True)]
        inputs = [row[:end] for row, end in zip(inputs, ends, strict=True)]
        batch = {"labels": pad(labels, IGNORE_INDEX), COPIES: torch.tensor(copies)}
        return pad_inputs(inputs, self.pad_token_id) | batch

    def longest_input(self, about: Mapping[str, int]) -> int:
        if about["longest_answer"] - 1 <= self.min_answer:
            return super().longest_input(about)
        return about["longest_example"] * (2 if self.joined else 1)


def token_collator(model_config: Any, tokenizer: Any) -> Seq2SeqCollator | CausalCollator:
    if model_config.is_encoder_decoder:
        return Seq2SeqCollator(pad_id(tokenizer), model_config.decoder_start_token_id)
    return CausalCollator(pad_id(tokenizer))


def training_collator(collator: Any, mask: MaskConfig) -> Any:
    """Return the collator of training examples: ``collator`` itself, or with ``mask.copy`` one that adds copies."""
    if not mask.fraction or mask.copy == "none":
        return collator
    return CopyCollator(collator.pad_token_id, mask.min_answer, mask.copy == "concatenate")


@dataclass(frozen=True)
class MaskedNumberCollator:
    """Question and answer in one sequence, the answer's last number masked (paper, appendix on xVal).

    Returns input_ids and attention_mask (B, S); number_values (B, S) float32, by which embeddings are multiplied: the
    number at a number token, 1 elsewhere and at the mask; number_positions (B,), the masked position; labels (B,), the
    token that it replaces; number_labels (B,) float32, its value. Values are on the scale sign(x) ln(1 + |x|).
    """

    pad_token_id: int
    mask_token_id: int
    number_token_id: int

    def __call__(self, examples: Sequence[EncodedExample]) -> Batch:
        places = [self._last_number(example["answer_ids"]) for example in examples]
        targets = [example["answer_values"][place] for example, place in zip(examples, places, strict=True)]
        return self.prompts(examples) | {
            "labels": torch.full((len(examples),), self.number_token_id),
            "number_labels": torch.tensor(signed_log(np.array(targets)) * LN_10, dtype=torch.float32),
        }

    def prompts(self, examples: Sequence[EncodedExample]) -> Batch:
        sequences, values, positions = [], [], []
        for example in examples:
            ids = np.concatenate([example["question_ids"], example["answer_ids"]])
            numbers = np.concatenate([example["question_values"], example["answer_values"]])
            numbers = np.where(ids == self.number_token_id, signed_log(numbers) * LN_10, 1.0)
            position = len(example["question_ids"]) + self._last_number(example["answer_ids"])
            ids[position], numbers[position] = self.mask_token_id, 1.0
            sequences.append(ids)
            values.append(numbers)
            positions.append(position)
        return pad_inputs(sequences, self.pad_token_id) | {
            "number_values": pad(values, 1, dtype=np.float32),
            "number_positions": torch.tensor(positions),
        }

    def longest_input(self, about: Mapping[str, int]) -> int:
        return about["longest_example"]

    def _last_number(self, ids: np.ndarray) -> int:
        return int(np.flatnonzero(ids == self.number_token_id)[-1])


def regression_collator(model_config: Any, tokenizer: Any) -> RegressionCollator:
    return RegressionCollator(pad_id(tokenizer))


def masked_number_collator(model_config: Any, tokenizer: Any) -> MaskedNumberCollator:
    return MaskedNumberCollator(pad_id(tokenizer), tokenizer.mask_token_id, tokenizer.number_token_id)
