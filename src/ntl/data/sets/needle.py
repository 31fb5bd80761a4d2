"""A number to be found in a long text. Grammar and words are our own.

A text of sentences such as ``The quiet heron waited behind the old mill.`` tells the numbers of ``keys`` things, ``The
secret number of the lamp is 4821.``, and ends by asking for one of them. Every sentence has eight words, so that a
question has exactly as many words as its length says, itself included. The group of a row is ``512@25``: words, and
where the sentence that is asked for stands, from 0 (first) to 100 (last before the question); training asks for all
places, the tests for those of ``depths``. A pair of thing and number that a test asks for is never asked for in
training.
"""

import random

from ntl.config.generated import SENTENCE_WORDS, NeedleConfig
from ntl.data.dataset import Row, words
from ntl.data.sets.key_values import Place, Recall

QUALITIES = words("quiet old young tall small grey clever hungry shy proud brave gentle")
ANIMALS = words("heron fox goat mouse donkey cat goose hare mole swan crow frog")
DEEDS = words("waited slept sang hid stood danced rested walked")
WHERE = words("behind near beside below above inside")
PLACES = words("mill barn well orchard church market cave tower")
TIMES = words("morning evening night winter summer autumn")
NEEDLE = "The secret number of the {} is {}."
QUESTION = "What is the secret number of the {}?"


class Needle(Recall):
    """Accuracy and error of the number, in all and for each length and depth."""

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
        return f"The {quality} {animal} {deed} {rng.choice(WHERE)} the old {rng.choice(PLACES)}."
    if kind == 1:
        return f"Every {rng.choice(TIMES)} the {animal} {deed} {rng.choice(WHERE)} the {rng.choice(PLACES)}."
    return f"The {quality} {animal} {deed} with the {rng.choice(QUALITIES)} {rng.choice(ANIMALS)}."
