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

_RT_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]{1,12}0*)?")  # twelve decimals have a token


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
    config, dataset, limit = parts.config, parts.dataset, parts.config.trainer.max_input_length
    is_text = dataset.metrics == "likelihood"
    decodes = is_decoded(config.trainer) or any(
        each.interval_rows for each in (config.decoding, *config.beside.values())
    )
    longest = max_new_tokens(parts) if parts.model.can_generate() and not is_text else 0
    generated = dict.fromkeys((*dataset.test_splits, *(["validation"] if decodes else [])), longest)
    for split in splits or dict.fromkeys(("train", "validation", *dataset.test_splits)):
        about, answer = parts.encoded(split).about, generated.get(split, 0)
        question = about["longest_question"]
        if parts.model.config.is_encoder_decoder:
            needed = max(question, about["longest_answer"], answer)
        else:
            trained = 0 if splits and answer else parts.longest_input(split)
            needed = max(trained, question + answer - 1)  # the last generated token is not an input
        if needed <= positions:
            continue
        reads = f"model={config.model.name}: it reads {positions} tokens, and"
        if is_text:
            raise UserError(
                f"{reads} trainer.max_input_length={limit} packs more into a block; lower it, or take another model."
            )
        lower = "decoding.max_new_tokens" if splits else f"trainer.max_input_length, now {limit}, below that"
        raise UserError(
            f"{reads} {dataset.name} {split} needs {needed}, answers included, of them {question} for its longest "
            f"question; lower {lower}, or take another model or tokenizer."
        )


def check_decodings(parts: RunParts, decodings: Mapping[str, DecodingConfig]) -> None:
    """UserError where too few validation answers are there for intervals (``interval_rows``).

    Also for an answer of a file whose number the model's tokens, or a decoding by number, cannot write.
    """
    config, dataset = parts.config, parts.dataset
    for group, decoding in decodings.items():
        if 0 < min(decoding.interval_rows, len(parts.rows("validation"))) < (least := least_answers(LEVEL)):
            raise UserError(
                f"{group}.interval_rows={decoding.interval_rows}: intervals of 90% need {least} validation answers or "
                f"more, and {dataset.name} has {len(parts.rows('validation'))}; raise it, or give more."
            )
    trees = [f"{group}={each.name}" for group, each in decodings.items() if isinstance(each, TreeConfig)]
    is_rt = config.tokenizer.kind == "rt"
    if not isinstance(config.dataset, FileConfig) or dataset.metrics != "number" or not (is_rt or trees):
        return
    for row in (row for split in dataset.splits for row in parts.rows(split)):
        number = dataset.scored(row["answer"]).replace("\N{MINUS SIGN}", "-")
        misread = [f"tokenizer={config.tokenizer.name}"] if is_rt and not _RT_NUMBER.fullmatch(number) else []
        if misread := [*misread, *(trees if advance(START, number) not in ENDS else [])]:
            remedy = "write it as digits and a point in the file"
            if re.fullmatch(r"[+-]?[0-9]+\.[0-9]+", number):
                remedy = "round it to 12 decimals in the file"
            elif config.dataset.answers == "number":
                remedy = "dataset.number_format=auto writes it as digits and a point"
            raise UserError(f"{misread[0]}: the answer {number[:60]!r} of {row['id']} is read as another; {remedy}.")
