"""MultiRC of SuperGLUE v2: questions on a passage, each with several right options (Khashabi et al., 2018; Table 8).

One example a question: passage, blank line, ``Question: ...``; the answer is all right options, joined by `` | `` in
the order of the file. The question stands last because a text that is too long loses its beginning. Questions without
a right option (23 of 5,131 and 3 of 953) have nothing to be answered with and are left out; ``paper_compat`` keeps
them, and the white space around options, as the original code did. The official test file has no labels, so that the
paper's scores are those of validation.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ntl.config.data import MultiRCConfig
from ntl.data import raw
from ntl.data.dataset import Log, Material, TextDataset, numbered
from ntl.data.files import Pair, parse_jsonl, text_of
from ntl.system.errors import UserError

ARCHIVE = "https://dl.fbaipublicfiles.com/glue/superglue/data/v2/MultiRC.zip"
SEPARATOR = " | "


class Item(NamedTuple):
    """A question on its passage, with the right options as written."""

    passage: str
    question: str
    options: list[str]


class MultiRC(TextDataset):
    """Scored as text: the paper's check that the loss does no harm where numbers are rare."""

    splits = ("train", "validation")
    test_splits = ("validation",)
    metrics = "text"
    origin: ClassVar[raw.Origin] = raw.Origin(
        home="https://super.gluebenchmark.com/tasks",
        licence="none stated (SuperGLUE refers to the original terms): research use, no redistribution",
        cite="Khashabi et al., Looking Beyond the Surface, NAACL 2018; Wang et al., SuperGLUE, NeurIPS 2019",
        publishable=False,
        files={
            "train": raw.RawFile(
                "multirc/train.jsonl",
                ARCHIVE,
                "bb73d0838618f8269190a2533fead3140607558975ea0df6511fa534e8d3535c",
                member="MultiRC/train.jsonl",
            ),
            "validation": raw.RawFile(
                "multirc/val.jsonl",
                ARCHIVE,
                "d2b480195b15574ac00d52c4479f630bc161a7ab2de77e970fd00652846953ee",
                member="MultiRC/val.jsonl",
            ),
        },
    )
    config: MultiRCConfig

    def material(self, data_dir: Path, log: Log, *, download: bool = True) -> Material:
        write = pair_as_paper if self.config.paper_compat else pair
        rows, dropped = {}, {}
        for split, file in self.origin.files.items():
            items = raw.read(file, parse, data_dir, log, download=download)
            pairs = [write(item) for item in items]
            kept = pairs if self.config.paper_compat else [row for row in pairs if row[1]]
            if len(kept) < len(pairs):
                dropped[split] = len(pairs) - len(kept)
                log(f"{self.name}: {dropped[split]} of {len(pairs)} {split} questions have no right option: left out")
            rows[split] = numbered(split, kept, len(kept))
        return Material(rows, self.origin.source, remarks={**self.origin.remarks, "dropped": dropped})


def pair(item: Item) -> Pair:
    """Question with passage, and answer; empty when no option is right."""
    options = (option.strip() for option in item.options)
    return _asked(item), SEPARATOR.join(filter(None, options))


def pair_as_paper(item: Item) -> Pair:
    return _asked(item), SEPARATOR.join(item.options)


def _asked(item: Item) -> str:
    return f"{item.passage.strip()}\n\nQuestion: {item.question.strip()}"


def parse(data: bytes, label: str) -> list[Item]:
    """The questions of all passages; UserError names the line that is not of SuperGLUE's form, or repeats an idx."""
    items: list[Item] = []
    seen: dict[int, int] = {}
    for number, row in parse_jsonl(data, label, ()):
        where = f"{label}:{number}"
        passage = _object(row.get("passage"), "passage", where)
        text = _filled(passage, "text", where)
        for question in _objects(passage, "questions", where):
            index = question.get("idx")
            if not isinstance(index, int):
                raise UserError(f"{where}: a question without a whole number 'idx'.")
            first = seen.setdefault(index, number)
            here = f"{where}: question {index}"
            if first != number or len(seen) == len(items):
                raise UserError(f"{here}: stands in line {first} already.")
            items.append(Item(text, _filled(question, "question", here), list(_right(question, here))))
    return items


def _right(question: dict[str, Any], where: str) -> Iterator[str]:
    for option in _objects(question, "answers", where):
        text, chosen = text_of(option, "text", where), option.get("label")
        if chosen not in (0, 1):
            raise UserError(f"{where}: an option without a 'label' of 0 or 1; the official test file has none.")
        if chosen:
            yield text


def _filled(row: dict[str, Any], key: str, where: str) -> str:
    text = text_of(row, key, where)
    if not text.strip():
        raise UserError(f"{where}: empty {key!r}.")
    return text


def _object(value: Any, key: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: {key!r} is not an object.")
    return value


def _objects(row: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    values = row.get(key)
    if not isinstance(values, list):
        raise UserError(f"{where}: {key!r} is not a list.")
    return [_object(value, key, where) for value in values]
