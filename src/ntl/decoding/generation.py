"""Greedy and beam search through transformers' ``generate``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig

from ntl.config import DecodingConfig

Example = Mapping[str, Any]
Collate = Callable[[list[Example]], dict[str, torch.Tensor]]


def _batches(order: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


class Answer(NamedTuple):
    """A decoded answer: its text, and its tokens with the end token, if it ended, and without padding."""

    text: str
    token_ids: list[int]


def _until_end(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


@torch.inference_mode()
def generate(
    config: DecodingConfig,
    *,
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    collate: Collate,
    max_new_tokens: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Answer]:
    """One answer per example, in the order of the examples.

    Args:
        model: A transformers model with ``generate``.
        tokenizer: Its tokenizer.
        examples: Encoded examples; ``collate`` makes input_ids and attention_mask (B, S) of them, for a decoder
            padded on the left. Sorted by length first, so that a batch holds little padding.
        max_new_tokens: Used where the config says 0; from the training data, never from the test answers.
        progress: Told how many examples are done after each batch.
    """
    search = GenerationConfig(
        num_beams=config.num_beams,
        do_sample=False,
        max_new_tokens=config.max_new_tokens or max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=getattr(model.config, "decoder_start_token_id", None),
    )
    was_training = model.training
    model.eval()
    order = sorted(range(len(examples)), key=lambda index: -len(examples[index]["question_ids"]))
    answers: list[Answer] = [Answer("", [])] * len(order)
    done = 0
    for indices in _batches(order, config.batch_size):
        prompts = {name: ids.to(model.device) for name, ids in collate([examples[index] for index in indices]).items()}
        output = model.generate(**prompts, generation_config=search)
        skipped = 1 if model.config.is_encoder_decoder else prompts["input_ids"].shape[1]
        for index, ids in zip(indices, output[:, skipped:].tolist(), strict=True):
            ids = _until_end(ids, tokenizer.eos_token_id)
            answers[index] = Answer(tokenizer.decode(ids, skip_special_tokens=True).strip(), ids)
        done += len(indices)
        progress(done)
    model.train(was_training)
    return answers
