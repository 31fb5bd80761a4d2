"""The only place that pads, masks and shifts.

Shapes: B batch, S question length, T answer length with its end token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

IGNORE_INDEX = -100
Encoded = dict[str, np.ndarray]
Batch = dict[str, torch.Tensor]


def pad(rows: Sequence[np.ndarray], value: int, *, left: bool = False, dtype: Any = np.int64) -> torch.Tensor:
    """Rows of any lengths as one tensor (B, longest), filled up with ``value``."""
    width = max(len(row) for row in rows)
    padded = np.full((len(rows), width), value, dtype=dtype)
    for line, row in zip(padded, rows, strict=True):
        if left:
            line[width - len(row) :] = row
        else:
            line[: len(row)] = row
    return torch.from_numpy(padded)


def mask(lengths: Sequence[int], *, left: bool = False) -> torch.Tensor:
    """(B, longest) int64: 1 where a row of that length has a token, 0 on padding."""
    lengths_B1 = torch.tensor(lengths)[:, None]
    width = int(lengths_B1.max())
    positions = torch.arange(width)
    return (positions >= width - lengths_B1 if left else positions < lengths_B1).long()


def pad_inputs(rows: Sequence[np.ndarray], pad_token_id: int, *, left: bool = False) -> Batch:
    """input_ids and attention_mask (B, longest)."""
    return {
        "input_ids": pad(rows, pad_token_id, left=left),
        "attention_mask": mask([len(row) for row in rows], left=left),
    }


@dataclass(frozen=True)
class Seq2SeqCollator:
    """Question to the encoder, answer to the decoder.

    Returns input_ids and attention_mask (B, S), labels (B, T) with -100 on padding, and decoder_input_ids (B, T):
    the labels one step later behind the start token, so that the logits at t predict labels[t].
    """

    pad_token_id: int
    start_token_id: int

    def __call__(self, examples: Sequence[Encoded]) -> Batch:
        answers = [example["answer_ids"] for example in examples]
        decoder_inputs = [np.concatenate([[self.start_token_id], answer[:-1]]) for answer in answers]
        return self.prompts(examples) | {
            "decoder_input_ids": pad(decoder_inputs, self.pad_token_id),
            "labels": pad(answers, IGNORE_INDEX),
        }

    def prompts(self, examples: Sequence[Encoded]) -> Batch:
        """What generation starts from: input_ids and attention_mask (B, S)."""
        return pad_inputs([example["question_ids"] for example in examples], self.pad_token_id)


@dataclass(frozen=True)
class CausalCollator:
    """Question and answer in one sequence, labels on the answer alone.

    Returns input_ids, attention_mask and labels (B, S + T - 1). This is where a decoder's labels are shifted, and
    nowhere else: labels[t] is the token after input_ids[t], -100 while that is still the question, so that the logits
    at t predict labels[t]. The end token is a label and never an input.
    """

    pad_token_id: int
    pad_left: bool = False

    def __call__(self, examples: Sequence[Encoded]) -> Batch:
        inputs, labels = [], []
        for example in examples:
            question, answer = example["question_ids"], example["answer_ids"]
            inputs.append(np.concatenate([question, answer[:-1]]))
            labels.append(np.concatenate([np.full(len(question) - 1, IGNORE_INDEX), answer]))
        return pad_inputs(inputs, self.pad_token_id, left=self.pad_left) | {
            "labels": pad(labels, IGNORE_INDEX, left=self.pad_left),
        }

    def prompts(self, examples: Sequence[Encoded]) -> Batch:
        """What generation starts from: input_ids and attention_mask (B, S), padded on the left."""
        return pad_inputs([example["question_ids"] for example in examples], self.pad_token_id, left=True)

    def longest_input(self, about: Mapping[str, int]) -> int:
        """Tokens of the longest input of a split, of which ``about`` is ``EncodedDataset.about``."""
        return about["longest_example"] - 1


def token_collator(model_config: Any, tokenizer: Any) -> Seq2SeqCollator | CausalCollator:
    """The collator of a language model, for its transformers config."""
    if model_config.is_encoder_decoder:
        return Seq2SeqCollator(model_config.pad_token_id, model_config.decoder_start_token_id)
    return CausalCollator(model_config.pad_token_id)
