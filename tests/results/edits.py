"""Random edits of a JSON file: keys deleted and renamed, values of other kinds, text cut and damaged."""

import json
import random
import re
from typing import Any

JUNK: list[Any] = [
    None, True, "", "x", -1, 0, 3.7, 1e308, -1e308, 1e-320, 2**62, 2**70, [], {}, [[]], [None], ["x", 1],
    {"a": {"b": []}}, "\ud800", "a\nb", "../x", "<b>", "${oc.env:HOME}", "z:4:!:!", "r:!!", "1x1",
]  # fmt: skip
TOKENS = [b"1e999", b"NaN", b"-Infinity", b"9" * 5000, b"9" * 400, b"1e-400", b"01", b"0x1", b"[" * 100_000]
NUMBER = re.compile(rb"(?<=[:,\[])-?\d+(\.\d+)?")


def _deep(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


def _somewhere(tree: Any, rng: random.Random) -> tuple[Any, Any]:
    """A mapping or list in the tree, and one of its keys."""
    while True:
        key = rng.choice(list(tree)) if isinstance(tree, dict) else rng.randrange(len(tree))
        if rng.random() < 0.35 or not isinstance(tree[key], dict | list) or not tree[key]:
            return tree, key
        tree = tree[key]


def _change(tree: Any, rng: random.Random) -> None:
    kind = rng.choice(["delete", "junk", "junk", "junk", "copy", "rename", "add", "deep", "scale"])
    parent, key = _somewhere(tree, rng)
    value = parent[key]
    if kind == "delete":
        del parent[key]
    elif kind == "junk":
        parent[key] = rng.choice(JUNK)
    elif kind == "copy":
        other, name = _somewhere(tree, rng)
        parent[key] = json.loads(json.dumps(other[name]))
    elif kind == "rename" and isinstance(parent, dict):
        parent[rng.choice(["x", "", "\ud800", "count", "test/count", f"{key}x"])] = parent.pop(key)
    elif kind == "add" and isinstance(parent, dict):
        parent[rng.choice(["x", "test", "test/mae", "loss"])] = rng.choice(JUNK)
    elif kind == "deep":
        parent[key] = _deep(rng.choice([5, 60, 500]))
    elif isinstance(parent, list):
        parent.append(rng.choice(JUNK))
    elif type(value) is int:
        parent[key] = value * 10 ** rng.choice([3, 60, 300])
    else:
        parent[key] = value[: len(value) // 2] if isinstance(value, str) else [value] * 3


def _damage(text: bytearray, rng: random.Random) -> None:
    kind, at = rng.choice(["cut", "flip", "insert", "token"]), rng.randrange(len(text))
    if kind == "cut":
        del text[at:]
    elif kind == "flip":
        for _ in range(rng.choice([1, 3, 20])):
            text[rng.randrange(len(text))] ^= 1 << rng.randrange(8)
    elif kind == "insert":
        text[at:at] = rng.randbytes(rng.randrange(1, 20))
    elif found := list(NUMBER.finditer(bytes(text))):
        text[slice(*rng.choice(found).span())] = rng.choice(TOKENS)


def edited(text: bytes, seed: int) -> bytes:
    """A file of JSON with one to five edits, the same for the same seed; one in five is damaged as bytes."""
    rng = random.Random(seed)
    if rng.random() < 0.2:
        damaged = bytearray(text)
        _damage(damaged, rng)
        return bytes(damaged)
    tree = json.loads(text)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if tree:
            _change(tree, rng)
    return json.dumps(tree).encode()
