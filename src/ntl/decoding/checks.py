"""What a run's data and model must be for its decodings, checked before anything is trained or decoded."""

import re
from collections.abc import Mapping, Sequence

from ntl.config import DecodingConfig
from ntl.config.decoding import NumberHeadConfig, SpeculativeConfig, TreeConfig
from ntl.config.trainer import is_decoded
from ntl.data.sets.file import File
from ntl.decoding.speculative import check_window
from ntl.decoding.tree import ENDS, START, advance
from ntl.evaluation.interval import LEVEL, least_answers, one_of_each
from ntl.evaluation.rules import RULES
from ntl.numbers.numeral import MOST
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError
from ntl.system.messages import logger

# The original code allows ten tokens beyond the longest label; ours is the longest TRAINING label.
EXTRA_TOKENS = 10
RULE = RULES["default"]
_RT_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]{1,12}0*)?")  # twelve decimals have a token


def max_new_tokens(parts: RunParts) -> int:
    """How many tokens an answer may have: as in ``decoding``, else from the longest answer of the training data."""
    return parts.config.decoding.max_new_tokens or parts.encoded("train").about["longest_answer"] + EXTRA_TOKENS


def splits_of(parts: RunParts, decoding: DecodingConfig) -> tuple[str, ...]:
    """The test splits of a decoding. UserError for one that the data set does not have."""
    splits = parts.dataset.test_splits
    chosen = tuple(getattr(decoding, "splits", ())) or splits
    if unknown := [split for split in chosen if split not in splits]:
        raise UserError(
            f"decoding {decoding.name}, splits: {parts.dataset.name} has no test split {unknown[0]!r}; choose from "
            f"{', '.join(splits)}."
        )
    return chosen


def check_lengths(parts: RunParts, splits: Sequence[str] = ()) -> None:
    """Raise ``UserError`` unless every example, and every answer that may be generated, has a position in the model.

    ``splits``: by default train, validation and the test splits.
    """
    positions = getattr(parts.model.config, "max_position_embeddings", None)  # None: they are relative
    if positions is None:
        return
    config, dataset, limit = parts.config, parts.dataset, parts.config.trainer.max_input_length
    is_text = dataset.metrics == "likelihood"
    decodings = (config.decoding, *config.extra_decodings.values())
    decoded = dataset.test_splits
    if is_decoded(config.trainer) or any(decoding.interval_rows for decoding in decodings):
        decoded = (*decoded, "validation")
    generates = parts.model.can_generate() and not is_text
    longest = max(decoding.max_new_tokens or max_new_tokens(parts) for decoding in decodings) if generates else 0
    for split in splits or dict.fromkeys(("train", "validation", *dataset.test_splits)):
        about, answer = parts.encoded(split).about, longest if split in decoded else 0
        question = about["longest_question"]
        for decoding in decodings if answer else ():
            if isinstance(decoding, SpeculativeConfig):
                check_window(decoding, parts.model, question + (decoding.max_new_tokens or max_new_tokens(parts)))
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


def different_questions(parts: RunParts) -> Sequence[int]:
    """The indices of validation rows, one of each question."""
    return one_of_each([row.get("before", "") + row["question"] for row in parts.rows("validation")])


def check_decodings(parts: RunParts, decodings: Mapping[str, DecodingConfig]) -> None:
    """UserError where too few validation answers are there for intervals (``interval_rows``), or of ``check_scales``.

    Also for an answer of a file whose number the model's tokens, or a decoding by number, cannot write. That a decoding
    rounds answers of a file is said.
    """
    config, dataset = parts.config, parts.dataset
    count = len(different_questions(parts)) if any(how.interval_rows for how in decodings.values()) else 0
    if 0 < count < (rows := len(parts.rows("validation"))):
        logger.warning(
            f"validation: {rows:,} rows are of {count:,} different questions; intervals are from one row of each."
        )
    for group, decoding in decodings.items():
        if 0 < min(decoding.interval_rows, count) < (least := least_answers(LEVEL)):
            raise UserError(
                f"{group}.interval_rows={decoding.interval_rows}: intervals of 90% need {least} validation answers or "
                f"more, to different questions, and {dataset.name} has {count}; raise it, or give more."
            )
    scaled = {group: how for group, how in decodings.items() if how.interval_rows or how.interval_scale == "log"}
    check_scales(parts, {f"{group}.interval_scale": how.interval_scale for group, how in scaled.items()})
    trees = [f"{group}={how.name}" for group, how in decodings.items() if isinstance(how, TreeConfig)]
    rounds = [(group, how) for group, how in decodings.items() if how.name != "median"]
    rounding = {group: how.decimals for group, how in rounds if isinstance(how, NumberHeadConfig | TreeConfig)}
    is_rt, most = config.tokenizer.kind == "rt", 0
    if not isinstance(config.dataset, File) or dataset.metrics != "number" or not (is_rt or trees or rounding):
        return
    for row in (row for split in dataset.all_splits for row in parts.rows(split)):
        number = dataset.scored(row["answer"]).replace("\N{MINUS SIGN}", "-")
        most = max(most, len(number.partition(".")[2]))
        misread = [f"tokenizer={config.tokenizer.name}"] if is_rt and not _RT_NUMBER.fullmatch(number) else []
        if misread := [*misread, *(trees if advance(START, number) not in ENDS else [])]:
            remedy = "write it as digits and a point in the file"
            if re.fullmatch(r"[+-]?[0-9]+\.[0-9]+", number):
                remedy = "round it to 12 decimals in the file"
            elif config.dataset.answers == "number":
                remedy = "dataset.number_format=auto writes it as digits and a point"
            raise UserError(f"{misread[0]}: the answer {number[:60]!r} of {row['id']} is read as another; {remedy}.")
    for group, decimals in rounding.items():
        if decimals < most:
            remedy = "raise it" if decimals < MOST else "round them in the file, or write them in a smaller unit"
            logger.warning(f"{group}.decimals={decimals}: it rounds, and answers have up to {most} decimals; {remedy}.")


def check_scales(parts: RunParts, scales: Mapping[str, str]) -> None:
    """UserError where intervals are on the scale log and a validation answer is not above 0.

    ``scales`` are settings and their values. A line advises log where answers span more than a factor of 1,000.
    """
    rows = parts.rows("validation") if scales else []
    numbers = [(number, row["id"]) for row in rows if (number := RULE.extract(row["answer"])) is not None]
    (least, where), (largest, _) = min(numbers, default=(0, "")), max(numbers, default=(0, ""))
    for setting, scale in scales.items():
        if scale == "log" and numbers and least <= 0:
            raise UserError(
                f"{setting}=log: the answer {least} of {where} is not above 0, as such intervals need; take linear."
            )
    advised = [f"{setting}=log" for setting, scale in scales.items() if scale == "linear"]
    if advised and 0 < 1000 * least < largest:
        spans = f"validation: answers are from {least:.3g} to {largest:.3g}"
        logger.warning(f"{spans}; {' '.join(advised)} makes intervals relative to the answer.")
