"""What a record keeps of single examples: correctness, a sample of errors, digits, and which examples they were."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

ERROR_SAMPLE = 1000
_ERROR_DIGITS = 6  # enough for paired tests, and keeps a record small


def hash_ids(ids: Iterable[str]) -> str:
    """sha256 over all ids in their order: equal hashes mean that two runs can be paired example by example."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()


def sample_errors(ids: Sequence[str], errors: NDArray[np.float64], limit: int = ERROR_SAMPLE) -> list[float | None]:
    """Errors of the first ``limit`` examples in the order of sha1(id), to 6 significant digits; None where undefined.

    The sample depends on the ids alone, so that every run over the same examples keeps the same ones.
    """
    order = sorted(range(len(ids)), key=lambda i: hashlib.sha1(ids[i].encode("utf-8", "surrogatepass")).digest())
    chosen = (float(errors[index]) for index in order[:limit])
    return [None if math.isnan(error) else float(f"{error:.{_ERROR_DIGITS}g}") for error in chosen]


def count_digits(values: Iterable[Decimal | None]) -> dict[str, list[int]]:
    """How often 0..9 is the leading (first significant) and the last written digit; None is not counted."""
    leading, last = [0] * 10, [0] * 10
    for value in values:
        if value is None:
            continue
        _, digits, exponent = value.as_tuple()
        leading[digits[0]] += 1
        last[0 if isinstance(exponent, int) and exponent > 0 else digits[-1]] += 1
    return {"leading": leading, "last": last}
