"""Greedy and beam search through transformers' ``generate``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from ntl.config import DecodingConfig
from ntl.decoding.batches import Collate, Example, in_batches
from ntl.decoding.journal import Answer, Journal


def _until_end(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


def generate(
    config: DecodingConfig,
    *,
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    collate: Collate,
    max_new_tokens: int,
    progress: Callable[[int], None] = lambda done: None,
    journal: Journal | None = None,
) -> list[Answer]:
    """One answer per example, in the order of the examples.

    Args:
        model: A transformers model with ``generate``.
        tokenizer: Its tokenizer.
        examples: Encoded examples; ``collate`` makes input_ids and attention_mask (B, S) of them, for a decoder
            padded on the left.
        max_new_tokens: Used where the config says 0; from the training data, never from the test answers.
        progress: Told how many examples are done after each batch.
        journal: Keeps what is answered; what it has already is not read again.
    """
    search = GenerationConfig(
        num_beams=config.num_beams,
        do_sample=False,
        max_new_tokens=config.max_new_tokens or max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
    )

    def read(batch: Sequence[Example], inputs: Mapping[str, torch.Tensor]) -> list[Answer]:
        output = model.generate(**inputs, generation_config=search)
        skipped = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        rows = [_until_end(ids, tokenizer.eos_token_id) for ids in output[:, skipped:].tolist()]
        return [Answer(tokenizer.decode(ids, skip_special_tokens=True).strip(), ids) for ids in rows]

    return in_batches(
        config, model=model, examples=examples, collate=collate, progress=progress, journal=journal, read=read
    )
