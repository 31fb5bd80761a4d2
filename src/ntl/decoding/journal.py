"""Answers on the disk while a decoding is under way, so that the same one given again does not begin anew."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# A plain dict, as answers are pickled between processes.
NOTHING: Mapping[str, Any] = {}


class Answer(NamedTuple):
    """A decoded answer: its text, and its tokens with the end token, if it ended, and without padding.

    ``about`` is what else a row of predictions.jsonl says of it.
    """

    text: str
    token_ids: list[int]
    about: Mapping[str, Any] = NOTHING


class Journal:
    """Whole batches of answers, a line each, under a line that says what they are answers to.

    A line has the batch's index, and a sha256 of the key, the index, the ids of the batch's examples and the answers.
    One that does not agree, whoever wrote it, counts for nothing, as does one that a kill cut off.

    ``answers`` are those that are there already, by batch: none where the first line is not this ``key``.

    Args:
        batches: The ids of each batch's examples.
    """

    def __init__(self, path: Path, key: Mapping[str, Any], batches: Sequence[Sequence[str]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.batches = batches
        self.answers: dict[int, list[Answer]] = {}
        self._first = _line(key, sort_keys=True)
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        whole = [line for line in lines if line.endswith(b"\n")] if lines[:1] == [self._first] else []
        for line in whole[1:]:
            self.answers.update(self._read(line))
        with path.open("r+b" if lines else "wb") as file:
            file.truncate(sum(map(len, whole)))
            if not whole:
                file.write(self._first)

    @property
    def examples(self) -> int:
        """How many are answered in ``answers``."""
        return sum(map(len, self.answers.values()))

    def add(self, batch: int, answers: Sequence[Answer]) -> None:
        """To the file alone."""
        with self.path.open("ab") as file:
            file.write(_line({"batch": batch, "sha256": self._digest(batch, answers), "answers": answers}))

    def _digest(self, batch: int, answers: Sequence[Answer]) -> str:
        return hashlib.sha256(self._first + _line([batch, self.batches[batch], answers])).hexdigest()

    def _read(self, line: bytes) -> dict[int, list[Answer]]:
        try:
            entry = json.loads(line)
            batch, answers = entry["batch"], [Answer(*fields) for fields in entry["answers"]]
            return {batch: answers} if entry["sha256"] == self._digest(batch, answers) else {}
        except (ValueError, TypeError, LookupError):
            return {}


def _line(value: Any, sort_keys: bool = False) -> bytes:
    return json.dumps(value, sort_keys=sort_keys).encode("ascii") + b"\n"
