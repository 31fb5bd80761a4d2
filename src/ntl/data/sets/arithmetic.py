"""DeepMind mathematics, module arithmetic__add_sub_multiple: the set of the paper's ablations (Tables 2 and 3).

As the authors' script did, but seeded: the pairs of each difficulty are shuffled, the first 33,333 are for training,
the next 1,000 for validation; ``interpolate`` is the module's own test file, ``extrapolate`` that of
arithmetic__add_sub_multiple_longer, 10,000 pairs each. Smaller counts take a prefix of the same order. Rows of train
and validation go easy, medium, hard, easy, ..., so that every prefix has the three difficulties in equal parts. A few
easy questions occur twice in the generator's output, as in the authors' set; no test question occurs in training.
"""

import re
from itertools import chain
from pathlib import Path

import numpy as np

from ntl.config.data import ArithmeticConfig
from ntl.data.dataset import Log, Material, TextDataset, numbered
from ntl.data.files import Pair
from ntl.data.sets.deepmind import ORIGIN, find_texts

MODULE = "arithmetic__add_sub_multiple"
TRAIN = tuple(f"train-{difficulty}/{MODULE}.txt" for difficulty in ("easy", "medium", "hard"))
INTERPOLATE = f"interpolate/{MODULE}.txt"
EXTRAPOLATE = f"extrapolate/{MODULE}_longer.txt"
TEMPLATE = re.compile(r"What is (?:the value of )?(?P<asked>.+)\?|(?:Calculate|Evaluate) (?P<told>.+)\.|(?P<bare>.+)")
TOKEN = re.compile(r" *([0-9]+|[-+()])")


class Arithmetic(TextDataset):
    """Sums of several integers with parentheses; every answer is recomputed before it is used."""

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    origin = ORIGIN
    config: ArithmeticConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows from the first source that has all five files; UserError names file and line of a wrong answer."""
        config = self.config
        train, validation = config.train_rows_per_difficulty, config.validation_rows_per_difficulty
        wanted = {
            **dict.fromkeys(TRAIN, train + validation),
            **dict.fromkeys((INTERPOLATE, EXTRAPOLATE), config.test_rows),
        }
        texts = find_texts(wanted, data_dir, log, download=download)
        log(f"arithmetic: checking {sum(wanted.values())} answers")
        used: dict[str, list[Pair]] = {}
        for stream, (name, count) in enumerate(wanted.items()):
            order = texts.shuffled(name, config.seed, stream, count) if name in TRAIN else np.arange(count)
            used[name] = list(texts.checked(name, order, wrong_line))
        splits = {
            "train": interleaved([used[name][:train] for name in TRAIN]),
            "validation": interleaved([used[name][train:] for name in TRAIN]),
            "interpolate": used[INTERPOLATE],
            "extrapolate": used[EXTRAPOLATE],
        }
        return Material({split: numbered(split, pairs) for split, pairs in splits.items()}, texts.source)

    def shortcut(self, question: str) -> str:
        return answer_without_parentheses(question)


def wrong_line(question: str, answer: str) -> tuple[int, str] | None:
    """Which line of a pair is wrong, 1 or 2, and why."""
    try:
        expected = answer_of(question)
    except ValueError as error:
        return 1, f"{question!r}: {error}"
    return None if answer == expected else (2, f"the answer {answer!r} is wrong, {expected} is right")


def interleaved(parts: list[list[Pair]]) -> list[Pair]:
    """First of each part, second of each, and so on; the parts are of one length."""
    return list(chain.from_iterable(zip(*parts, strict=True)))


def answer_of(question: str) -> str:
    """The answer to a question of arithmetic__add_sub_multiple (or ..._longer); ValueError if it is none."""
    return str(value_of(_expression(question)))


def answer_without_parentheses(question: str) -> str:
    """What the answer would be if there were no parentheses in it; ValueError as for ``answer_of``."""
    return str(value_of(_expression(question).replace("(", "").replace(")", "")))


def _expression(question: str) -> str:
    match = TEMPLATE.fullmatch(question)
    if match is None:
        raise ValueError("not a sum")
    return match["asked"] or match["told"] or match["bare"]


def value_of(expression: str) -> int:
    """The value of a sum such as ``-13 + (10 - 5) + -4``; ValueError names the first character that does not fit.

    One pass: as only signs act, a number counts with the product of the signs before it and before every parenthesis
    that is open around it.
    """
    total, sign, outer = 0, 1, [1]
    expect_operand, position, end = True, 0, len(expression.rstrip(" "))
    while position < end:
        match = TOKEN.match(expression, position)
        token = match[1] if match else ""
        if expect_operand and token in ("-", "+"):
            sign = -sign if token == "-" else sign
        elif expect_operand and token == "(":
            outer.append(outer[-1] * sign)
            sign = 1
        elif expect_operand and token.isdigit():
            total += outer[-1] * sign * int(token)
            expect_operand = False
        elif not expect_operand and token in ("-", "+"):
            sign = -1 if token == "-" else 1
            expect_operand = True
        elif not expect_operand and token == ")" and len(outer) > 1:
            outer.pop()
        else:
            raise ValueError(f"not a sum: {expression[position:].lstrip()[:10]!r} does not fit at character {position}")
        assert match is not None
        position = match.end()
    if expect_operand or len(outer) > 1:
        raise ValueError("not a sum: it ends too early")
    return total
