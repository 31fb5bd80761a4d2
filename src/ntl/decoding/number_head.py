"""Answers of models that predict a value: one forward pass, nothing is generated.

Shapes: B batch.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import torch

from ntl.config.decoding import NumberHeadConfig
from ntl.decoding.batches import Answer, Example, Read, checked
from ntl.models.interface import target_scale
from ntl.numbers import format_number


def read_sequences(config: NumberHeadConfig, *, model: Any, **_: Any) -> Read:
    """The single output of a sequence classifier, in the unit of the answers, to ``config.decimals`` decimals."""

    def read(batch: Sequence[Example], inputs: Mapping[str, torch.Tensor]) -> list[Answer]:
        outputs_B = checked(model(**inputs, use_cache=False).logits).squeeze(-1)
        mean, unit = target_scale(model.config)
        return [Answer(write_value(mean + unit * value, config.decimals), []) for value in outputs_B.double().tolist()]

    return read


def read_masks(config: NumberHeadConfig, *, model: Any, tokenizer: Any, **_: Any) -> Read:
    """The number head at the mask, off the scale sign(x) ln(1 + |x|), to ``config.decimals`` decimals.

    Only the answer's last number is predicted. The text around it was part of the input and is part of the prediction:
    empty where an answer is one number, its minus with the sign rule of the original (``ntl.tokenizers.xval``).
    """
    number_token_id = tokenizer.number_token_id

    def answer(example: Example, value: float) -> Answer:
        ids = example["answer_ids"]
        known = example["answer_values"][ids == number_token_id][:-1].tolist()
        predicted = write_value(value, config.decimals)
        numerals = [*(format_number(Decimal(repr(number))) for number in known), predicted]
        return Answer(tokenizer.write(ids.tolist(), numerals) if predicted else "", [])

    def read(batch: Sequence[Example], inputs: Mapping[str, torch.Tensor]) -> list[Answer]:
        scaled_B = checked(model(**inputs).numbers.double().unsqueeze(-1)).squeeze(-1)
        values = (scaled_B.sign() * scaled_B.abs().expm1()).tolist()
        return [answer(example, value) for example, value in zip(batch, values, strict=True)]

    return read


def write_value(value: float, decimals: int) -> str:
    """A number without trailing zeros, halves rounded to even; "" (no answer) for one that is not finite."""
    return format_number(Decimal(format(value, f".{decimals}f"))) if math.isfinite(value) else ""
