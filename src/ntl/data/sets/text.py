"""Plain text of one's own: a row's answer is a document, its question is empty (``ntl.data.encoded.Packed``)."""

from collections.abc import Iterator, Sequence
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any

from ntl.config.data import PLAIN_TEXT, Documents, TextConfig, suffix_of
from ntl.data.files import Pair
from ntl.data.sets.file import Own, Table, read_text, text_of
from ntl.system.errors import UserError

# The longest document in characters; a tokenizer needs some hundred times as much memory.
LONGEST = 1 << 24


class Text(Own):
    """Scored by the likelihood of its documents. Rows without text are left out."""

    metrics = "likelihood"
    rows_are = "documents"
    config: TextConfig

    def columns(self, names: Sequence[str]) -> list[str]:
        return [self.config.column]

    def open(self, path: Path) -> dict[str, Table]:
        if suffix_of(path) not in PLAIN_TEXT:
            return super().open(path)
        column, kind = self.config.column, self.config.documents
        return {"": Table(str(path), lambda columns: ((at, {column: text}) for at, text in documents(path, kind)))}

    def pair(self, row: dict[str, Any]) -> Pair | None:
        text = text_of(self.config.column, row[self.config.column])
        return ("", text) if text.strip() else None


def documents(path: Path, kind: Documents) -> Iterator[tuple[str, str]]:
    """The documents of a text file, without blank lines around them, each behind the place where it begins."""
    lines = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    lines[-1] = lines[-1].rstrip()
    numbered = dropwhile(_is_blank, enumerate(lines, start=1))
    part_of = {Documents.paragraph: _is_blank, Documents.line: lambda line: line[0], Documents.file: lambda line: 0}
    for _, group in groupby(numbered, part_of[kind]):
        numbers, texts = zip(*group, strict=True)
        place, text = f"{path}:{numbers[0]}", "\n".join(texts)
        if "\0" in text:
            raise UserError(f"{place}: a zero byte, so this is no text file; give text in UTF-8.")
        if len(text) > LONGEST:
            raise UserError(
                f"{place}: a document of more than {LONGEST:,} characters, too long to tokenize at once; divide it by "
                f"blank lines, or by dataset.documents=line, now {kind.name}."
            )
        if text.strip():
            yield place, text.rstrip() if kind is Documents.file else text


def _is_blank(line: tuple[int, str]) -> bool:
    return not line[1].strip()
