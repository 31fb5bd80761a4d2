"""Compact forms of what a record keeps of examples and groups: 20,000 test answers must fit in a few kilobytes of JSON.

Packed bytes stand in base85, whose alphabet needs no escape in JSON, behind a mark and a colon.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CURVE_POINTS = 200
PROBE = "probe_mape/"  # begins the name of the curve of each group that was probed while the run trained
_RAW, _DEFLATED = "r", "z"


def _deflate(raw: bytes) -> bytes:
    """The shorter of two deflated forms, without header: random bits hold no matches, only uneven frequencies."""
    strategies = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)
    packers = [zlib.compressobj(9, zlib.DEFLATED, -15, 9, strategy) for strategy in strategies]
    return min((packer.compress(raw) + packer.flush() for packer in packers), key=len)


def pack_bits(correct: Sequence[bool] | np.ndarray) -> str:
    """``(N,)`` booleans, eight a byte, the first in the highest bit, the last byte ending in zeros.

    ``"r:<base85>"``, or ``"z:<base85 of deflated>"`` where that is shorter, as with rows in order of their difficulty.
    """
    raw = np.packbits(np.asarray(correct, dtype=bool)).tobytes()
    deflated = _deflate(raw)
    mark, packed = (_DEFLATED, deflated) if len(deflated) < len(raw) else (_RAW, raw)
    return f"{mark}:{base64.b85encode(packed).decode()}"


def unpack_bits(text: str, count: int) -> np.ndarray:
    """The ``(count,)`` booleans of :func:`pack_bits`. ValueError where the text does not hold that many."""
    mark, _, packed = text.partition(":")
    raw = base64.b85decode(packed)
    bits = np.frombuffer(zlib.decompress(raw, -15) if mark == _DEFLATED else raw, dtype=np.uint8)
    if len(bits) != (count + 7) // 8:
        raise ValueError(f"packed bits hold {len(bits)} bytes, not {count} examples")
    return np.unpackbits(bits, count=count).astype(bool)


def thin_curve(points: Sequence[Sequence[float]], limit: int = CURVE_POINTS) -> list[list[float]]:
    """At most ``limit`` (from 2 on) of the ``[step, value]`` points, evenly spread, with the first and the last."""
    if len(points) <= limit:
        return [list(point) for point in points]
    last = len(points) - 1
    return [list(points[round(index * last / (limit - 1))]) for index in range(limit)]


def pack_groups(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """``{group: {metric: value}}`` as ``{"columns": [metric, ...], "rows": {group: [value, ...]}}``, half as long.

    Groups with different metrics are left as they are.
    """
    names = {tuple(values) for values in groups.values()}
    if len(names) != 1:
        return {group: dict(values) for group, values in groups.items()}
    return {
        "columns": list(names.pop()),
        "rows": {group: list(values.values()) for group, values in groups.items()},
    }


def unpack_groups(packed: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The ``{group: {metric: value}}`` of :func:`pack_groups`. ValueError where a row has not one value a column."""
    columns = packed.get("columns")
    if not isinstance(columns, list):
        return {group: dict(values) for group, values in packed.items()}
    return {group: dict(zip(columns, row, strict=True)) for group, row in packed["rows"].items()}
