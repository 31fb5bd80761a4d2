"""DeepMind mathematics, module arithmetic__add_sub_multiple: the set of the paper's ablations (Tables 2 and 3).

As the authors' script did, but seeded: the pairs of each difficulty are shuffled, the first 33,333 are for training,
the next 1,000 for validation; ``interpolate`` is the module's own test file, ``extrapolate`` that of
arithmetic__add_sub_multiple_longer, 10,000 pairs each. Smaller counts take a prefix of the same order. Rows of train
and validation go easy, medium, hard, easy, ..., so that every prefix has the three difficulties in equal parts. A few
easy questions occur twice in the generator's output, as in the authors' set; no test question occurs in training.
"""

from itertools import chain
from pathlib import Path

import numpy as np

from ntl.config.data import ArithmeticConfig
from ntl.data.base import Log, Material, TextDataset, numbered
from ntl.data.deepmind import ORIGIN, find_texts
from ntl.data.expressions import answer_of, answer_without_parentheses
from ntl.data.files import Pair

MODULE = "arithmetic__add_sub_multiple"
TRAIN = tuple(f"train-{difficulty}/{MODULE}.txt" for difficulty in ("easy", "medium", "hard"))
INTERPOLATE = f"interpolate/{MODULE}.txt"
EXTRAPOLATE = f"extrapolate/{MODULE}_longer.txt"


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
        rows = {split: numbered(split, pairs, len(pairs)) for split, pairs in splits.items()}
        return Material({**rows}, texts.source)

    def fault(self, question: str, answer: str) -> str | None:
        """A wrong sum."""
        found = wrong_line(question, answer)
        return found[1] if found else None

    def shortcut(self, question: str) -> str:
        """Of one who ignores the parentheses."""
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
