"""Batches for models that predict a value: a regression head's, and a masked number's.

Shapes: B batch, S sequence length.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ntl.data.collate import Batch, Encoded, pad, pad_inputs
from ntl.numbers.scale import signed_log


@dataclass(frozen=True)
class RegressionCollator:
    """The question alone, and the number that its answer is.

    Returns input_ids and attention_mask (B, S), padded on the right, and labels (B,) float32, in the answer's unit.
    """

    pad_token_id: int

    def __call__(self, examples: Sequence[Encoded]) -> Batch:
        targets = [example["answer_values"][-1] for example in examples]
        return self.prompts(examples) | {"labels": torch.tensor(np.array(targets), dtype=torch.float32)}

    def prompts(self, examples: Sequence[Encoded]) -> Batch:
        """What a prediction is made from: input_ids and attention_mask (B, S)."""
        return pad_inputs([example["question_ids"] for example in examples], self.pad_token_id)

    def longest_input(self, about: Mapping[str, int]) -> int:
        """Tokens of the longest input of a split, of which ``about`` is ``EncodedDataset.about``."""
        return about["longest_question"]


@dataclass(frozen=True)
class MaskedNumberCollator:
    """Question and answer in one sequence, the answer's last number masked (paper, appendix on xVal).

    Returns input_ids and attention_mask (B, S); number_values (B, S) float32, by which embeddings are multiplied: the
    number at a number token, 1 elsewhere and at the mask; number_positions (B,), the masked position; labels (B,), the
    token that was there; number_labels (B,) float32, its value. Values are on the scale sign(x) ln(1 + |x|).
    """

    pad_token_id: int
    mask_token_id: int
    number_token_id: int

    def __call__(self, examples: Sequence[Encoded]) -> Batch:
        places = [self._last_number(example["answer_ids"]) for example in examples]
        targets = [example["answer_values"][place] for example, place in zip(examples, places, strict=True)]
        return self.prompts(examples) | {
            "labels": torch.full((len(examples),), self.number_token_id),
            "number_labels": torch.tensor(signed_ln(np.array(targets)), dtype=torch.float32),
        }

    def prompts(self, examples: Sequence[Encoded]) -> Batch:
        """What a prediction is made from: everything but the labels."""
        sequences, values, positions = [], [], []
        for example in examples:
            ids = np.concatenate([example["question_ids"], example["answer_ids"]])
            numbers = np.concatenate([example["question_values"], example["answer_values"]])
            numbers = np.where(ids == self.number_token_id, signed_ln(numbers), 1.0)
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
        """Tokens of the longest input of a split, the answer's end token included."""
        return about["longest_example"]

    def _last_number(self, ids: np.ndarray) -> int:
        return int(np.flatnonzero(ids == self.number_token_id)[-1])


def signed_ln(values: np.ndarray) -> np.ndarray:
    """sign(x) ln(1 + |x|), elementwise, float64."""
    return signed_log(values) * math.log(10)


def regression_collator(model_config: Any, tokenizer: Any) -> RegressionCollator:
    """The collator of a regression head, for its transformers config."""
    return RegressionCollator(model_config.pad_token_id)


def masked_number_collator(model_config: Any, tokenizer: Any) -> MaskedNumberCollator:
    """The collator of xVal, for its tokenizer."""
    return MaskedNumberCollator(tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.number_token_id)
