"""Stories with names of two parts, after the induction experiment of Gloeckle et al. (2024), section 4.1.

Two or more persons are introduced by their whole names, then act, and the last sentence thanks one of them: its last
word is the second part of a name that occurred before. Whoever has learnt to look up what followed the first part
before (induction) knows it; one who copies any second part of the story is right once in as many times as it has
persons, which is the group of a row. The names of the tests occur in no training story, though their parts do.

A row is a whole story, and question and answer are where it is cut. For training and validation the question is the
word ``Story:``, and the answer all the rest, so that a decoder-only model learns the whole text; for the test the
question ends with the first part of the last name, and the answer is the second part. The text of both is alike, and it
ends there, so that exact match is the accuracy on the second part (where the end is predicted as well, which every
training story teaches). An encoder would read another kind of question in the test than in training; therefore only
decoder-only models take ``answers=continuation``.

Each part is a word, so that no token has two parts. It is a common one, a single token for the published tokenizers of
GPT-2 and T5. A tokenizer that is trained on the stories has it as a token if it has some hundred pieces, since every
part occurs in one story of ten or so. Grammar and words are our own.
"""

import random
from functools import cache

from ntl.config.generated import InductionConfig
from ntl.data.dataset import Generated, Row, side_of, words

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
    """Scored by exact match of the second part, in all and by number of persons."""

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
