"""Plain text of a user's own: documents without questions, for language modelling.

A row's answer is a document and its question is empty; ``ntl.data.packed`` cuts the documents into examples.
"""

import hashlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ntl.config.data import Documents, TextConfig
from ntl.data.dataset import Log, Material, TextDataset
from ntl.data.store import Example
from ntl.system.errors import UserError, one_line_errors

PLAIN = (".txt", ".md")
# The longest document in bytes; a tokenizer needs some hundred times as much memory.
LONGEST = 1 << 24


class Document(NamedTuple):
    """``where``: the file and the line or row that it begins in."""

    where: str
    text: str


class Text(TextDataset):
    """A document is in the split that its content decides, so that equal documents are in the same one."""

    splits = ("train", "validation", "test")
    test_splits = ("test",)
    metrics = "likelihood"
    config: TextConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        log(f"{self.name}: reading {', '.join(self._own.values())}")
        warnings = self._warnings()
        for warning in warnings:
            log(f"{self.name}: {warning}")
        source = {"kind": "files of the user", "files": self._own}
        rows = {split: self._numbered(split) for split in self.splits}
        return Material(rows, source, remarks={"warnings": warnings} if warnings else {})

    def fault(self, question: str, answer: str) -> str | None:
        return None if answer and not question else "no document"

    @property
    def _own(self) -> dict[str, str]:
        config = self.config
        paths = {"train": config.path, "validation": config.validation_path, "test": config.test_path}
        return {split: path for split, path in paths.items() if path}

    def _numbered(self, split: str) -> Iterator[Example]:
        index = -1
        for index, document in enumerate(self._of(split)):
            # How many there are is known only at the end.
            yield Example(id=f"{split}/{index:09d}", question="", answer=document.text)
        if index < 0:
            path, kind = self._own.get(split, self.config.path), self.config.documents.name
            share = "" if split in self._own else f" in the share that dataset.splits.{split} sets"
            raise UserError(
                f"{path}: no document for {split}{share}; give more text, or divide it otherwise by "
                f"dataset.documents=, now {kind}."
            )

    def _of(self, split: str) -> Iterator[Document]:
        if split != "train" and split in self._own:
            return self._read(self._own[split])
        return (document for document in self._read(self.config.path) if self._split(document.text) == split)

    def _split(self, text: str) -> str:
        config = self.config
        test = 0.0 if config.test_path else config.splits.test
        validation = 0.0 if config.validation_path else config.splits.validation
        draw = int.from_bytes(_digest(f"{config.seed} {text}"), "big") / 2**64
        return "test" if draw < test else "validation" if draw < test + validation else "train"

    def _read(self, path: str) -> Iterator[Document]:
        return documents(Path(path), self.config.documents)

    def _warnings(self) -> list[str]:
        """How many documents of a file of its own are in the training text, too."""
        held_out = {
            split: [_digest(document.text) for document in self._read(path)]
            for split, path in self._own.items()
            if split != "train"
        }
        known = set(chain.from_iterable(held_out.values()))
        trained = (_digest(document.text) for document in self._of("train")) if known else ()
        both = known.intersection(trained)
        found = {split: sum(digest in both for digest in digests) for split, digests in held_out.items()}
        return [
            f"{count:,} of {len(held_out[split]):,} {split} documents are in the training text, too"
            for split, count in found.items()
            if count
        ]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def documents(path: Path, kind: Documents) -> Iterator[Document]:
    """The documents of a plain text file in UTF-8, without line ends around them; blank ones are none."""
    held: list[str] = []
    first = size = 0
    for number, line in lines(path):
        if held and kind is not Documents.file and (kind is Documents.line or not line.strip()):
            yield Document(f"{path}:{first}", "\n".join(held))
            held, size = [], 0
        if not held and not line.strip():
            continue
        first = first if held else number
        held.append(line)
        size += len(line)
        if size > LONGEST:
            raise UserError(
                f"{path}:{first}: a document of more than {LONGEST >> 20} MiB, too long to tokenize at once; divide it "
                f"by blank lines, or by dataset.documents=line, now {kind.name}."
            )
    if text := "\n".join(held).rstrip():
        yield Document(f"{path}:{first}", text)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers from 1 and lines without their ends; a byte order mark is left out."""
    with one_line_errors("read", path), open(path, "rb") as stream:
        number = 0
        while line := stream.readline(LONGEST + 1):
            number += 1
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{path}:{number}: byte 0x{line[error.start]:02x} is not UTF-8; save the file as UTF-8 text."
                ) from error
            if "\0" in text:
                raise UserError(f"{path}:{number}: a zero byte, so this is no text file; give text in UTF-8.")
            yield number, text.rstrip("\r\n")
