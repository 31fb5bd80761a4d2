"""The record of one run: everything a table, a figure or a paired test needs, in one small JSON file."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ntl.config.targets import check_name, migrate_targets
from ntl.evaluation.metrics import metric_of
from ntl.results.packing import pack_groups, unpack_groups
from ntl.results.spec import typed
from ntl.system.errors import UserError
from ntl.system.files import write_atomically
from ntl.system.secrets import redacted

SCHEMA = 1
METRIC_DIGITS, CURVE_DIGITS, GROUP_DIGITS = 10, 6, 5  # significant ones that the file keeps
STEPS_UNTIL = re.compile(r"validation/steps_until_ce_([0-9]+[.][0-9]+)")
Json = dict[str, Any]


@dataclass(kw_only=True)
class RunRecord:
    """One finished run. Times are in seconds, memory in bytes; tokens and examples are those trained on.

    metrics: ``{"interpolate/accuracy": 0.43}``, None where undefined. groups: ``{split: {group: {metric: value}}}``.
    curves: ``{series: [[step, value], ...]}``. correct: ``{split: pack_bits(...)}``, in the order of the test file,
    whose ids hash to ``ids_sha256[split]``, ``metrics[split/count]`` of them.
    data: ``{"files": {name: sha256}, "rows": {split: n}, "longer_than_train": {test split: share of its examples
    that have more tokens than any training example}}``. rules: the version of every answer rule behind the metrics.
    In published records alone, of data whose licence permits it: ``worst`` and ``typical``, ``{split: [{"question",
    "answer", "prediction", "error"}, ...]}``, the worst wrong answers, and a sample of them that depends on the ids
    alone. Older records have ``mistakes``, ``{split: {kind: n}}``, packed ``errors`` of a sample of the answers and
    ``digit_histograms``, too.
    model: ``{"parameters": n}``, tied ones once, adapters not at all. Where weights were loaded also their ``weights``,
    ``{"sha256": str}`` with the hub's ``commit``, and the ``shape`` that they brought, in their own config's words.
    Where ``trainer.best`` is set also ``best``, ``{"metric": name, "step": n, "value": x}``: the metrics are those of
    this checkpoint, with step None those of the last one. Where trainer.bf16 is auto also ``bf16``, what was used.

    Without curves, packed answers and published ones a record has at most 12 KB. Packed answers add at most 5 bytes
    for 32 answers.
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
    groups: Json = field(default_factory=dict)
    curves: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    correct: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    digit_histograms: Json = field(default_factory=dict)
    ids_sha256: dict[str, str] = field(default_factory=dict)
    predictions_sha256: str = ""
    rules: dict[str, int] = field(default_factory=dict)
    worst: dict[str, list[Json]] = field(default_factory=dict)
    typical: dict[str, list[Json]] = field(default_factory=dict)
    mistakes: dict[str, dict[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Older records have 0.0 for a term that the loss does not have, which reads as perfect: drop it.
        absent = _absent_terms(self.config)
        names = {f"validation/{name}" for name in absent}
        self.metrics = {key: value for key, value in self.metrics.items() if value != 0 or key not in names}
        series = {name for each in absent for name in (each, f"eval_{each}")}
        kept = {name: [point for point in self.curves.get(name, ()) if point[1] != 0] for name in series}
        self.curves = {key: kept.get(key, points) for key, points in self.curves.items() if kept.get(key, True)}

    @property
    def scored_step(self) -> int:
        """The optimizer step whose weights gave the metrics of the test sets."""
        return self.model.get("best", {}).get("step") or self.steps

    @property
    def core_seconds(self) -> float:
        """Wall time x CPU threads; 0 of a run on a GPU."""
        threads = re.search(r"(\d+) of \d+ threads", self.device)
        seconds = self.wall_time_s * self.num_devices * (int(threads[1]) if threads else 1)
        return seconds if self.device.lower().startswith("cpu") else 0.0

    def has(self, metric: str) -> bool:
        """Whether ``value`` knows it."""
        return metric in self.metrics or bool(STEPS_UNTIL.fullmatch(metric) and self.curves.get("eval_ce"))

    def value(self, metric: str) -> float | None:
        """A metric in the unit in which it is printed. KeyError: the record lacks it. UserError: it is unknown.

        "validation/steps_until_ce_1.0" is the step of the first evaluation whose CE is below 1.0, and the last step of
        the run where none is.
        """
        if (below := STEPS_UNTIL.fullmatch(metric)) and self.has(metric):
            points = [(step, ce) for step, ce in self.curves["eval_ce"] if step is not None and ce is not None]
            return float(next((step for step, ce in points if ce < float(below[1])), self.steps))
        value = self.metrics[metric]
        return value if value is None else value * metric_of(metric).factor


# Fields that are read from the predictions as a record is published.
PUBLISHED_ALONE = ("worst", "typical", "mistakes")


def data_read(record: RunRecord) -> Json:
    """The data that a run read: its files and rows, without what was measured on them, which not every record has."""
    return {key: value for key, value in record.data.items() if key != "longer_than_train"}


def _absent_terms(config: Json) -> list[str]:
    loss, model = config.get("loss"), config.get("model")
    without_ntl = isinstance(loss, Mapping) and loss.get("number", loss) is None
    without_ce = isinstance(model, Mapping) and model.get("head") == "regression"
    return ["ntl"] * without_ntl + ["ce"] * without_ce


def jsonable(value: Any, digits: int | None = None) -> Any:
    """JSON's own types, non-finite numbers as null; ``digits`` rounds to that many significant digits."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, digits) for item in value]
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
    """The record as in its file: metrics keep 10, curves 6, groups 5 significant digits; all else is exact.

    Groups have the form of :func:`ntl.results.packing.pack_groups`.
    """
    payload: Json = {"schema": SCHEMA, **{item.name: jsonable(getattr(record, item.name)) for item in fields(record)}}
    for name in PUBLISHED_ALONE:
        if not payload[name]:
            del payload[name]
    payload["metrics"] = jsonable(record.metrics, METRIC_DIGITS)
    payload["groups"] = {split: pack_groups(jsonable(part, GROUP_DIGITS)) for split, part in record.groups.items()}
    payload["curves"] = {
        name: [[jsonable(step), jsonable(value, CURVE_DIGITS)] for step, value in points]
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


def read_record(path: Path | str) -> RunRecord:
    """The record in a file. One-line UserError where it is broken, incomplete or from a newer version."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if (schema := values.pop("schema")) > SCHEMA:
            raise UserError(f"{path}: written by a newer ntl (record schema {schema}, here {SCHEMA}): upgrade")
        values["config"] = migrate_targets(values["config"])
        record: RunRecord = typed(RunRecord, values, f"{path}: not whole, restore it or run again")
        record.groups = {split: unpack_groups(packed) for split, packed in record.groups.items()}
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: broken JSON ({error.msg}): restore the file or run again") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: not a whole run record ({error}): restore the file or run again") from error
    check_name(record.id, f"{path}: id")
    return record


def write_record(path: Path | str, record: RunRecord, overwrite: bool = False) -> Path:
    """Write a record once and atomically, without the secrets of the environment in its settings.

    The same record again adds fields of ``PUBLISHED_ALONE``, and changes nothing else. A different record under that
    path is a UserError unless ``overwrite``.
    """
    path = Path(path)
    payload = to_json(record)
    payload.update({name: redacted(payload[name]) for name in ("config", "overrides")})
    if path.exists() and not overwrite:
        try:
            # Read and written again: an older file may hold more digits.
            old = to_json(read_record(path))
        except UserError:
            old = {}
        added = [name for name in PUBLISHED_ALONE if name in payload and name not in old]
        if dumps(old) != dumps({name: value for name, value in payload.items() if name not in added}):
            raise UserError(f"{path}: a different record is there already: remove it first or choose another folder")
        if not added:
            return path
    write_atomically(path, dumps(payload))
    return path
