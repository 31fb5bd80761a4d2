"""Texts of the rows of what scikit-learn takes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from ntl.data.frame import columns_of, texts_of

FLATS = pd.DataFrame({"area": [28, 30.5], "new": [True, False], 3: ["a", "b"]})
NARROW = pd.DataFrame({"{m2}": np.float32([0.1, 2.3]), "n": np.int8([1, 2]), "c": pd.Categorical(["d", "e"])})


@pytest.mark.parametrize(
    ("X", "template", "texts"),
    [
        (["a", "b"], "", ["a", "b"]),
        (pd.Series(["a", "b"]), "Rating of {text}:", ["Rating of a:", "Rating of b:"]),
        (FLATS, "", ["area: 28\nnew: True\n3: a", "area: 30.5\nnew: False\n3: b"]),
        (NARROW, "", ["{m2}: 0.1\nn: 1\nc: d", "{m2}: 2.3\nn: 2\nc: e"]),
        (FLATS, "{{{area} m2}}, {3}", ["{28 m2}, a", "{30.5 m2}, b"]),
    ],
)
def test_a_template_joins_the_cells_of_a_row(X: Any, template: str, texts: list[str]) -> None:
    assert texts_of(X, columns_of(X, template), template) == texts


@pytest.mark.parametrize(
    ("X", "template", "message"),
    [
        (np.ones((3, 2)), "", r"^X, of shape \(3, 2\), is not an array of texts"),
        (["a", None], "", r"^X\[1\] is None, not a text; give texts"),
        (["a", " "], "", r"^X\[1\] is an empty text"),
        ([], "", "0 sample"),
        (pd.DataFrame({"a": ["b", None]}), "", r"^X\[1\]: 'a' is (nan|null), .*, or leave the row out$"),
        (pd.DataFrame({"a": [1.0, np.nan]}), "", r"^X\[1\]: 'a' is nan, no finite number; fill it in, or leave"),
        (FLATS, "{aera} m2", "^X has no column aera, which fit and template have; it has area, new, 3"),
        (pd.concat([FLATS, FLATS], axis=1), "{area} m2", "^X has several columns area, which fit and template have"),
        (FLATS, "Rent", "^template='Rent' names no column; write {area} in it"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(X: Any, template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        texts_of(X, columns_of(X, template), template)
