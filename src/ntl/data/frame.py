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
    if wrong := [name for name in columns if [*frame.columns].count(name) != 1]:
        what, there = "several columns" if wrong[0] in frame.columns else "no column", ", ".join(frame.columns)
        raise ValueError(f"X has {what} {', '.join(wrong)}, which fit and template have; it has {there}")
    texts = list[str]()
    for at, row in enumerate(zip(*(frame[name].array for name in columns), strict=True)):
        pairs = zip(columns, row, strict=True)
        try:
            cells = {name: str(x) if isinstance(x, bool | np.bool_) else text_of(name, x) for name, x in pairs}
        except ValueError as error:
            raise ValueError(f"X[{at}]: {error}") from error
        usual = cells["text"] if [*cells] == ["text"] else "\n".join(f"{name}: {cell}" for name, cell in cells.items())
        filled = COLUMN.sub(lambda part, cells=cells: cells[part[1]] if part[1] else part[0][0], template)
        texts.append(filled if template else usual)
        if not "".join(cells.values()).strip():
            raise ValueError(f"X[{at}] is an empty text")
    return texts
