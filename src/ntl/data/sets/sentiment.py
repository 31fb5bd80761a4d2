"""How positive people find a text, from -4 to 4: what VADER was tested with (Hutto and Gilbert, 2014).

The source distribution of the package ``vaderSentiment`` has the texts and the ratings of each, by 15 to 29 people, of
some tweets by about 95. The answer is the mean of a text's own ratings, to one decimal; the ratings are kept beside it
(``labels``), for the CRPS of a model's own distribution. The mean that is printed beside 196 tweets is another one, by
up to 1.1: they are variants of a tweet (``!!!``, capital letters) and have the ratings of the plain one.

Texts of the same letters and digits are in one split, whatever their capitals, spaces and signs.
"""

import csv
import io
import json
import tarfile
import zlib
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, NamedTuple, cast

from ntl.config.data import SentimentConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset, shared_out
from ntl.system.errors import UserError

INSIDE = "additional_resources/hutto_ICWSM_2014.tar.gz"
DOMAINS = {
    "movies": "movieReviewSnippets",
    "editorials": "nytEditorialSnippets",
    "tweets": "tweets",
    "products": "amazonReviewSnippets",
}
TENTH = Decimal("0.1")


class Rated(NamedTuple):
    """A text and its ratings, each from -4 to 4."""

    domain: str
    text: str
    ratings: list[int]

    @property
    def mean(self) -> str:
        """To one decimal, halves to even."""
        found = (Decimal(sum(self.ratings)) / len(self.ratings)).quantize(TENTH)
        return str(found or abs(found))  # no -0.0


class Sentiment(TextDataset):
    """``Sentiment of TEXT from -4 to 4:`` -> a decimal; the domain is the group."""

    origin: ClassVar[raw.Origin] = raw.Origin(
        home="https://github.com/cjhutto/vaderSentiment",
        licence="MIT (the package); the texts are third parties': no redistribution",
        cite="Hutto and Gilbert, VADER: A Parsimonious Rule-based Model for Sentiment Analysis of Social Media Text, "
        "ICWSM 2014",
        publishable=False,
        files={
            "train": raw.package_file(
                "vadersentiment==3.3.2",
                "vaderSentiment-3.3.2.tar.gz",
                "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
            )
        },
    )
    config: SentimentConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows in the order of the files."""
        config = self.config
        rated = parse(self.read("train", data_dir, log, download=download), self.origin.files["train"].path)
        rated = [each for each in rated if config.domain in ("all", each.domain)]
        counts = {"test": config.test_rows, "validation": config.validation_rows}
        chosen = shared_out([key_of(each.text) for each in rated], counts, config.seed)
        chosen["train"] = chosen["train"][: config.train_rows or None]
        rows = {split: [rated[index] for index in chosen[split]] for split in self.splits}
        asked = {
            split: [(f"Sentiment of {each.text} from -4 to 4:", each.mean, each.domain) for each in part]
            for split, part in rows.items()
        }
        material = self.official(asked)
        material.splits = {
            split: [
                {**example, "labels": json.dumps(each.ratings)} for example, each in zip(part, rows[split], strict=True)
            ]
            for split, part in material.splits.items()
        }
        return material


def key_of(text: str) -> str:
    """What texts have in common that are in one split: letters and digits; all of a text that has none."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def parse(data: bytes, label: str) -> list[Rated]:
    """The texts of a source distribution of ``vaderSentiment``. UserError: it is none, or damaged."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as package:
            top = package.getnames()[0].partition("/")[0]
            inside = _member(package, f"{top}/{INSIDE}")
        with tarfile.open(fileobj=io.BytesIO(inside)) as archive:
            return [each for domain, name in DOMAINS.items() for each in _of_domain(archive, domain, name)]
    except (OSError, EOFError, zlib.error, tarfile.TarError, KeyError, ValueError, IndexError, csv.Error) as error:
        raise UserError(f"{label}: no whole source distribution of vaderSentiment with ratings ({error}).") from error


def _of_domain(archive: tarfile.TarFile, domain: str, name: str) -> list[Rated]:
    folder = INSIDE.rpartition("/")[2].removesuffix(".tar.gz")
    texts = _table(archive, f"{folder}/{name}_GroundTruth.txt")
    ratings = _table(archive, f"{folder}/{name}_anonDataRatings.txt")
    return [Rated(domain, text.strip(), json.loads(ratings[key])) for key, text in texts.items()]


def _table(archive: tarfile.TarFile, name: str) -> dict[str, str]:
    """The first column -> the last one."""
    text = io.StringIO(_member(archive, name).decode("utf-8-sig"), newline="")
    return {row[0]: row[-1] for row in csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE) if row}


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    return cast(io.BufferedReader, archive.extractfile(name)).read()
