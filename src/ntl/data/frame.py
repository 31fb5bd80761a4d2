"""Texts of the rows of a list, an array, a Series or a DataFrame, whose columns a template joins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ntl.data.sets.file import COLUMN, text_of


def columns_of(X: Any, template: str) -> list[str]:
    """The columns that texts are made from: those of the template, or all. ValueError: the template names none."""
    there = [*map(str, X.columns)] if isinstance(X, pd.DataFrame) else ["text"]
    if template and not any(COLUMN.findall(template)):
        raise ValueError(f"template={template!r} names no column; write {{{there[0]}}} in it, or the columns you mean")
    return [*dict.fromkeys(filter(None, COLUMN.findall(template)))] or there


def texts_of(X: Any, columns: Sequence[str], template: str) -> list[str]:
    """One text for each row, by default a line "column: value" for each column.

    ValueError, with its place: a row without text, or a cell that is neither text nor a finite number.
    """
    if isinstance(X, pd.DataFrame):
        frame = X.rename(columns=str)
    else:
        array = np.asarray(X, dtype=object)
        if array.ndim != 1:
            raise ValueError(f"X, of shape {array.shape}, is not an array of texts, (n,), nor a DataFrame")
        if wrong := [at for at, value in enumerate(array) if not isinstance(value, str)]:
            raise ValueError(f"X[{wrong[0]}] is {array[wrong[0]]!r:.60}, not a text; give texts, (n,), or a DataFrame")
        frame = pd.DataFrame({"text": array})
    if frame.empty:
        raise ValueError("Found array with 0 sample(s) (X) while a minimum of 1 is required.")
    if lacking := [name for name in columns if name not in frame.columns]:
        there = ", ".join(map(str, frame.columns))
        raise ValueError(f"X has no column {', '.join(lacking)}, which fit and template have; it has {there}")
    usual = "{text}" if [*columns] == ["text"] else "\n".join(f"{name}: {{{name}}}" for name in columns)
    texts = list[str]()
    for at, row in enumerate(pd.DataFrame(frame[[*columns]]).to_dict(orient="records")):
        values = {str(name): str(cell) if isinstance(cell, bool) else cell for name, cell in row.items()}
        try:
            cells = {name: text_of(name, cell) for name, cell in values.items()}
        except ValueError as error:
            raise ValueError(f"X[{at}]: {error}") from error
        texts.append(COLUMN.sub(lambda part, cells=cells: cells[part[1]] if part[1] else part[0][0], template or usual))
        if not "".join(cells.values()).strip():
            raise ValueError(f"X[{at}] is an empty text")
    return texts
