"""Plain text of one's own: documents without questions, for language modelling.

A row's answer is a document, and its question is empty; ``ntl.data.packed`` cuts the documents into examples.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ntl.config.data import PLAIN_TEXT, Documents, TextConfig, suffix_of
from ntl.data.files import Pair, text_lines
from ntl.data.formats import Table
from ntl.data.sets.file import Own, text_of
from ntl.system.errors import UserError

# The longest document in characters; a tokenizer needs some hundred times as much memory.
LONGEST = 1 << 24


class Text(Own):
    """Scored by the likelihood of its documents. Rows without text are left out."""

    metrics = "likelihood"
    rows_are = "documents"
    config: TextConfig

    @property
    def columns(self) -> list[str]:
        return [self.config.column]

    def open(self, path: Path) -> dict[str, Table]:
        if suffix_of(path) not in PLAIN_TEXT:
            return super().open(path)
        numbered = documents(path, self.config.documents)
        return {"": Table(str(path), lambda columns: ((number, [text]) for number, text in numbered))}

    def pair(self, values: list[Any]) -> Pair | None:
        text = text_of(self.config.column, values[0])
        return ("", text) if text.strip() else None

    def fault(self, question: str, answer: str) -> str | None:
        return None if answer.strip() and not question else "no document"


def documents(path: Path, kind: Documents) -> Iterator[tuple[int, str]]:
    """The documents of a text file, without blank lines around them, and the numbers of the lines they begin in."""
    held: list[str] = []
    first = size = 0
    for number, line in text_lines(path):
        if "\0" in line:
            raise UserError(f"{path}:{number}: a zero byte, so this is no text file; give text in UTF-8.")
        is_blank = not line.strip()
        if held and (kind is Documents.line or (kind is Documents.paragraph and is_blank)):
            yield first, "\n".join(held)
            held, size = [], 0
        if is_blank and not held:
            continue
        first = first if held else number
        held.append(line.removesuffix("\r"))
        size += len(line)
        if size > LONGEST:
            raise UserError(
                f"{path}:{first}: a document of more than {LONGEST:,} characters, too long to tokenize at once; divide "
                f"it by blank lines, or by dataset.documents=line, now {kind.name}."
            )
    if text := "\n".join(held).rstrip():
        yield first, text
