"""The ids that pad a batch and end an answer, of a tokenizer and a model that are taken as they are."""

from collections.abc import Sequence
from typing import Any


def pad_id(tokenizer: Any) -> int:
    """Return the id that fills up rows: the pad token's, or else the end token's, as masks tell padding apart."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def end_ids(model: Any, tokenizer: Any, also: Sequence[int] = ()) -> list[int]:
    """Return the ids at which an answer ends: the end token, those that the model names beside it, and ``also``."""
    own, end = own_end_ids(model), tokenizer.eos_token_id
    return list(dict.fromkeys([*(own if end in own else [] if end is None else [end]), *also]))


def own_end_ids(model: Any) -> list[int]:
    """Return the end tokens that the model's generation config, or else its config, names."""
    settings = [getattr(model, "generation_config", None), getattr(model, "config", None)]
    named = next((ids for each in settings if (ids := getattr(each, "eos_token_id", None)) is not None), [])
    return [named] if isinstance(named, int) else list(named)
