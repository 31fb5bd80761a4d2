"""DeepMind mathematics, seeded: the 13 modules that the paper trains on, and its ablations' set of sums.

Both sets shuffle the pairs of each training file; the first are for training, the next for validation, and smaller
counts take a prefix of the same order. Rows of train and validation go round the files, so that every prefix has all
modules and difficulties in equal parts. Test files keep their order.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ntl.config.data import ArithmeticConfig, MathematicsConfig
from ntl.data.dataset import Log, Material, Row, TextDataset, numbered
from ntl.data.sets.deepmind import ORIGIN, SUMS, Texts, find_texts
from ntl.system.errors import UserError

MODULES = (
    "algebra__linear_1d",
    "algebra__linear_1d_composed",
    "algebra__linear_2d",
    "algebra__linear_2d_composed",
    "algebra__sequence_next_term",
    "arithmetic__add_or_sub",
    "arithmetic__add_sub_multiple",
    "arithmetic__mul",
    "numbers__div_remainder",
    "numbers__div_remainder_composed",
    "numbers__place_value",
    "numbers__round_number",
    "numbers__round_number_composed",
)
HARDER = (
    "arithmetic__add_or_sub_big",
    "arithmetic__add_sub_multiple_longer",
    "arithmetic__mixed_longer",
    "arithmetic__mul_big",
    "arithmetic__mul_div_multiple_longer",
    "numbers__place_value_big",
    "numbers__round_number_big",
)
DIFFICULTIES = ("easy", "medium", "hard")
TRAIN = tuple(f"train-{difficulty}/{module}.txt" for difficulty in DIFFICULTIES for module in MODULES)
TESTS = {
    "interpolate": tuple(f"interpolate/{module}.txt" for module in MODULES),
    "extrapolate": tuple(f"extrapolate/{module}.txt" for module in HARDER),
}
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
SUMS_TRAIN = tuple(f"train-{difficulty}/{SUMS}.txt" for difficulty in DIFFICULTIES)
SUMS_TESTS = {"interpolate": f"interpolate/{SUMS}.txt", "extrapolate": f"extrapolate/{SUMS}_longer.txt"}
TEMPLATE = re.compile(r"What is (?:the value of )?(?P<asked>.+)\?|(?:Calculate|Evaluate) (?P<told>.+)\.|(?P<bare>.+)")
SUM = re.compile(r"[-+ ]*[0-9]+(?: *[-+][-+ ]*[0-9]+)* *")


class Mathematics(TextDataset):
    """Some 26 million pairs, whose answer is one number; ids carry the module (``interpolate/arithmetic__mul/00012``).

    ``interpolate`` has the test files of the 13 modules one after the other, ``extrapolate`` those of 7 harder ones.
    """

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    origin = ORIGIN
    config: MathematicsConfig

    @property
    def values(self) -> dict[str, Any]:
        """Without the consent to generate, which changes no row."""
        return {key: value for key, value in super().values.items() if key != "allow_generation"}

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows from the first source that has all 59 files; they are read and checked while they are written."""
        config, cut = self.config, train_rows(self.config)
        rows, test_rows = config.rows_per_file, config.test_rows_per_file
        tests = [name for names in TESTS.values() for name in names]
        wanted = {**dict.fromkeys(TRAIN, rows), **dict.fromkeys(tests, test_rows)}
        texts = find_texts(wanted, data_dir, log, download=download, allow_generation=config.allow_generation)
        log(f"mathematics: writing and checking {sum(wanted.values()):,} pairs")
        orders = {name: texts.shuffled(name, config.seed, stream, rows) for stream, name in enumerate(TRAIN)}
        train = [_rows(texts, name, order[:cut]) for name, order in orders.items()]
        validation = [_rows(texts, name, order[cut:]) for name, order in orders.items()]
        splits = {
            "train": numbered("train", _in_turns(train), len(TRAIN) * cut),
            "validation": numbered("validation", _in_turns(validation), len(TRAIN) * (rows - cut)),
        }
        for split, names in TESTS.items():
            files = [_rows(texts, name, np.arange(test_rows)) for name in names]
            splits[split] = numbered(split, chain.from_iterable(files), len(names) * test_rows)
        return Material(splits, texts.source)


def train_rows(config: MathematicsConfig) -> int:
    """How many rows of a training file are for training; the rest are for validation. UserError where one has none."""
    # Rounded first: 0.98 x 1000 must be 980 whatever the float says.
    rows = int(round(config.train_share * config.rows_per_file, 6))
    if not 0 < rows < config.rows_per_file:
        raise UserError(
            f"dataset.train_share={config.train_share} of dataset.rows_per_file={config.rows_per_file} leaves no row "
            f"for {'validation' if rows else 'training'}."
        )
    return rows


def _rows(texts: Texts, name: str, order: np.ndarray) -> Iterator[Row]:
    module = Path(name).stem
    return (Row(question, answer, module) for question, answer in texts.checked(name, order, _no_number))


def _no_number(question: str, answer: str) -> tuple[int, str] | None:
    return None if NUMBER.fullmatch(answer) else (2, f"the answer {answer!r} is not a number")


def _in_turns(files: Iterable[Iterable[Row]]) -> Iterator[Row]:
    """One row of each file, then the next of each; all have the same number."""
    return chain.from_iterable(zip(*files, strict=True))


class Arithmetic(TextDataset):
    """Sums of several integers with parentheses: the set of Tables 2 and 3. Every answer is recomputed before its use.

    A few easy questions occur twice in the generator's output, as in the authors' set; no test question occurs in
    training. ``extrapolate`` has longer sums.
    """

    splits = ("train", "validation", "interpolate", "extrapolate")
    test_splits = ("interpolate", "extrapolate")
    origin = ORIGIN
    config: ArithmeticConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows from the first source that has all five files; UserError names file and line of a wrong answer."""
        config = self.config
        cut, count = config.train_rows_per_difficulty, config.validation_rows_per_difficulty
        wanted = dict.fromkeys(SUMS_TRAIN, cut + count) | dict.fromkeys(SUMS_TESTS.values(), config.test_rows)
        texts = find_texts(wanted, data_dir, log, download=download)
        log(f"arithmetic: checking {sum(wanted.values())} answers")
        pairs: dict[str, list[Row]] = {}
        for stream, (name, rows) in enumerate(wanted.items()):
            order = texts.shuffled(name, config.seed, stream, rows) if name in SUMS_TRAIN else np.arange(rows)
            pairs[name] = [Row(*pair) for pair in texts.checked(name, order, _wrong_sum)]
        splits = {
            "train": list(_in_turns(pairs[name][:cut] for name in SUMS_TRAIN)),
            "validation": list(_in_turns(pairs[name][cut:] for name in SUMS_TRAIN)),
            **{split: pairs[name] for split, name in SUMS_TESTS.items()},
        }
        return Material({split: numbered(split, rows) for split, rows in splits.items()}, texts.source)

    def shortcut(self, question: str) -> str:
        """What the answer would be if there were no parentheses in the sum; ValueError as for ``answer_of``."""
        return str(value_of(_expression(question).replace("(", "").replace(")", "")))


def answer_of(question: str) -> str:
    """The answer to a question of arithmetic__add_sub_multiple (or ..._longer); ValueError if it is none."""
    return str(value_of(_expression(question)))


def _expression(question: str) -> str:
    match = TEMPLATE.fullmatch(question)
    if match is None:
        raise ValueError("not a sum")
    return match["asked"] or match["told"] or match["bare"]


def _wrong_sum(question: str, answer: str) -> tuple[int, str] | None:
    try:
        expected = answer_of(question)
    except ValueError as error:
        return 1, f"{question!r}: {error}"
    return None if answer == expected else (2, f"the answer {answer!r} is wrong, {expected} is right")


def value_of(expression: str) -> int:
    """The value of a sum such as ``-13 + (10 - 5) + -4``; ValueError if it is none."""
    inner = True
    while inner:  # the innermost parentheses first; a space keeps "1(2)" from becoming a number
        expression, inner = re.subn(r"\(([^()]*)\)", lambda found: f" {value_of(found[1])} ", expression)
    if not SUM.fullmatch(expression):
        raise ValueError(f"not a sum: {expression[:40]!r}")
    terms = re.findall(r"([-+ ]*)([0-9]+)", expression)
    return sum((-1) ** signs.count("-") * int(digits) for signs, digits in terms)
