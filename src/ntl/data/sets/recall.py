"""Tasks of recall: a name of a story (induction), a number of a list or of a long text. Words are our own."""

import random
from functools import cache
from typing import NamedTuple

from ntl.config.generated import SENTENCE_WORDS, InductionConfig, KeyValuesConfig, NeedleConfig, RecallConfig
from ntl.data.dataset import Row
from ntl.data.sets.generated import Generated, drawn_on, side_of, words

FIRST = words(
    "Tom Anna Ben Lucy Max Emma Sam Rose Jack Adam Kate Paul Jane Peter Mary Luke Sara Noah Julia Simon Laura David "
    "Alice Martin Helen Robert Diana Victor Grace Henry Emily Frank Sophie George Hannah Arthur Ruby Daniel Amy Felix "
    "Eva Marcus Oliver Lisa Philip Claire Walter Rachel Edward Sarah Thomas Linda Jacob Susan Joseph Karen Maria Oscar "
    "Charlie Michael"
)
SECOND = words(
    "Hill Wood Fox Stone King Brook Field Park Bell Cook Miller Baker Fisher Hunter Green Brown Black White Gray Young "
    "Long Short Day Summer Winter Frost Snow Lake Ford Bridge Moore Marsh Reed Rice Berry Apple Bush Flowers Forest "
    "Glass Gold Silver Steel Iron Cross Church Page Price Rich Power Love Joy Hope Sharp Swift Strong Grant Mason "
    "Carter Porter"
)
START, END = "Story:", "In the end they all thanked"
OPENINGS = ("One day", "One morning", "Long ago", "Last summer", "Once")
PLACES = ("in the garden", "by the river", "near the old tower", "at the farm", "on the hill", "under the bridge")
THINGS = ("kite", "lamp", "boat", "drum", "cake", "basket", "little bird", "blue stone", "wooden horse", "letter")
ACTIONS = (
    "{} found a {thing} {place}.",
    "{} gave the {thing} to {}.",
    "{} could not find the {thing}.",
    "Then {} asked {} for help.",
    "{} and {} looked for the {thing} {place}.",
    "{} laughed and showed {} the {thing}.",
    "A dog ran after {} {place}.",
    "{} was tired and sat down {place}.",
)


class Induction(Generated):
    """Stories with names of two parts, after the induction experiment of Gloeckle et al. (2024), section 4.1.

    Two or more persons are introduced by their whole names, then act, and the last sentence thanks one of them: its
    last word is the second part of a name that occurred before. Whoever has learnt to look up what followed the first
    part (induction) knows it; one who copies any second part is right once in as many times as there are persons, which
    is the group of a row. The names of the tests occur in no training story, though their parts do.

    A row is a whole story, and question and answer are where it is cut: for training and validation after the word
    ``Story:``, so that a decoder-only model learns the whole text; for the test before its last word, of which exact
    match is the accuracy. Each part is a common word, a single token of the published tokenizers of GPT-2 and T5.
    """

    splits = ("train", "validation", "test")
    test_splits = ("test",)
    metrics = "text"
    config: InductionConfig

    def cells(self, split: str) -> range:
        return range(2, self.config.max_names + 1)

    def draw(self, rng: random.Random, side: str, cell: int) -> Row:
        story = self._story(rng, _persons(rng, side, self.config.parts, cell))
        told = story.split(" ")
        cut = len(told) - 1 if side == "test" else 1
        return Row(" ".join(told[:cut]), " ".join(told[cut:]), str(cell))

    def _story(self, rng: random.Random, persons: list[str]) -> str:
        sentences = [f"{rng.choice(OPENINGS)} {' and '.join(persons)} met {rng.choice(PLACES)}."]
        for _ in range(self.config.sentences):
            action = rng.choice(ACTIONS)
            who = rng.sample(persons, action.count("{}"))
            sentences.append(action.format(*who, thing=rng.choice(THINGS), place=rng.choice(PLACES)))
        return " ".join([START, *sentences, END, rng.choice(persons)])


@cache
def names_of(side: str, parts: int) -> list[str]:
    """The names that stories of this side have."""
    names = [f"{first} {second}" for first in FIRST[:parts] for second in SECOND[:parts]]
    return [name for name in names if side_of(name) == side]


def _persons(rng: random.Random, side: str, parts: int, count: int) -> list[str]:
    """Names without a common part, so that the first part tells the second."""
    names = names_of(side, parts)
    while True:
        chosen = rng.sample(names, count)
        if len({part for name in chosen for part in name.split()}) == 2 * count:
            return chosen


# ---- numbers


KEYS = words(
    "apple bag ball basket bed bell boat book bottle bowl box bread brush bucket button cake candle card chair clock "
    "coat coin cup desk door drum egg feather flag flower fork garden gate glass hammer hat horn key kite knife ladder "
    "lamp leaf letter lock map mirror needle pan pencil pipe plate pot ring rope shell shoe spoon stone sword table "
    "tent wheel window"
)
QUALITIES = words("quiet old young tall small grey clever hungry shy proud brave gentle")
ANIMALS = words("heron fox goat mouse donkey cat goose hare mole swan crow frog")
DEEDS = words("waited slept sang hid stood danced rested walked")
WHERE = words("behind near beside below above inside")
BUILDINGS = words("mill barn well orchard church market cave tower")
TIMES = words("morning evening night winter summer autumn")
NEEDLE = "The secret number of the {} is {}."
QUESTION = "What is the secret number of the {}?"


class Place(NamedTuple):
    """How many keys or words there are, and the depth in percent; None in training, where it is drawn."""

    length: int
    depth: int | None

    def among(self, slots: int, rng: random.Random) -> tuple[int, str]:
        """The slot at this depth, and the group of the row."""
        slot = rng.randrange(slots) if self.depth is None else (self.depth * (slots - 1) + 50) // 100
        depth = round(100 * slot / max(slots - 1, 1)) if self.depth is None else self.depth
        return slot, f"{self.length}@{depth}"


class Recall(Generated):
    """Numbers that are told, all different, of which one is asked for.

    The group of a row is ``16@50``: its length, and where what is asked for stands, from 0 (first) to 100 (last);
    training asks for all places, the tests for those of ``depths``. A pair of key and number that a test asks for is
    never asked for in training.
    """

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
    """``lamp: 4821, kite: 9130. What is kite?`` -> ``9130``; a length is a number of keys."""

    config: KeyValuesConfig

    def lengths(self, split: str) -> list[int]:
        return self.config.extrapolate_keys if split == "extrapolate" else self.config.keys

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slot, group = cell.among(cell.length, rng)
        asked, *others = self.pairs(rng, side, cell.length)
        listed = [*others[:slot], asked, *others[slot:]]
        text = ", ".join(f"{key}: {number}" for key, number in listed)
        return Row(f"{text}. What is {asked[0]}?", str(asked[1]), group)


class Needle(Recall):
    """A text of sentences such as ``The quiet heron waited behind the old mill.`` that tells the numbers of ``keys``
    things, ``The secret number of the lamp is 4821.``, and ends by asking for one of them.

    Every sentence has eight words; a length is the number of words of a question, all included.
    """

    config: NeedleConfig

    def lengths(self, split: str) -> list[int]:
        return self.config.extrapolate_lengths if split == "extrapolate" else self.config.lengths

    def draw(self, rng: random.Random, side: str, cell: Place) -> Row:
        slots = cell.length // SENTENCE_WORDS - 1
        slot, group = cell.among(slots, rng)
        asked, *others = self.pairs(rng, side, self.config.keys)
        sentences = [_distractor(rng) for _ in range(slots)]
        free = [place for place in range(slots) if place != slot]
        for place, pair in zip([slot, *rng.sample(free, len(others))], [asked, *others], strict=True):
            sentences[place] = NEEDLE.format(*pair)
        return Row(" ".join([*sentences, QUESTION.format(asked[0])]), str(asked[1]), group)


def _distractor(rng: random.Random) -> str:
    quality, animal, deed = rng.choice(QUALITIES), rng.choice(ANIMALS), rng.choice(DEEDS)
    kind = rng.randrange(3)
    if kind == 0:
        return f"The {quality} {animal} {deed} {rng.choice(WHERE)} the old {rng.choice(BUILDINGS)}."
    if kind == 1:
        return f"Every {rng.choice(TIMES)} the {animal} {deed} {rng.choice(WHERE)} the {rng.choice(BUILDINGS)}."
    return f"The {quality} {animal} {deed} with the {rng.choice(QUALITIES)} {rng.choice(ANIMALS)}."
