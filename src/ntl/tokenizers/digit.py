"""The digit-level segmentation, as an edit of the ``pre_tokenizer`` entry of a tokenizer.json."""

from typing import Any

Step = dict[str, Any]

# Not \d, which also takes Arabic-Indic and other Unicode digits: those are no number tokens.
DIGIT_SPLIT: Step = {"type": "Split", "pattern": {"Regex": "[0-9]"}, "behavior": "Isolated", "invert": False}


def steps_of(pre_tokenizer: Step | None) -> list[Step]:
    """The steps of a pre-tokenizer in order; a single step and none at all are lists too."""
    if pre_tokenizer is None:
        return []
    if pre_tokenizer["type"] == "Sequence":
        return list(pre_tokenizer["pretokenizers"])
    return [pre_tokenizer]


def sequence_of(steps: list[Step]) -> Step | None:
    """The inverse of :func:`steps_of`."""
    if len(steps) > 1:
        return {"type": "Sequence", "pretokenizers": steps}
    return steps[0] if steps else None


def merge_digits(pre_tokenizer: Step | None) -> Step | None:
    """The stock segmentation: what :func:`isolate_digits` added is taken out again."""
    return sequence_of([step for step in steps_of(pre_tokenizer) if step != DIGIT_SPLIT])


def isolate_digits(pre_tokenizer: Step | None) -> Step | None:
    """Make every ASCII digit a word of its own; nothing else is cut.

    Behind a metaspace step the word-start mark is already there, so ``2014`` becomes ``▁ 2 0 1 4``. A byte-level
    step would leave ``Ġ`` on the first digit, so it comes after the cut: `` 12`` becomes ``Ġ 1 2``. One that puts a
    space before what it is given (RoBERTa's) would do so to every digit, so the cut comes behind it.
    """
    steps = steps_of(merge_digits(pre_tokenizer))
    byte_level = (i for i, step in enumerate(steps) if step["type"] == "ByteLevel" and not step["add_prefix_space"])
    at = next(byte_level, len(steps))
    return sequence_of([*steps[:at], DIGIT_SPLIT, *steps[at:]])
