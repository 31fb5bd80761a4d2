"""Answers on the disk while a decoding is under way, so that the same one given again does not begin anew."""

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
    """Whole batches of answers in their order, a line each, under a line that says what they are answers to.

    ``answers`` are those that are there already: none where the first line is not this ``key``. A batch whose line a
    kill cut off is none.
    """

    def __init__(self, path: Path, key: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.answers: list[Answer] = []
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        first = _line(dict(key))
        whole = 0
        if lines[:1] == [first]:
            whole = len(first)
            for line in lines[1:]:
                batch = _answers(line)
                if batch is None:
                    break
                self.answers += batch
                whole += len(line)
        with path.open("r+b" if lines else "wb") as file:
            file.truncate(whole)
            if not whole:
                file.write(first)

    def add(self, batch: Sequence[Answer]) -> None:
        """To the file alone."""
        with self.path.open("ab") as file:
            file.write(_line(batch))


def _line(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode("ascii") + b"\n"


def _answers(line: bytes) -> list[Answer] | None:
    try:
        return [Answer(*fields) for fields in json.loads(line)] if line.endswith(b"\n") else None
    except (ValueError, TypeError):
        return None
