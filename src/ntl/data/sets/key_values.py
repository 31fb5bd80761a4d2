"""Recall from a list: ``lamp: 4821, kite: 9130. What is kite?`` -> ``9130``. Grammar and words are our own.

The group of a row is ``16@50``: how many keys the list has, and where the one that is asked for stands, from 0 (first)
to 100 (last); training asks for all places, the tests for those of ``depths``. Keys and numbers of a list are all
different. A pair of key and number that a test asks for is never asked for in training.
"""

import random
from typing import NamedTuple

from ntl.config.generated import KeyValuesConfig, RecallConfig
from ntl.data.dataset import Generated, Row, drawn_on, words

KEYS = words(
    "apple bag ball basket bed bell boat book bottle bowl box bread brush bucket button cake candle card chair clock "
    "coat coin cup desk door drum egg feather flag flower fork garden gate glass hammer hat horn key kite knife ladder "
    "lamp leaf letter lock map mirror needle pan pencil pipe plate pot ring rope shell shoe spoon stone sword table "
    "tent wheel window"
)


class Place(NamedTuple):
    """How many keys there are, or words, and the depth in percent; None in training, where it is drawn."""

    length: int
    depth: int | None

    def among(self, slots: int, rng: random.Random) -> tuple[int, str]:
        """The slot at this depth, and the group of the row."""
        slot = rng.randrange(slots) if self.depth is None else (self.depth * (slots - 1) + 50) // 100
        depth = round(100 * slot / max(slots - 1, 1)) if self.depth is None else self.depth
        return slot, f"{self.length}@{depth}"


class Recall(Generated):
    """Numbers that are told and asked for: lengths, depths, and numbers of a row."""

    config: RecallConfig

    def lengths(self, split: str) -> list[int]:
        """The lengths of a split's rows."""
        raise NotImplementedError

    def cells(self, split: str) -> list[Place]:
        depths = self.config.depths if split in self.test_splits else [None]
        return [Place(length, depth) for length in self.lengths(split) for depth in depths]

    def pairs(self, rng: random.Random, side: str, count: int) -> list[tuple[str, int]]:
        """``count`` keys, all different, and their numbers, too; the first pair is on this side, to be asked for."""
        numbers = range(10 ** (self.config.digits - 1), 10**self.config.digits)
        asked = drawn_on(side, lambda: f"{rng.choice(KEYS)} {rng.choice(numbers)}")
        key, number = asked.split()
        keys = rng.sample([other for other in KEYS if other != key], count - 1)
        others = [other for other in rng.sample(numbers, count) if other != int(number)][: count - 1]
        return [(key, int(number)), *zip(keys, others, strict=True)]


class KeyValues(Recall):
    """Accuracy and error of the number, in all and for each number of keys and depth."""

    config: KeyValuesConfig

    def lengths(self, split: str) -> list[int]:
        return self.config.extrapolate_keys if split == "extrapolate" else self.config.keys

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slot, group = cell.among(cell.length, rng)
        asked, *others = self.pairs(rng, side, cell.length)
        listed = [*others[:slot], asked, *others[slot:]]
        text = ", ".join(f"{key}: {number}" for key, number in listed)
        return Row(f"{text}. What is {asked[0]}?", str(asked[1]), group)
