"""The record of one run: everything a table, a figure or a paired test needs, in one small JSON file."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, get_origin

from ntl.config import UserError
from ntl.config.trust import check_name
from ntl.results.packing import pack_groups, repack_bits, repack_errors, unpack_groups

SCHEMA = 1
SIZE_LIMIT = 10 * 1024  # bytes, less what size_of_summary leaves out
METRIC_DIGITS, CURVE_DIGITS, GROUP_DIGITS = 10, 6, 5  # significant ones that the file keeps
PROBE = "probe_mape/"  # begins the name of the curve of each group that was probed while the run trained
Json = dict[str, Any]

# Schema n -> the function that turns a record of schema n into one of schema n + 1.
UPGRADES: dict[int, Callable[[Json], Json]] = {}


@dataclass(kw_only=True)
class RunRecord:
    """One finished run.

    metrics: ``{"interpolate/accuracy": 0.43}``, None where undefined. groups: ``{split: {group: {metric: value}}}``.
    curves: ``{series: [[step, value], ...]}``. correct: ``{split: pack_bits(...)}``, in the order of the test file,
    whose ids hash to ``ids_sha256[split]``, ``metrics[split/count]`` of them. errors: ``{split: pack_errors(...)}`` of
    a sample that depends on the ids alone, so that it is the same for every run.
    data: ``{"files": {name: sha256}, "rows": {split: n}}``. git: ``{"commit": str, "dirty": bool}``.
    rules: the version of every answer rule behind the metrics.
    model: ``{"parameters": n}``, tied ones once, adapters not at all. Where weights were loaded also their ``weights``,
    ``{"sha256": str}`` with the hub's ``commit``, and the ``shape`` that they brought, in their own config's words.
    Times are in seconds, memory in bytes; tokens and examples are those trained on, repeats included.

    Without curves and packed answers a record has at most 10 KB: multiplication 8.2 KB at scale=tiny (16 cells) and
    9.0 KB at its default size (36 cells), mathematics 9.0 KB (20 modules). Of that, 4.2 KB are the names and values of
    some 108 metrics, 1.6 KB the config, 1.3 KB the groups. Packed answers add at most 2.5 KB of errors, and at most 5
    bytes of correctness for 32 answers: multiplication's 16,840 take up to 2.7 KB, in all 13.2 KB, the 200,000 of
    mathematics up to 31 KB. No code is much shorter: that is the entropy where half of the answers are right, and where
    a tenth are the 15 KB are 3 % above it.
    """

    id: str
    overrides: list[str]
    config: Json
    seed: int
    metrics: dict[str, float | None]
    git: Json = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    device: str = ""
    model: Json = field(default_factory=dict)
    num_devices: int = 1
    data: Json = field(default_factory=dict)
    steps: int = 0
    examples_seen: int = 0
    tokens_seen: int = 0
    wall_time_s: float = 0.0
    peak_memory_bytes: int = 0
    groups: dict[str, dict[str, dict[str, float | None]]] = field(default_factory=dict)
    curves: Mapping[str, Sequence[Sequence[float | None]]] = field(default_factory=dict)
    correct: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    digit_histograms: Json = field(default_factory=dict)
    ids_sha256: dict[str, str] = field(default_factory=dict)
    predictions_sha256: str = ""
    rules: dict[str, int] = field(default_factory=dict)


_TYPES: dict[str, Any] = {item.name: get_origin(item.type) or item.type for item in fields(RunRecord)}
_REQUIRED = [item.name for item in fields(RunRecord) if item.default is MISSING and item.default_factory is MISSING]

# What stands packed in the file -> the function that gives a split's part as RunRecord has it.
_PACKED: dict[str, Callable[[Any], Any]] = {"groups": unpack_groups, "correct": repack_bits, "errors": repack_errors}


def _plain(value: Any, digits: int | None = None) -> Any:
    """JSON's own types, non-finite numbers as null; ``digits`` rounds to that many significant digits."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, digits) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    # int() first: numpy integers arrive here, and a step must not become 100.0.
    if not isinstance(value, float) and number == int(number):
        return int(value)
    if digits is None:
        return number
    rounded = float(f"{number:.{digits}g}")
    # 500 instead of 500.0; from 1e16 on Python writes an exponent, which is shorter.
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e16 else rounded


def to_json(record: RunRecord) -> Json:
    """The record as it stands in the file: metrics keep 10, curves 6, groups 5 significant digits; all else is exact.

    Groups have the form of :func:`ntl.results.packing.pack_groups`.
    """
    payload: Json = {"schema": SCHEMA, **{item.name: _plain(getattr(record, item.name)) for item in fields(record)}}
    payload["metrics"] = _plain(record.metrics, METRIC_DIGITS)
    payload["groups"] = {split: pack_groups(_plain(part, GROUP_DIGITS)) for split, part in record.groups.items()}
    payload["curves"] = {
        name: [[_plain(step), _plain(value, CURVE_DIGITS)] for step, value in points]
        for name, points in record.curves.items()
    }
    return payload


def dumps(payload: Json) -> str:
    """One line a key and one a metric: small, and a change of one metric is a change of one line."""
    lines = []
    for key, value in payload.items():
        if key == "metrics" and value:
            inner = ",\n".join(f"{json.dumps(name)}:{json.dumps(number)}" for name, number in value.items())
            lines.append(f'"metrics":{{\n{inner}}}')
        else:
            lines.append(f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'), ensure_ascii=False)}")
    return "{" + ",\n".join(lines) + "}\n"


def size_of_summary(record: RunRecord) -> int:
    """Bytes of the file less its curves and packed examples, which grow with the run and with its test sets."""
    return len(dumps({**to_json(record), "curves": {}, "correct": {}, "errors": {}}).encode())


def from_json(payload: Any, where: str) -> RunRecord:
    """A record from parsed JSON; ``where`` names the file in the UserError of a payload that is none."""
    if not isinstance(payload, dict) or not isinstance(payload.get("schema"), int):
        raise UserError(f"{where}: not a run record (no integer 'schema')")
    while payload["schema"] < SCHEMA:
        upgrade = UPGRADES.get(payload["schema"])
        if upgrade is None:
            raise UserError(f"{where}: record schema {payload['schema']} is unknown: run the training again")
        payload = upgrade(dict(payload))
    if payload["schema"] > SCHEMA:
        raise UserError(f"{where}: written by a newer ntl (record schema {payload['schema']}, here {SCHEMA}): upgrade")
    if missing := [name for name in _REQUIRED if name not in payload]:
        raise UserError(f"{where}: the record lacks {', '.join(missing)}: copy the whole file or run again")
    if unknown := sorted(set(payload) - set(_TYPES) - {"schema"}):
        raise UserError(f"{where}: the record has unknown keys {', '.join(unknown)}: was it edited by hand?")
    values = {name: value for name, value in payload.items() if name != "schema"}
    for name, value in values.items():
        wanted = (int, float) if _TYPES[name] is float else _TYPES[name]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UserError(f"{where}: '{name}' is {json.dumps(value)[:40]}, not a {_TYPES[name].__name__}")
    check_name(values["id"], f"{where}: id")
    for name, value in values["metrics"].items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(f"{where}: metric '{name}' is {json.dumps(value)[:40]}, not a number")
    for name, restore in _PACKED.items():
        try:
            values[name] = {split: restore(packed) for split, packed in values.get(name, {}).items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{where}: '{name}' cannot be unpacked ({error}): restore the file or run again") from error
    return RunRecord(**values)


def _parse(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: broken JSON (not UTF-8): restore the file or run again") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: broken JSON ({error.msg}): restore the file or run again") from error


def read_record(path: Path | str) -> RunRecord:
    """The record in a file. One-line UserError where it is broken, incomplete or from a newer version."""
    path = Path(path)
    return from_json(_parse(path), str(path))


def write_record(path: Path | str, record: RunRecord, overwrite: bool = False) -> Path:
    """Write a record once and atomically; the same record again changes nothing.

    A different record under that path is a UserError unless ``overwrite``.
    """
    path = Path(path)
    payload = to_json(record)
    if path.exists() and not overwrite:
        try:
            # Read and written again: an older file may hold more digits.
            same = dumps(to_json(read_record(path))) == dumps(payload)
        except UserError:
            same = False
        if same:
            return path
        raise UserError(f"{path}: a different record is there already: remove it first or choose another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(dumps(payload))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
