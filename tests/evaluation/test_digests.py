import hashlib
import math
from decimal import Decimal

import numpy as np

from ntl.evaluation.digests import count_digits, hash_ids, sample_errors


def test_hash_depends_on_the_order():
    assert hash_ids(["a", "b"]) == hashlib.sha256(b"a\nb").hexdigest()
    assert hash_ids(["b", "a"]) != hash_ids(["a", "b"])


def test_sample_is_a_thousand_in_the_order_of_sha1():
    ids = [str(index) for index in range(1500)]
    errors = np.arange(1500, dtype=np.float64)
    order = sorted(ids, key=lambda text: hashlib.sha1(text.encode()).hexdigest())[:1000]
    assert sample_errors(ids, errors) == [float(text) for text in order]
    assert sample_errors(ids[::-1], errors[::-1]) == sample_errors(ids, errors)


def test_errors_are_rounded_and_undefined_ones_are_none():
    assert sample_errors(["a"], np.array([math.nan])) == [None]
    assert sample_errors(["a"], np.array([1234567.0])) == [1234570.0]
    assert sample_errors(["a"], np.array([math.inf])) == [math.inf]


def test_digits_by_hand():
    values = [Decimal("120"), Decimal("-0.05"), Decimal("2.50"), Decimal("0"), Decimal("3E+2"), None]
    leading, last = [0] * 10, [0] * 10
    for digit in (1, 5, 2, 0, 3):
        leading[digit] += 1
    for digit in (0, 5, 0, 0, 0):
        last[digit] += 1
    assert count_digits(values) == {"leading": leading, "last": last}
