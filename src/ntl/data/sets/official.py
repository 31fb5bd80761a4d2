"""The paper's real data: GSM8K (Table 9), rJokes (Tables 4 and 6) and MultiRC (Table 8), from their official files."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ntl.config.data import GSM8KConfig, MultiRCConfig, RJokesConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset
from ntl.system.errors import UserError

Pair = tuple[str, str]
GSM8K_SPLIT = Path(__file__).parents[1] / "gsm8k_split.json"
MARK = "####"
ANNOTATION = re.compile(r"<<.*?>>")
COMMAS = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!,?[0-9])")
# "12 200-kilobyte videos" are twelve of them, and "3 100 200" is no numeral unless it ends in round thousands.
SPACES = re.compile(
    r"(?<![0-9.,])(?<![0-9] )[1-9][0-9]{0,2}(?:(?: [0-9]{3})* 000| [0-9]{3})(?![0-9-]|,[0-9]| [0-9]{3}(?![0-9]))"
)
LEADING_POINT = re.compile(r"(?<![0-9.])\.(?=[0-9])")

# The original's patterns; what they do to a text depends on the order of their matches.
PAPER_SPACES = re.compile(r"(?<!\S)\d{1,3}(?: \d{3})+")
PAPER_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+")
PAPER_POINTS = re.compile(r"(?<!\d)\.\d+")

SCORES = tuple(str(score) for score in range(12))
# The authors' own count of each score in train, in place of a sha256 that nobody published.
TRAIN_HISTOGRAM = (118365, 83797, 62462, 33500, 20307, 12454, 6902, 3685, 1806, 1433, 1229, 25)
ESCAPED = re.compile(r"\\([\\\t])")
DEV_ONLY = "trained on nine tenths of dev, without the training file: not comparable to the paper"


class GSM8K(TextDataset):
    """Grade-school word problems; an answer is the reasoning and, in its last line, ``#### number``.

    Only the official train.jsonl and test.jsonl exist; the paper's authors shuffled train once and cut it into 6,353
    and 1,120 rows. No seed gives their order, so gsm8k_split.json lists the rows of the official file.

    Calculator annotations ``<<3*4=12>>`` are removed. Numbers are then written one way: ``1,000`` and ``1 000`` as
    1000, ``.5`` as 0.5. The original code did that by replacing each match everywhere in the text, which made ``12.5``
    beside ``.5`` into ``120.5``: 126 training, 20 validation and 26 test answers are wrong in it, all but their last
    line. ``paper_compat`` gives exactly that text.
    """

    origin = raw.origin("gsm8k")
    config: GSM8KConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        rows = [map(json.loads, self.read(name, data_dir, log, download).splitlines()) for name in ("train", "test")]
        train, test = ([(row["question"], row["answer"]) for row in part] for part in rows)
        chosen = json.loads(GSM8K_SPLIT.read_bytes())
        pairs = {split: [train[index] for index in chosen[split]] for split in ("train", "validation")}
        pairs["test"] = test[: self.config.test_rows or None]
        write = normalize_as_paper if self.config.paper_compat else normalize
        return self.official(
            {split: [(write(q), write(ANNOTATION.sub("", a))) for q, a in part] for split, part in pairs.items()}
        )

    def scored(self, answer: str) -> str:
        return answer.rpartition(MARK)[2].strip()


def normalize(text: str) -> str:
    """``1,234`` and ``1 234`` -> 1234, ``.5`` -> 0.5, each where it stands; what is no proper numeral is left."""
    text = SPACES.sub(lambda match: match[0].replace(" ", ""), text)
    text = COMMAS.sub(lambda match: match[0].replace(",", ""), text)
    return LEADING_POINT.sub("0.", text)


def normalize_as_paper(text: str) -> str:
    """What the original code made of a text: each match replaced everywhere, also inside longer numerals."""
    for match in PAPER_SPACES.findall(text):
        text = text.replace(match, match.replace(" ", ""))
    for match in PAPER_COMMAS.findall(text):
        text = text.replace(match, match.replace(",", ""))
    for match in PAPER_POINTS.findall(text):
        text = text.replace(match, f"0{match}")
    return text


class RJokes(TextDataset):
    """Jokes from Reddit, and the whole part of the logarithm of their upvotes, 0 to 11 (Weller and Seppi, 2020).

    A line is ``score<TAB>joke``, written without quotes: a quotation mark is a character like any other, and a tab or a
    backslash inside the joke has a backslash before it. Some jokes occur twice, and 242 texts occur in dev and in test;
    they are kept, so that the counts are the paper's. ``allow_dev_training`` does without the large training file: it
    trains on nine tenths of dev and validates on the rest, by the sha1 of the joke.
    """

    origin: ClassVar[raw.Origin] = raw.origin("rjokes")
    config: RJokesConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows in the order of the files."""
        config, remarks = self.config, {}
        names = ("validation", "test") if config.allow_dev_training else ("test", "validation", "train")
        pairs = {name: _jokes(self.read(name, data_dir, log, download)) for name in names}
        if config.allow_dev_training:
            dev, remarks = pairs["validation"], {"comparable": False, "reason": DEV_ONLY}
            pairs["train"] = [pair for pair in dev if not held_out(pair[0])]
            pairs["validation"] = [pair for pair in dev if held_out(pair[0])]
        else:
            check_counts(pairs["train"], self.origin.files["train"].path)
        pairs["test"] = pairs["test"][: config.test_rows or None]
        pairs["train"] = pairs["train"][: config.train_rows or None]
        write = str.rstrip if config.paper_compat else unescape
        written = {split: [(write(joke), score) for joke, score in part] for split, part in pairs.items()}
        return self.official(written, **remarks)


def _jokes(data: bytes) -> list[Pair]:
    """Joke as written, and score."""
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


class MultiRC(TextDataset):
    """Questions on a passage, each with several right options (Khashabi et al., 2018), scored as text.

    One example a question: passage, blank line, ``Question: ...``; the answer is all right options, joined by `` | ``
    in the order of the file. The question stands last because a text that is too long loses its beginning. Questions
    without a right option (23 of 5,131 and 3 of 953) have nothing to be answered with and are left out;
    ``paper_compat`` keeps them, and the white space around options, as the original code did. The official test file
    has no labels, so that the paper's scores are those of validation.
    """

    splits = ("train", "validation")
    test_splits = ("validation",)
    metrics = "text"
    origin = raw.origin("multirc")
    config: MultiRCConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        rows, dropped = {}, {}
        for split in self.splits:
            pairs = list(_passages(self.read(split, data_dir, log, download), strip=not self.config.paper_compat))
            rows[split] = [pair for pair in pairs if pair[1] or self.config.paper_compat]
            if left_out := len(pairs) - len(rows[split]):
                dropped[split] = left_out
                log(f"{self.name}: {left_out} of {len(pairs)} {split} questions have no right option: left out")
        return self.official(rows, dropped=dropped)


def _passages(data: bytes, *, strip: bool) -> Iterator[Pair]:
    """Question with passage, and answer, empty when no option is right; options stripped, or as they stand."""
    for row in map(json.loads, data.splitlines()):
        for question in row["passage"]["questions"]:
            right = [option["text"] for option in question["answers"] if option["label"]]
            options = [option for each in right if (option := each.strip())] if strip else right
            asked = f"{row['passage']['text'].strip()}\n\nQuestion: {question['question'].strip()}"
            yield asked, " | ".join(options)
