"""The bootstrap over test examples, from the correctness and the errors that records keep of each."""

from collections.abc import Sequence

import numpy as np

from ntl.results.packing import unpack_bits, unpack_errors
from ntl.results.record import RunRecord
from ntl.results.statistics import bootstrap_difference
from ntl.system.errors import UserError

# What a record has of each example. Errors take many values, and a draw costs in their number.
DRAWS = {"accuracy": 10_000, "mae": 2_000}


def example_difference(metric: str, pairs: Sequence[tuple[RunRecord, RunRecord]]) -> tuple[float, float, float] | None:
    """Second minus first over the same examples: mean and 95 % bootstrap interval; None where it cannot be had.

    An example's score is its mean over ``pairs``, one a seed. An error is one of the fixed sample that a record keeps,
    and an example that a run leaves unanswered is left out on both sides. UserError: records that do not agree.
    """
    split, _, name = metric.partition("/")
    tests = {record.ids_sha256.get(split) for pair in pairs for record in pair}
    if name not in DRAWS or len(tests) != 1 or None in tests:
        return None
    scores = [[_scores(split, name, record) for record in pair] for pair in pairs]
    if any(each is None for pair in scores for each in pair):
        return None
    if len({len(each) for pair in scores for each in pair if each is not None}) > 1:
        names = " and ".join(sorted({record.id for pair in pairs for record in pair}))
        raise UserError(f"{names}: the same test examples of {split}, but not as many answers: restore these records")
    left, right = np.mean(np.array(scores, dtype=np.float64), axis=0)
    known = np.isfinite(left) & np.isfinite(right)
    if not known.any():
        return None
    return bootstrap_difference(left[known], right[known], draws=DRAWS[name])


def _scores(split: str, name: str, record: RunRecord) -> np.ndarray | None:
    if name == "accuracy":
        count = record.metrics.get(f"{split}/count")
        return unpack_bits(record.correct[split], int(count)) if count and split in record.correct else None
    return unpack_errors(record.errors[split]) if split in record.errors else None
