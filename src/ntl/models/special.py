"""The ids that pad a batch and end an answer, of a tokenizer and a model that are taken as they are."""

from collections.abc import Sequence
from typing import Any


def pad_id(tokenizer: Any) -> int:
    """Return the id that fills up rows: the pad token's, or the end token's where there is none.

    It may be that of the end token, as padding is told apart by masks, never by its id.
    """
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def end_ids(model: Any, tokenizer: Any, also: Sequence[int] = ()) -> list[int]:
    """Return the ids at which an answer ends: its tokenizer's end token, if any, and those that it names beside it.

    ``also``: such as the end of a turn of a chat template.
    """
    own, end = own_end_ids(model), tokenizer.eos_token_id
    return list(dict.fromkeys([*(own if end in own else [] if end is None else [end]), *also]))


def own_end_ids(model: Any) -> list[int]:
    """Return the end tokens that the model's generation config, or else its config, names."""
    settings = [getattr(model, "generation_config", None), getattr(model, "config", None)]
    named = next((ids for each in settings if (ids := getattr(each, "eos_token_id", None)) is not None), [])
    return [named] if isinstance(named, int) else list(named)
