"""A linear model of a question's characters: the reference that a language model has to beat on measured numbers.

Ridge regression, by scikit-learn, on tf-idf of the 1- to 4-grams of characters, with 1 + ln of the counts. Of
``PENALTIES`` it has the one whose mean absolute error on validation is smallest. Questions are cut at ``CHARACTERS``,
and at most ``ROWS`` rows are learned, at even distances: whatever the data, it takes a minute or less.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ntl.evaluation.rules import get_rule
from ntl.numbers import format_number, parse_number
from ntl.system.errors import needs

PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
ROWS, VALIDATION_ROWS = 20_000, 2_000
CHARACTERS = 500
TextRows = Sequence[Mapping[str, str]]


class Ridge:
    """Fitted when it is made, on rows with ``question``, and in ``answer`` a number."""

    def __init__(self, train: TextRows, validation: TextRows) -> None:
        with needs("train"):
            from sklearn.feature_extraction.text import TfidfVectorizer
            from sklearn.linear_model import Ridge as Regression
        self._grams = TfidfVectorizer(analyzer="char", ngram_range=(1, 4), lowercase=False, sublinear_tf=True)
        (texts, answers_N), (held_out, known_M) = _read(train, ROWS), _read(validation, VALIDATION_ROWS)
        counts: Any = self._grams.fit_transform(texts)
        fitted = [Regression(alpha=penalty).fit(counts, answers_N) for penalty in PENALTIES]
        seen: Any = self._grams.transform(held_out)
        errors = [np.abs(model.predict(seen) - known_M).mean() for model in fitted]
        if not np.isfinite(errors).all():
            raise ValueError("the answers are so large that its fit overflows")
        best = int(np.argmin(errors))
        self.penalty, self._model = PENALTIES[best], fitted[best]

    def answers(self, questions: Sequence[str]) -> list[str]:
        """One number for each question, to six significant digits."""
        counts: Any = self._grams.transform([question[:CHARACTERS] for question in questions])
        numbers = (parse_number(f"{value:.6g}") for value in self._model.predict(counts).tolist())
        return ["" if number is None else format_number(number) for number in numbers]


def _read(rows: TextRows, most: int) -> tuple[list[str], np.ndarray]:
    extract = get_rule("default").extract
    count = min(len(rows), most)
    taken = [rows[index * len(rows) // count] for index in range(count)]
    numbers = np.array([float(extract(row["answer"]) or 0) for row in taken])
    return [row["question"][:CHARACTERS] for row in taken], numbers
