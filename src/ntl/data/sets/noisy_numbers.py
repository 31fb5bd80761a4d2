"""A two-digit regression written as text, with a known noise-free target.

The question has six fields: a word, a two-digit number a, two digits b and e, and "=", as in ``villa 37 4 2 =``.

    f(word, a, b, e) = 10 + offset(word) + 0.4 a + 3 b - 2 e, clipped to 0..99
    answer           = round(f + normal noise), clipped to 0..99, written with two digits

a is uniform on 10..99, b and e on 0..9, the word on four. All ranges and the offsets are our choice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ntl.config.settings import Rule, setting
from ntl.data.dataset import SEED, Material, TextDataset, numbered, rows
from ntl.system.messages import logger

OFFSETS = {"flat": 0, "house": 5, "villa": 10, "farm": 20}
A_VALUES, DIGITS = 90, 10
SHAPE = (len(OFFSETS), A_VALUES, DIGITS, DIGITS)
PROMPTS = int(np.prod(SHAPE))
QUESTION = re.compile(rf"({'|'.join(OFFSETS)}) ([1-9][0-9]) ([0-9]) ([0-9]) =")


@dataclass
class NoisyNumbers(TextDataset):
    """Six fields and a noisy two-digit target written as text; the noise-free truth is known.

    Questions of validation and test occur once in all splits; training draws from the rest with replacement.
    """

    _target_: str = "ntl.data.sets.noisy_numbers.NoisyNumbers"
    name: str = "noisy_numbers"
    train_rows: int = rows(2000, "Rows for training.")
    validation_rows: int = rows(500, "Rows for validation.")
    test_rows: int = rows(2000, "Rows for the test.")
    noise_sd: float = setting(6.0, "Standard deviation of the noise of a target of two digits.", min=0)
    seed: int = setting(0, SEED)

    def conditions(self) -> Iterator[Rule]:
        if self.test_rows + self.validation_rows > PROMPTS // 2:
            line = f"there are {PROMPTS} questions, and at most {PROMPTS // 2} are held out."
            yield ".test_rows .validation_rows", line

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """Each split draws from a stream of its own: more training rows leave the test rows as they are."""
        held_out = self.test_rows + self.validation_rows
        logger.info(f"noisy_numbers: computing {self.train_rows + held_out} rows")
        order = np.random.default_rng([self.seed, 0]).permutation(PROMPTS)
        rest = order[held_out:]
        drawn = np.random.default_rng([self.seed, 1]).integers(len(rest), size=self.train_rows)
        prompts = [rest[drawn], order[self.test_rows : held_out], order[: self.test_rows]]
        splits = {}
        for stream, (split, indices) in enumerate(zip(self.all_splits, prompts, strict=True)):
            rng = np.random.default_rng([self.seed, 2, stream])
            splits[split] = numbered(split, self._pairs(indices, rng), len(indices))
        return Material(splits)

    def _pairs(self, prompts: np.ndarray, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
        word, a, b, e = np.unravel_index(prompts, SHAPE)
        a, words = a + 10, list(OFFSETS)
        offset = np.array(list(OFFSETS.values()))[word]
        noisy = tenths(offset, a, b, e) / 10 + rng.normal(0.0, self.noise_sd, len(prompts))
        answers = np.clip(np.rint(noisy), 0, 99).astype(int)
        for w, *digits, answer in np.stack([word, a, b, e, answers], axis=1).tolist():
            yield f"{words[w]} {' '.join(map(str, digits))} =", f"{answer:02d}"

    def truth(self, question: str) -> str:
        """f of a question, exact, with one decimal: ``villa 37 4 2 =`` -> ``42.8``."""
        match = QUESTION.fullmatch(question)
        if match is None:
            raise ValueError(f"{question!r} is not a question of noisy_numbers")
        word, *numbers = match.groups()
        whole, tenth = divmod(int(tenths(OFFSETS[word], *map(int, numbers))), 10)
        return f"{whole}.{tenth}"


def tenths(offset: Any, a: Any, b: Any, e: Any) -> Any:
    """Ten times f, an exact integer (arrays or ints)."""
    return np.clip(100 + 10 * offset + 4 * a + 30 * b - 20 * e, 0, 990)
