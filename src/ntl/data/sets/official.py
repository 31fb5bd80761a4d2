"""Data from official files: the paper's GSM8K (Table 9), rJokes (Tables 4 and 6) and MultiRC (Table 8); packages'."""

import csv
import hashlib
import io
import json
import re
import tarfile
import zipfile
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from ntl.config.settings import setting
from ntl.data import raw
from ntl.data.dataset import Material, Row, TextDataset, rows
from ntl.system.errors import UserError
from ntl.system.messages import logger

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

# The authors' own count of each score, 0 to 11, in train, in place of a sha256 that nobody published.
TRAIN_HISTOGRAM = (118365, 83797, 62462, 33500, 20307, 12454, 6902, 3685, 1806, 1433, 1229, 25)
ESCAPED = re.compile(r"\\([\\\t])")
DEV_ONLY = "trained on nine tenths of dev, without the training file: not comparable to the paper"


@dataclass
class GSM8K(TextDataset):
    """Grade-school word problems, whose answer is a text that ends in `#### number`.

    Only the official train.jsonl and test.jsonl exist; the paper's authors shuffled train once and cut it into 6,353
    and 1,120 rows. No seed gives their order, so gsm8k_split.json lists the rows of the official file.

    Calculator annotations ``<<3*4=12>>`` are removed. Numbers are then written one way: ``1,000`` and ``1 000`` as
    1000, ``.5`` as 0.5. The original code did that by replacing each match everywhere in the text, which made ``12.5``
    beside ``.5`` into ``120.5``: 126 training, 20 validation and 26 test answers are wrong in it, all but their last
    line. ``paper_compat`` gives exactly that text.
    """

    origin = raw.origin("gsm8k")

    _target_: str = "ntl.data.sets.official.GSM8K"
    name: str = "gsm8k"
    answers: str = "reasoning"
    paper_compat: bool = setting(False, "Corrupt numbers of the text as the original code did.")
    test_rows: int = rows(0, "Test on the first so many rows; 0: on all.", min=0)

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        chosen, pairs = json.loads(GSM8K_SPLIT.read_bytes()), dict[str, list[Pair]]()
        for split in self.wanted:
            lines = self.read("test" if split == "test" else "train", data_dir, download).splitlines()
            rows = [(row["question"], row["answer"]) for row in map(json.loads, lines)]
            indices = chosen.get(split, range(len(rows))[: self.test_rows or None])
            pairs[split] = [rows[index] for index in indices]
        write = normalize_as_paper if self.paper_compat else normalize
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


@dataclass
class RJokes(TextDataset):
    """Jokes and their log-upvotes, 0 to 11.

    From Reddit; the score is the whole part of the logarithm of the upvotes (Weller and Seppi, 2020). A line is
    ``score<TAB>joke``, written without quotes: a quotation mark is a character like any other, and a tab or a backslash
    inside the joke has a backslash before it. Some jokes occur twice, and 242 texts occur in dev and in test; they are
    kept, so that the counts are the paper's. ``allow_dev_training`` does without the large training file: it trains on
    nine tenths of dev and validates on the rest, by the sha1 of the joke.
    """

    origin: ClassVar[raw.Origin] = raw.origin("rjokes")
    computes: ClassVar[bool | None] = False

    _target_: str = "ntl.data.sets.official.RJokes"
    name: str = "rjokes"
    allow_dev_training: bool = setting(False, "Train on parts of dev; the result is not comparable to the paper's.")
    paper_compat: bool = setting(
        False, "Keep backslash escapes and strip trailing white space, as the original code did."
    )
    train_rows: int = rows(0, "Train on the first so many rows; 0: on all.", min=0)
    test_rows: int = rows(0, "Test on the first so many rows; 0: on all.", min=0)

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """Rows in the order of the files."""
        remarks: dict[str, Any] = {}
        names = ("validation", "test") if self.allow_dev_training else self.wanted[::-1]
        pairs = dict[str, list[Pair]]()  # joke as written, and score
        for name in names:
            text = self.read(name, data_dir, download).decode().removesuffix("\n")
            lines = (line.partition("\t") for line in text.split("\n"))
            pairs[name] = [(joke, score) for score, _, joke in lines]
        if self.allow_dev_training:
            dev, remarks = pairs["validation"], {"comparable": False, "reason": DEV_ONLY}
            pairs["train"] = [pair for pair in dev if not held_out(pair[0])]
            pairs["validation"] = [pair for pair in dev if held_out(pair[0])]
        elif "train" in pairs:
            counts = Counter(score for _, score in pairs["train"])
            for score, expected in enumerate(TRAIN_HISTOGRAM):
                if (count := counts[str(score)]) != expected:
                    place = f"{self.origin.files['train'].path}:{len(pairs['train'])}"
                    raise UserError(
                        f"{place}: {count} jokes of score {score}, the authors counted {expected}; this is not their "
                        "training file, or not all of it."
                    )
        for split, most in (("test", self.test_rows), ("train", self.train_rows)):
            pairs[split] = pairs.get(split, [])[: most or None]
        # Without the file's backslashes before backslashes and tabs.
        write = str.rstrip if self.paper_compat else partial(ESCAPED.sub, r"\1")
        written = {split: [(write(joke), score) for joke, score in part] for split, part in pairs.items()}
        return self.official(written, **remarks)


def held_out(joke: str) -> bool:
    """True for a tenth of all jokes, and the same for equal ones."""
    return int.from_bytes(hashlib.sha1(joke.encode()).digest()[:4]) % 10 == 0


@dataclass
class MultiRC(TextDataset):
    """Questions on a passage; an answer is all correct options.

    Of Khashabi et al. (2018), scored as text. One example a question: passage, blank line, ``Question: ...``; the
    answer is all right options, joined by `` | `` in the order of the file. The question stands last because a text
    that is too long loses its beginning. Questions without a right option (23 of 5,131 and 3 of 953) have nothing to be
    answered with and are left out; ``paper_compat`` keeps them, and the white space around options, as the original
    code did. The official test file has no labels, so that the paper's scores are those of validation.
    """

    all_splits = ("train", "validation")
    test_splits = ("validation",)
    metrics = "text"
    origin = raw.origin("multirc")
    later = (*TextDataset.later, ("test_rows", 0))

    _target_: str = "ntl.data.sets.official.MultiRC"
    name: str = "multirc"
    answers: str = "text"
    paper_compat: bool = setting(False, "Keep questions without a correct option, as the original code did.")
    test_rows: int = rows(0, "Validate, and so test, on the first so many rows; 0: on all.", min=0)

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        rows, dropped = {}, {}
        for split in self.wanted:
            pairs = list(_passages(self.read(split, data_dir, download), strip=not self.paper_compat))
            rows[split] = [pair for pair in pairs if pair[1] or self.paper_compat]
            if left_out := len(pairs) - len(rows[split]):
                dropped[split] = left_out
                logger.info(f"{self.name}: {left_out} of {len(pairs)} {split} questions have no right option: left out")
        rows["validation"] = rows["validation"][: self.test_rows or None]
        return self.official(rows, dropped=dropped)


def _passages(data: bytes, *, strip: bool) -> Iterator[Pair]:
    """Question with passage, and answer, empty when no option is right; options stripped, or as they stand."""
    for row in map(json.loads, data.splitlines()):
        for question in row["passage"]["questions"]:
            right = [option["text"] for option in question["answers"] if option["label"]]
            options = [option for text in right if (option := text.strip())] if strip else right
            asked = f"{row['passage']['text'].strip()}\n\nQuestion: {question['question'].strip()}"
            yield asked, " | ".join(options)


# ---- regression from text, read from files of packages: melting points of molecules, and the sentiment of sentences

POINTS = "chemicals/Phase Change/OpenNotebook Melting Points.tsv"
IDENTIFIERS = "chemicals/Identifiers/chemical identifiers pubchem large.tsv"
# Columns of the identifiers, which have no header.
CAS, SMILES, KEY, NAME = 1, 4, 6, 7
INSIDE = "additional_resources/hutto_ICWSM_2014.tar.gz"
DOMAINS = {
    "movies": "movieReviewSnippets",
    "editorials": "nytEditorialSnippets",
    "tweets": "tweets",
    "products": "amazonReviewSnippets",
}
TENTH = Decimal("0.1")
Found = tuple[str, Row | None]  # all rows of one key are in one split; None for one that is left out


@dataclass
class Packaged(TextDataset):
    """A data set for regression that is read from a file of a package. What is not held out is for training."""

    computes: ClassVar[bool | None] = False

    train_rows: int = rows(0, "Train on the first so many rows; 0: on all.", min=0)
    validation_rows: int = rows(500, "Rows for validation, or a few more.")
    test_rows: int = rows(1_000, "Rows for the test, or a few more.")
    seed: int = setting(0, "Seed of the splits.", min=0, max=2**32 - 1)

    @abstractmethod
    def found_in(self, package: bytes) -> list[Found]:
        """The rows of the file, each behind its key."""

    def material(self, data_dir: Path, *, download: bool = True) -> Material:
        """Rows in the order of the file."""
        keyed = self.found_in(self.read("train", data_dir, download))
        counts = {"test": self.test_rows, "validation": self.validation_rows}
        chosen = shared_out([key for key, _ in keyed], counts, self.seed)
        rows = {split: [row for index in chosen[split] if (row := keyed[index][1])] for split in self.all_splits}
        rows["train"] = rows["train"][: self.train_rows or None]
        return self.official(rows)


@dataclass
class MeltingPoints(Packaged):
    """Melting points of organic molecules, in whole kelvin: 90 to 766.

    ``Melting point of NAME in K:`` -> whole kelvin, for 10,036 molecules, by IUPAC name or SMILES.

    The package ``chemicals`` has both files: the Jean-Claude Bradley Open Melting Point Dataset, a CAS number and
    kelvin on a line, and PubChem's identifiers. They are joined by CAS number. 155 molecules have no IUPAC name, and
    are left out where names are asked for; the splits are those of all molecules, so that names and SMILES have the
    same ones.

    Stereoisomers and isotopes of a molecule share the first block of their InChI key, and are in one split. A text that
    belonged to two such blocks could be in two splits: all but its first molecule are left out (there is none in
    1.5.2).
    """

    origin = raw.origin("melting_points")

    _target_: str = "ntl.data.sets.official.MeltingPoints"
    name: str = "melting_points"
    text: str = setting("name", "A molecule is written by its IUPAC name or as SMILES.", choices=("name", "smiles"))
    cut: int = setting(160, "A longer name or SMILES is cut after so many characters.", "characters", min=1)

    def found_in(self, package: bytes) -> list[Found]:
        """The molecules of the wheel of ``chemicals`` with melting point and SMILES."""
        with zipfile.ZipFile(io.BytesIO(package)) as wheel:
            points, molecules = (_rows(wheel.read(name)) for name in (POINTS, IDENTIFIERS))
        next(points)  # the header
        kelvin = {row[0]: int(Decimal(row[1]).to_integral_value()) for row in points}
        keyed, first = list[Found](), dict[str, str]()  # text -> the block that it belongs to
        for molecule in molecules:
            if molecule[CAS] in kelvin and molecule[SMILES]:
                block = molecule[KEY].partition("-")[0]
                text = molecule[NAME if self.text == "name" else SMILES][: self.cut]
                row = Row(f"Melting point of {text} in K:", str(kelvin[molecule[CAS]]))
                keyed.append((block, row if text and first.setdefault(text, block) == block else None))
        return keyed


@dataclass
class Sentiment(Packaged):
    """Sentences and tweets, and how positive some twenty people find each, on average: -4.0 to 4.0.

    ``Sentiment of TEXT from -4 to 4:`` -> the mean of its ratings, to one decimal; the domain is the group.

    What VADER was tested with (Hutto and Gilbert, 2014): the source distribution of ``vaderSentiment`` has texts and
    the ratings of each, by 15 to 29 people, of some tweets by about 95. The ratings are kept (``labels``), for the CRPS
    of a model's own distribution. The mean that is printed beside 196 tweets is another one, by up to 1.1: they are
    variants of a tweet (``!!!``, capital letters) and have the ratings of the plain one.

    Texts of the same letters and digits are in one split, whatever their capitals, spaces and signs.
    """

    origin = raw.origin("sentiment")

    _target_: str = "ntl.data.sets.official.Sentiment"
    name: str = "sentiment"
    domain: str = setting("all", "Texts that are taken.", choices=("all", *DOMAINS))

    def found_in(self, package: bytes) -> list[Found]:
        """The texts of the source distribution of ``vaderSentiment``."""
        with tarfile.open(fileobj=io.BytesIO(package)) as outer:
            inside = _member(outer, f"{outer.getnames()[0].partition('/')[0]}/{INSIDE}")
        keyed, folder = list[Found](), INSIDE.rpartition("/")[2].removesuffix(".tar.gz")
        with tarfile.open(fileobj=io.BytesIO(inside)) as archive:
            for domain in DOMAINS if self.domain == "all" else [self.domain]:
                texts, ratings = (
                    # The first column -> the last one.
                    {row[0]: row[-1] for row in _rows(_member(archive, f"{folder}/{DOMAINS[domain]}_{name}.txt"))}
                    for name in ("GroundTruth", "anonDataRatings")
                )
                for key, text in texts.items():
                    labels = json.loads(ratings[key])
                    mean = (Decimal(sum(labels)) / len(labels)).quantize(TENTH)  # halves to even
                    mean = str(mean or abs(mean))  # no -0.0
                    asked, more = f"Sentiment of {text.strip()} from -4 to 4:", {"labels": json.dumps(labels)}
                    keyed.append((key_of(text.strip()), Row(asked, mean, domain, more)))
        return keyed


def key_of(text: str) -> str:
    """What texts have in common that are in one split: letters and digits; all of a text that has none."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def _rows(content: bytes) -> Iterator[list[str]]:
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    return filter(None, csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    return cast(io.BufferedReader, archive.extractfile(name)).read()


def shared_out(keys: Sequence[str], counts: Mapping[str, int], seed: int) -> dict[str, list[int]]:
    """The rows of each split of ``counts``, and of train, in their order; ``keys`` has a key for each row.

    Rows of one key are in one split: in the order of a seeded hash of the keys, each split takes keys until it has its
    count, or a little more. UserError: nothing is left for training.
    """
    rows: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        rows.setdefault(key, []).append(index)
    salt = seed.to_bytes(8)
    order = iter(sorted(rows, key=lambda key: hashlib.blake2b(key.encode(), digest_size=16, key=salt).digest()))
    splits: dict[str, list[int]] = {split: [] for split in (*counts, "train")}
    for split, count in counts.items():
        while len(splits[split]) < count and (key := next(order, None)) is not None:
            splits[split] += rows[key]
    splits["train"] = [index for key in order for index in rows[key]]
    if not splits["train"]:
        raise UserError(f"{len(keys):,} rows, of which {' and '.join(counts)} take all; lower their numbers of rows.")
    return {split: sorted(indices) for split, indices in splits.items()}
