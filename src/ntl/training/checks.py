"""Checks of the prepared data against the model and its decodings, before anything is trained or decoded."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ntl.config import DecodingConfig
from ntl.config.data import FileConfig
from ntl.config.decoding import TreeConfig
from ntl.config.trainer import is_decoded
from ntl.decoding.tree import ENDS, START, advance
from ntl.evaluation.interval import LEVEL, least_answers
from ntl.system.errors import UserError
from ntl.training.decode import max_new_tokens
from ntl.training.parts import RunParts

_RT_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")


def positions_of(model: Any) -> int | None:
    """How many tokens a model reads: question and answer together, or each where it has an encoder.

    None for one with relative positions.
    """
    return getattr(model.config, "max_position_embeddings", None)


def check_lengths(parts: RunParts, splits: Sequence[str] = ()) -> None:
    """Raise ``UserError`` unless every example, and every answer that may be generated, has a position in the model.

    ``splits`` are by default those of training, and the test splits.
    """
    positions = positions_of(parts.model)
    if positions is None:
        return
    dataset, limit = parts.dataset, parts.config.trainer.max_input_length
    intervals = any(each.interval_rows for each in (parts.config.decoding, *parts.config.beside.values()))
    decoded = (*dataset.test_splits, *(("validation",) if is_decoded(parts.config.trainer) or intervals else ()))
    generates = parts.model.can_generate() and dataset.metrics != "likelihood"
    generated = dict.fromkeys(decoded, max_new_tokens(parts) if generates else 0)
    for split in splits or dict.fromkeys(("train", "validation", *dataset.test_splits)):
        about = parts.encoded(split).about
        question = about["longest_question"]
        if parts.model.config.is_encoder_decoder:
            needed = max(question, about["longest_answer"], generated.get(split, 0))
        else:
            trained = 0 if splits and generated[split] else parts.longest_input(split)
            # The last generated token is not an input.
            needed = max(trained, question + generated.get(split, 0) - 1)
        if needed > positions and dataset.metrics == "likelihood":
            raise UserError(
                f"model={parts.config.model.name}: it reads {positions} tokens, and trainer.max_input_length={limit} "
                "packs more into a block; lower it, or take another model."
            )
        if needed > positions:
            lower = "decoding.max_new_tokens" if splits else f"trainer.max_input_length, now {limit}, below that"
            raise UserError(
                f"model={parts.config.model.name}: it reads {positions} tokens, and {dataset.name} {split} needs "
                f"{needed}, answers included, of them {question} for its longest question; lower {lower}, or take "
                "another model or tokenizer."
            )


def check_intervals(parts: RunParts, decodings: Mapping[str, DecodingConfig]) -> None:
    """UserError where a decoding asks for intervals (``interval_rows``) and there are too few validation answers."""
    for group, decoding in decodings.items():
        if 0 < min(decoding.interval_rows, len(parts.rows("validation"))) < (least := least_answers(LEVEL)):
            raise UserError(
                f"{group}.interval_rows={decoding.interval_rows}: intervals of 90% need {least} validation answers or "
                f"more, and {parts.dataset.name} has {len(parts.rows('validation'))}; raise it, or give more."
            )


def check_answers(parts: RunParts, decodings: Mapping[str, DecodingConfig]) -> None:
    """UserError for an answer of a file whose number the model's tokens, or a decoding by number, cannot write."""
    config = parts.config
    if not isinstance(config.dataset, FileConfig) or parts.dataset.metrics != "number":
        return
    trees = [f"{group}={each.name}" for group, each in decodings.items() if isinstance(each, TreeConfig)]
    if config.tokenizer.kind != "rt" and not trees:
        return
    for split in parts.dataset.splits:
        for row in parts.rows(split):
            number = parts.dataset.scored(row["answer"]).replace("\N{MINUS SIGN}", "-")
            is_rt = config.tokenizer.kind == "rt" and not _RT_NUMBER.fullmatch(number)
            if is_rt or (trees and advance(START, number) not in ENDS):
                chosen = f"tokenizer={config.tokenizer.name}" if is_rt else trees[0]
                remedy = "write it as digits and a point in the file"
                if config.dataset.answers == "number":
                    remedy = "dataset.number_format=auto writes it as digits and a point"
                raise UserError(f"{chosen}: the answer {number[:60]!r} of {row['id']} is read as another; {remedy}.")
