"""Compact forms of what a record keeps of single examples: 20,000 test answers must fit in a few kilobytes of JSON."""

import base64
import binascii
import zlib
from collections.abc import Sequence

import numpy as np

CURVE_POINTS = 200


def pack_bits(correct: Sequence[bool] | np.ndarray) -> str:
    """``(N,)`` booleans in base64, eight examples a byte, the first in the highest bit; the last byte ends in zeros."""
    return base64.b64encode(np.packbits(np.asarray(correct, dtype=bool)).tobytes()).decode("ascii")


def unpack_bits(text: str, count: int) -> np.ndarray:
    """The ``(count,)`` booleans of :func:`pack_bits`. ValueError where the text does not hold that many."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not packed bits: {text[:20]!r}") from error
    if len(raw) != (count + 7) // 8:
        raise ValueError(f"packed bits hold {len(raw)} bytes, not {count} examples")
    return np.unpackbits(np.frombuffer(raw, dtype=np.uint8), count=count).astype(bool)


def pack_errors(errors: Sequence[float | None] | np.ndarray) -> str:
    """``(N,)`` errors (None or NaN: unparsable) as ``"N:<base64 of deflated bfloat16>"``.

    bfloat16 keeps the range of float32, which a product of two six-digit factors needs and float16 has not;
    integers up to 256 are exact, larger errors are within 0.4 %.
    """
    bits = np.asarray(errors, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    halves = np.where(np.isnan(bits.view(np.float32)), 0x7FC0, rounded).astype("<u2")
    # All low bytes before all high bytes: sign and exponent repeat, so they deflate well.
    planes = halves.view(np.uint8).reshape(-1, 2).T.tobytes()
    return f"{halves.size}:{base64.b64encode(zlib.compress(planes, 9)).decode('ascii')}"


def unpack_errors(text: str) -> np.ndarray:
    """The ``(N,)`` float32 errors of :func:`pack_errors`, to bfloat16 precision."""
    try:
        head, packed = text.split(":", 1)
        count, raw = int(head), zlib.decompress(base64.b64decode(packed, validate=True))
    except (ValueError, zlib.error) as error:
        raise ValueError(f"not packed errors: {text[:20]!r}") from error
    if len(raw) != 2 * count:
        raise ValueError(f"packed errors hold {len(raw)} bytes, not {count} errors")
    halves = np.frombuffer(raw, dtype=np.uint8).reshape(2, count).T.copy().view("<u2").reshape(count)
    return (halves.astype(np.uint32) << 16).view(np.float32)


def thin_curve(points: Sequence[Sequence[float]], limit: int = CURVE_POINTS) -> list[list[float]]:
    """At most ``limit`` of the ``[step, value]`` points, evenly spread, the first and the last among them."""
    if limit < 2:
        raise ValueError(f"a curve needs at least 2 points, not {limit}")
    if len(points) <= limit:
        return [list(point) for point in points]
    last = len(points) - 1
    return [list(points[round(index * last / (limit - 1))]) for index in range(limit)]
