"""Token ids on disk, in an Arrow file that `datasets` maps."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Subset

IDS = "ids.arrow"
END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow file that is whole
LENGTHS = ("question", "answer")


class EncodedDataset:
    """Token ids of questions and answers, read from disk on demand.

    ``dataset[i]`` is ``{"question_ids": (S,), "answer_ids": (T,)}``, both uint16 where the vocabulary allows and int32
    otherwise, the answer with its end token; where tokens have values (``ntl.data.encode.Encoder``), also
    ``question_values`` (S,) and ``answer_values`` (T,) float64, and where they have weights ``answer_weights``, (T,) or
    (T, 2) float32. Packed examples have ``documents``: the number of the first one, and how many of the labels belong
    to each from there on. ``about`` counts truncated questions and examples with unknown tokens, and has the longest
    question, answer and example in tokens. ValueError or OSError where the file is missing or was cut.
    """

    def __init__(self, folder: Path) -> None:
        import datasets
        from pyarrow import compute

        arrow: Any = compute
        self.folder = folder
        with open(folder / IDS, "rb") as stream:
            stream.seek(-len(END), 2)
            if stream.read() != END:
                raise ValueError(f"{folder / IDS}: cut off")
        self.data: Any = datasets.Dataset.from_file(str(folder / IDS)).with_format("arrow")
        features = self.data.features
        self.arrays = [name for name, feature in features.items() if isinstance(feature, datasets.List)]
        counted, table = features.keys() - {*self.arrays, *LENGTHS}, self.data.data
        self.about: dict[str, int] = {name: arrow.sum(table[name]).as_py() for name in counted}
        question, answer = (table[name] for name in LENGTHS)
        lengths = {"question": question, "answer": answer, "example": arrow.add(question, answer)}
        self.about |= {f"longest_{name}": arrow.max(column).as_py() for name, column in lengths.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # A data worker that is not forked opens the file itself.
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, np.ndarray]]:
        """Several examples, as a DataLoader asks for them."""
        # In numpy's format, which makes an array of each cell by itself, a batch takes ten times as long.
        table, columns = self.data[indices], dict[str, list[np.ndarray]]()
        for name in self.arrays:
            column = table[name].combine_chunks()
            cells = column.flatten()
            flat = cells.flatten().to_numpy().reshape(len(cells), -1) if _is_nested(cells) else cells.to_numpy()
            columns[name] = np.split(flat, column.value_lengths().to_numpy().cumsum()[:-1])
        return [dict(zip(columns, example, strict=True)) for example in zip(*columns.values(), strict=True)]

    def last_values(self) -> np.ndarray:
        """The value of each example's last token, which is its answer where ``keep_target`` was set."""
        values = self.data.data["answer_values"].combine_chunks()
        return values.flatten().to_numpy()[values.value_lengths().to_numpy().cumsum() - 1]

    @cached_property
    def _lengths(self) -> np.ndarray:
        question, answer = (self.data.data[name].to_numpy() for name in LENGTHS)
        return question + answer

    def lengths(self, indices: np.ndarray) -> np.ndarray:
        """Tokens of each example (int32), question and answer together."""
        return self._lengths[indices]

    def first(self, rows: int) -> Subset[dict[str, np.ndarray]]:
        """The first ``rows`` examples, or all when ``rows`` is 0."""
        dataset: Any = self
        return Subset(dataset, range(min(rows, len(self)) if rows else len(self)))


def _is_nested(cells: Any) -> bool:
    return hasattr(cells, "value_lengths")


class Packer:
    """Documents, encoded without questions, end to end: as examples of ``length`` labels, for language modelling.

    The stream of a split is: end token, document, end token, document, end token, and so on, as for GPT-2. Nothing is
    masked between documents, and the first token of one is predicted from the end token before it. Example i has the
    labels ``answer_ids`` (T,), tokens ``i * length`` up to ``(i + 1) * length`` of the stream, and in ``question_ids``
    (1,) the token before them. T is ``length`` in all examples but the last.
    """

    def __init__(self, length: int, end: int) -> None:
        self.length, self.before, self.documents = length, end, 0
        self.tokens, self.owners, self.weights = list[int](), list[int](), list[Any]()
        self.counts: dict[str, int] = {}

    def __call__(self, columns: dict[str, list[Any]], *, is_last: bool) -> dict[str, list[Any]]:
        """The examples that are full with these documents, and with the last ones the rest."""
        weights = columns.get("answer_weights", [])
        for number, pair in enumerate(zip(columns["question_ids"], columns["answer_ids"], strict=True)):
            tokens = [*pair[0], *pair[1]]  # before a document is what a text begins with, such as Llama's first token
            self.tokens += tokens
            self.owners += [self.documents + number] * len(tokens)
            if weights:
                self.weights += [weights[number][0]] * len(pair[0]) + list(weights[number])
        self.documents += len(columns["answer_ids"])
        counted = columns.keys() - {"question_ids", "answer_ids", "answer_weights", *LENGTHS}
        self.counts = {name: self.counts.get(name, 0) + sum(columns[name]) for name in counted}
        made: dict[str, list[Any]] = {name: [] for name in [*columns, "documents"]}
        end = len(self.tokens) if is_last else len(self.tokens) - len(self.tokens) % self.length
        for start in range(0, end, self.length):
            part = slice(start, min(start + self.length, end))
            labels, owners = self.tokens[part], np.array(self.owners[part])
            example = {"question_ids": [self.before], "answer_ids": labels, "question": 1, "answer": len(labels)}
            example |= {"documents": [owners[0], *np.bincount(owners - owners[0])], **self.counts}
            example |= {"answer_weights": self.weights[part]} if weights else {}
            self.counts, self.before = dict.fromkeys(self.counts, 0), labels[-1]
            for name, value in example.items():
                made[name].append(value)
        del self.tokens[:end], self.owners[:end], self.weights[:end]
        return made
