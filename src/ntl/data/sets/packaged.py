"""Regression from text, read from files of packages: melting points of molecules, and the sentiment of sentences."""

import csv
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, cast

from ntl.config.data import MeltingPointsConfig, SentimentConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset
from ntl.system.errors import UserError

POINTS = "chemicals/Phase Change/OpenNotebook Melting Points.tsv"
IDENTIFIERS = "chemicals/Identifiers/chemical identifiers pubchem large.tsv"
# Columns of the identifiers, which have no header.
CAS, SMILES, KEY, NAME = 1, 4, 6, 7


class Molecule(NamedTuple):
    """``block`` is the first block of the InChI key; ``name`` may be empty."""

    block: str
    smiles: str
    name: str
    kelvin: int


class MeltingPoints(TextDataset):
    """``Melting point of NAME in K:`` -> whole kelvin, for 10,036 molecules, by IUPAC name or SMILES.

    The package ``chemicals`` has both files: the Jean-Claude Bradley Open Melting Point Dataset, a CAS number and
    kelvin on a line, and PubChem's identifiers. They are joined by CAS number. 155 molecules have no IUPAC name, and
    are left out where names are asked for; the splits are those of all molecules, so that names and SMILES have the
    same ones.

    Stereoisomers and isotopes of a molecule share the first block of their InChI key, and are in one split. A text that
    belonged to two such blocks could be in two splits: all but its first molecule are left out (there is none in
    1.5.2).
    """

    origin = raw.origin("melting_points")
    config: MeltingPointsConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows in the order of the identifiers."""
        config = self.config
        molecules = molecules_in(self.read("train", data_dir, log, download))
        counts = {"test": config.test_rows, "validation": config.validation_rows}
        chosen = shared_out([each.block for each in molecules], counts, config.seed)
        texts = [getattr(each, config.text)[: config.cut] for each in molecules]
        first: dict[str, str] = {}  # text -> the block that it belongs to
        told = [
            bool(text) and first.setdefault(text, each.block) == each.block
            for text, each in zip(texts, molecules, strict=True)
        ]
        pairs = {
            split: [(f"Melting point of {texts[i]} in K:", str(molecules[i].kelvin)) for i in indices if told[i]]
            for split, indices in chosen.items()
        }
        pairs["train"] = pairs["train"][: config.train_rows or None]
        return self.official(pairs)


def molecules_in(wheel: bytes) -> list[Molecule]:
    """The molecules of the wheel of ``chemicals`` with melting point and SMILES."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        kelvin = {row[0]: int(Decimal(row[1]).to_integral_value()) for row in list(_rows(archive, POINTS))[1:]}
        return [
            Molecule(row[KEY].partition("-")[0], row[SMILES], row[NAME], kelvin[row[CAS]])
            for row in _rows(archive, IDENTIFIERS)
            if row[CAS] in kelvin and row[SMILES]
        ]


def _rows(wheel: zipfile.ZipFile, member: str) -> Iterator[list[str]]:
    with wheel.open(member) as stream:
        yield from csv.reader(io.TextIOWrapper(stream, "utf-8", newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)


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
    """``Sentiment of TEXT from -4 to 4:`` -> the mean of its ratings, to one decimal; the domain is the group.

    What VADER was tested with (Hutto and Gilbert, 2014): the source distribution of ``vaderSentiment`` has texts and
    the ratings of each, by 15 to 29 people, of some tweets by about 95. The ratings are kept (``labels``), for the CRPS
    of a model's own distribution. The mean that is printed beside 196 tweets is another one, by up to 1.1: they are
    variants of a tweet (``!!!``, capital letters) and have the ratings of the plain one.

    Texts of the same letters and digits are in one split, whatever their capitals, spaces and signs.
    """

    origin = raw.origin("sentiment")
    config: SentimentConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows in the order of the files."""
        config = self.config
        rated = rated_in(self.read("train", data_dir, log, download))
        rated = [each for each in rated if config.domain in ("all", each.domain)]
        counts = {"test": config.test_rows, "validation": config.validation_rows}
        chosen = shared_out([key_of(each.text) for each in rated], counts, config.seed)
        chosen["train"] = chosen["train"][: config.train_rows or None]
        rows = {split: [rated[index] for index in chosen[split]] for split in self.splits}
        material = self.official(
            {
                split: [(f"Sentiment of {each.text} from -4 to 4:", each.mean, each.domain) for each in part]
                for split, part in rows.items()
            }
        )
        examples = {split: list(part) for split, part in material.splits.items()}
        for split, part in rows.items():
            for example, each in zip(examples[split], part, strict=True):
                example["labels"] = json.dumps(each.ratings)
        return replace(material, splits=examples)


def key_of(text: str) -> str:
    """What texts have in common that are in one split: letters and digits; all of a text that has none."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def rated_in(package: bytes) -> list[Rated]:
    """The texts of the source distribution of ``vaderSentiment``."""
    with tarfile.open(fileobj=io.BytesIO(package)) as outer:
        inside = _member(outer, f"{outer.getnames()[0].partition('/')[0]}/{INSIDE}")
    rated, folder = list[Rated](), INSIDE.rpartition("/")[2].removesuffix(".tar.gz")
    with tarfile.open(fileobj=io.BytesIO(inside)) as archive:
        for domain, name in DOMAINS.items():
            ratings = _table(archive, f"{folder}/{name}_anonDataRatings.txt")
            for key, text in _table(archive, f"{folder}/{name}_GroundTruth.txt").items():
                rated.append(Rated(domain, text.strip(), json.loads(ratings[key])))
    return rated


def _table(archive: tarfile.TarFile, name: str) -> dict[str, str]:
    """The first column -> the last one."""
    text = io.StringIO(_member(archive, name).decode("utf-8-sig"), newline="")
    return {row[0]: row[-1] for row in csv.reader(text, delimiter="\t", quoting=csv.QUOTE_NONE) if row}


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
    found: dict[str, list[int]] = {split: [] for split in (*counts, "train")}
    for split, count in counts.items():
        while len(found[split]) < count and (key := next(order, None)) is not None:
            found[split] += rows[key]
    found["train"] = [index for key in order for index in rows[key]]
    if not found["train"]:
        raise UserError(f"{len(keys):,} rows, of which {' and '.join(counts)} take all; lower their numbers of rows.")
    return {split: sorted(indices) for split, indices in found.items()}
