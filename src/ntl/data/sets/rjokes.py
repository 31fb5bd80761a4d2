"""rJokes: jokes from Reddit and the whole part of the logarithm of their upvotes, 0 to 11 (Weller and Seppi, 2020).

A line is ``score<TAB>joke``, written without quotes: a quotation mark is a character like any other, and a tab or a
backslash inside the joke has a backslash before it. Some jokes occur twice, and 242 texts occur in dev and in test;
they are kept, so that the counts are the paper's (Tables 4 and 6).

The training file is too large for some mirrors. Without it validation and test are prepared all the same, and
``allow_dev_training`` trains on nine tenths of dev and validates on the rest, by the sha1 of the joke.
"""

import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import ClassVar

from ntl.config.data import RJokesConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset
from ntl.data.files import Pair
from ntl.system.errors import UserError

HOME = "https://github.com/orionw/rJokesData"
FILES = "https://raw.githubusercontent.com/orionw/rJokesData/d48bedd71bdacc7557b84ad697bf556e7aad7c21/data"
LICENCE = (
    "Reddit's API terms and user agreement: no redistribution, and posts are to be removed when asked; contains "
    "offensive jokes"
)
SCORES = tuple(str(score) for score in range(12))
# The authors' own count of each score in train, in place of a sha256 that nobody published.
TRAIN_HISTOGRAM = (118365, 83797, 62462, 33500, 20307, 12454, 6902, 3685, 1806, 1433, 1229, 25)
ESCAPED = re.compile(r"\\([\\\t])")
INSTEAD = "dataset.allow_dev_training=true trains on a part of dev instead"
DEV_ONLY = "trained on nine tenths of dev, without the training file: not comparable to the paper"


class RJokes(TextDataset):
    """The question is the joke, the answer its score."""

    origin: ClassVar[raw.Origin] = raw.Origin(
        home=HOME,
        licence=LICENCE,
        cite="Weller and Seppi, The rJokes Dataset: a Large Scale Humor Collection, LREC 2020",
        publishable=False,
        files={
            "train": raw.RawFile("rjokes/train.tsv.gz", f"{FILES}/train.tsv.gz"),
            "validation": raw.RawFile(
                "rjokes/dev.tsv.gz",
                f"{FILES}/dev.tsv.gz",
                "8787317555ad6c11f27843c47aaf202ffef90a55a16f5829ef0a0bcc9ca6bde9",
            ),
            "test": raw.RawFile(
                "rjokes/test.tsv.gz",
                f"{FILES}/test.tsv.gz",
                "a3818c1c012e413f61179eb9f89d611a3b7091320a5137a1c3be21dbbe54a1fc",
            ),
        },
    )
    config: RJokesConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows in the order of the files; without the training file only validation and test."""
        config, file = self.config, self.origin.files["train"]
        test, validation = (
            parse(self.read(split, data_dir, log, download=download)) for split in ("test", "validation")
        )
        pairs, missing, remarks = {"validation": validation, "test": test[: config.test_rows or None]}, {}, {}
        if config.allow_dev_training:
            pairs["train"] = [pair for pair in validation if not held_out(pair[0])]
            pairs["validation"] = [pair for pair in validation if held_out(pair[0])]
            remarks = {"comparable": False, "reason": DEV_ONLY}
        elif raw.obtain(file, data_dir, log, download=download):
            pairs["train"] = parse(self.read("train", data_dir, log, download=False))
            check_counts(pairs["train"], file.path)
        else:
            missing["train"] = f"{raw.whereabouts(file, data_dir)}; {INSTEAD}"
        if "train" in pairs:
            pairs["train"] = pairs["train"][: config.train_rows or None]
        write = str.rstrip if config.paper_compat else unescape
        written = {split: [(write(joke), score) for joke, score in part] for split, part in pairs.items()}
        return self.official(written, missing, **remarks)


def parse(data: bytes) -> list[Pair]:
    """Joke as written and score."""
    lines = (line.partition("\t") for line in data.decode().removesuffix("\n").split("\n"))
    return [(joke, score) for score, _, joke in lines]


def check_counts(train: list[Pair], label: str) -> None:
    """UserError unless there are as many training jokes of each score as the authors counted."""
    counts = Counter(score for _, score in train)
    for score, expected in zip(SCORES, TRAIN_HISTOGRAM, strict=True):
        if counts[score] != expected:
            raise UserError(
                f"{label}:{len(train)}: {counts[score]} jokes of score {score}, the authors counted {expected}; "
                "this is not their training file, or not all of it."
            )


def unescape(joke: str) -> str:
    """The joke without the file's backslashes before backslashes and tabs."""
    return ESCAPED.sub(r"\1", joke)


def held_out(joke: str) -> bool:
    """True for a tenth of all jokes, and the same for equal ones."""
    return int.from_bytes(hashlib.sha1(joke.encode()).digest()[:4]) % 10 == 0
