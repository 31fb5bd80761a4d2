"""Search by transformers' ``generate``: greedy or beam search by our settings."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor

from ntl.config.decoding import DecodingConfig
from ntl.decoding.batches import Answer, Example, Read, answer_of, checked
from ntl.decoding.digit_median import DigitMedian
from ntl.models.interface import end_ids, pad_id

# Settings of a generation config that change no answer, or that the tokenizer or the data decide.
_IGNORED = {"_from_model_config", "transformers_version", "use_cache", "return_dict_in_generate"}
_IGNORED |= {"output_attentions", "output_hidden_states", "output_scores", "output_logits"}
_IGNORED |= {"num_return_sequences", "max_length", "max_new_tokens"}
_IGNORED |= {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}


def digit_median(config: DecodingConfig, *, tokenizer: Any, **given: Any) -> Read:
    """Greedy search in which a digit is the median of the digits' distribution (`DigitMedian`)."""
    return generate(config, tokenizer=tokenizer, processors=[DigitMedian(tokenizer)], **given)


def generate(
    config: DecodingConfig,
    *,
    model: Any,
    tokenizer: Any,
    max_new_tokens: int,
    also: Sequence[int] = (),
    processors: Sequence[LogitsProcessor] = (),
) -> Read:
    """Greedy or beam search. The generation config in the model's folder has no effect (``own_settings``).

    ``also``: Tokens that end an answer besides its end tokens. ``processors`` change the logits of each step.
    """
    own, ends = getattr(model, "generation_config", None), end_ids(model, tokenizer, also)
    start = getattr(model.config, "decoder_start_token_id", None)
    search = GenerationConfig(
        num_beams=config.num_beams,
        do_sample=False,
        max_new_tokens=max_new_tokens,
        pad_token_id=pad_id(tokenizer),
        eos_token_id=ends or None,
        bos_token_id=getattr(own, "bos_token_id", None),
        decoder_start_token_id=getattr(own, "decoder_start_token_id", None) if start is None else start,
    )
    steps = [lambda _, logits: checked(logits), *processors]

    def read(batch: Sequence[Example], inputs: Mapping[str, torch.Tensor]) -> list[Answer]:
        # transformers would take what ``search`` leaves open from the model's own config.
        own, model.generation_config = model.generation_config, GenerationConfig()
        try:
            output = model.generate(**inputs, generation_config=search, logits_processor=[*steps])
        finally:
            model.generation_config = own
        skipped = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        rows = [until_end(ids, ends) for ids in output[:, skipped:].tolist()]
        return [answer_of(tokenizer, ids, ends, max_new_tokens) for ids in rows]

    return read


def own_settings(model: Any, num_beams: int) -> dict[str, Any]:
    """Search settings of the model's own generation config that differ from the defaults and from ``num_beams``.

    ``generate`` uses none of them; transformers alone would use them for everything that is not set explicitly.
    """
    usual = {**GenerationConfig._get_default_generation_params(), "num_beams": num_beams}
    own = model.generation_config.to_diff_dict() if model.can_generate() else {}
    return {name: own[name] for name in sorted(own) if name not in _IGNORED and own[name] != usual.get(name)}


def until_end(ids: list[int], ends: Sequence[int]) -> list[int]:
    """Return the ids up to the first of the end tokens, with it."""
    return next((ids[: place + 1] for place, token in enumerate(ids) if token in ends), ids)
