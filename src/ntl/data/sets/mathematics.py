"""DeepMind mathematics as the paper trains on it: 13 modules of three difficulties, some 26 million pairs.

As the authors' script did, but seeded: the pairs of each of the 39 training files are shuffled, the first
``int(0.9995 n)`` are for training, the rest for validation. Rows of train and validation go round the files, so that
every prefix has all modules and difficulties in equal parts. ``interpolate`` has the test files of the 13 modules one
after the other, ``extrapolate`` those of seven harder ones. Smaller counts take a prefix of the same order.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ntl.config.data import MathematicsConfig
from ntl.data.dataset import Log, Material, Row, TextDataset, numbered
from ntl.data.sets.deepmind import ORIGIN, Texts, find_texts
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
TRAIN = tuple(f"train-{difficulty}/{module}.txt" for difficulty in ("easy", "medium", "hard") for module in MODULES)
TESTS = {
    "interpolate": tuple(f"interpolate/{module}.txt" for module in MODULES),
    "extrapolate": tuple(f"extrapolate/{module}.txt" for module in HARDER),
}
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class Mathematics(TextDataset):
    """Questions whose answer is one number; ids carry the module (``interpolate/arithmetic__mul/00012``)."""

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
        kind = "validation" if rows else "training"
        raise UserError(
            f"dataset.train_share={config.train_share} of dataset.rows_per_file={config.rows_per_file} leaves no row "
            f"for {kind}."
        )
    return rows


def wrong_line(question: str, answer: str) -> tuple[int, str] | None:
    return None if NUMBER.fullmatch(answer) else (2, f"the answer {answer!r} is not a number")


def _rows(texts: Texts, name: str, order: np.ndarray) -> Iterator[Row]:
    module = Path(name).stem
    for question, answer in texts.checked(name, order, wrong_line):
        yield Row(question, answer, module)


def _in_turns(files: list[Iterator[Row]]) -> Iterator[Row]:
    """One row of each file, then the next of each; all have the same number."""
    return chain.from_iterable(zip(*files, strict=True))
