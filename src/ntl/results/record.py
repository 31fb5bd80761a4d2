"""The record of one run: everything a table, a figure or a paired test needs, in one line of JSON.

Published records are the lines of ``results/runs/DATASET.jsonl``, sorted by id, local ones ``outputs/*/record.json``.
20,000 test answers must fit in a few kilobytes: packed bytes stand in base85, whose alphabet needs no escape in JSON,
behind a mark and a colon.
"""

import base64
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any, get_origin, get_type_hints

import numpy as np

from ntl.config.folders import FORMER, renamed
from ntl.config.identity import run_id
from ntl.config.root import Config
from ntl.config.settings import nearest
from ntl.config.targets import check_name
from ntl.evaluation.metrics import metric_of
from ntl.system.errors import UserError, one_line_errors, redacted
from ntl.system.files import regular, sha256_of, write_atomically

RECORD = "record.json"
SCHEMA = 3
DIGITS = {"metrics": 10, "curves": 6, "groups": 5}  # significant ones that the file keeps; of all else every one
CURVE_POINTS = 200
PROBE = "probe_mape/"  # begins the name of the curve of each group that was probed while the run trained
# Metrics of curves, which no record stores.
STEPS_UNTIL = re.compile(r"validation/steps_until_ce_([0-9]+[.][0-9]+)")
EPOCHS_UNTIL = re.compile(r"probe/epochs_until_([0-9]+[.][0-9]+)")
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
    alone.
    errors: ``{"test": pack_errors(...), "test@median": ...}``, of each reading, also of validation where there are
    several, for the same 1,000 rows of a split in every run (``sample_key``), in the order of its file.
    model: ``{"parameters": n, "precision": words}``, tied ones once, adapters not at all. Where weights were
    loaded also ``weights``, ``{"sha256": str}`` with the hub's ``commit``, and the ``shape`` that they brought, in
    their own config's words. Where ``decoding=auto`` chose also ``readings``, the error of each on validation rows.
    Where ``trainer.best`` is set also ``best``, ``{"metric": name, "step": n, "value": x}``: the metrics are of
    this checkpoint, with step None of the last one. Where trainer.bf16 is auto also ``bf16``, what was used.

    Without curves, packed answers and published ones a record has at most 12 KB. Packed answers add at most 5 bytes
    for 32 answers, and packed errors 2.5 for one.
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
    ids_sha256: dict[str, str] = field(default_factory=dict)
    predictions_sha256: str = ""
    rules: dict[str, int] = field(default_factory=dict)
    worst: dict[str, list[Json]] = field(default_factory=dict)
    typical: dict[str, list[Json]] = field(default_factory=dict)

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

    @property
    def epochs(self) -> float:
        return self.examples_seen / self.data["rows"]["train"]

    def epochs_until(self, threshold: float) -> dict[str, float]:
        """For each group that was probed, the epochs until its error is first below the threshold; inf for never."""
        groups = {name.removeprefix(PROBE): curve for name, curve in self.curves.items() if name.startswith(PROBE)}
        steps = {name: _first_below(curve, threshold) for name, curve in groups.items()}
        return {name: math.inf if step is None else step / self.steps * self.epochs for name, step in steps.items()}

    def _of_curves(self, metric: str) -> float | None:
        """A metric that no record stores; None for any other, and where the record lacks its curve."""
        if (below := STEPS_UNTIL.fullmatch(metric)) and (points := self.curves.get("eval_ce")):
            step = _first_below(points, float(below[1]))
            return float(self.steps if step is None else step)
        if (below := EPOCHS_UNTIL.fullmatch(metric)) and (epochs := self.epochs_until(float(below[1]))):
            return fmean(min(epoch, self.epochs) for epoch in epochs.values())
        return None

    def has(self, metric: str) -> bool:
        """Whether ``value`` knows it."""
        return metric in self.metrics or self._of_curves(metric) is not None

    def value(self, metric: str) -> float | None:
        """A metric in the unit in which it is printed. KeyError: the record lacks it. UserError: it is unknown.

        "validation/steps_until_ce_1.0" is the step of the first evaluation whose CE is below 1.0, and the last step of
        the run where none is. "probe/epochs_until_20.0" is the mean of ``epochs_until`` over the groups, where one that
        is not reached counts as the end of training.
        """
        if (value := self._of_curves(metric)) is not None:
            return value
        value = self.metrics[metric]
        return value if value is None else value * metric_of(metric).factor


def _first_below(points: Sequence[Any], threshold: float) -> int | None:
    """The step of the first ``[step, value]`` below the threshold; None where there is none."""
    return next((step for step, value in points if None not in (step, value) and value < threshold), None)


# Fields that are read from the predictions as a record is published.
PUBLISHED_ALONE = ("worst", "typical")


def jsonable(value: Any, digits: int | None = None) -> Any:
    """JSON's own types, non-finite numbers as null; ``digits`` rounds to that many significant digits."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item, digits) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, float):
        return value
    if digits is None or not math.isfinite(value):
        return value if math.isfinite(value) else None
    rounded = float(f"{value:.{digits}g}")
    # 500 instead of 500.0; from 1e16 on Python writes an exponent, which is shorter.
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e16 else rounded


def to_json(record: RunRecord) -> Json:
    """The record as in its file, its numbers with the ``DIGITS``.

    Groups are ``{split: {"columns": [metric, ...], "rows": {group: [value, ...]}}}``, half as long.
    """
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    kept = {name: value for name, value in values.items() if value or name not in PUBLISHED_ALONE}
    payload: Json = {"schema": SCHEMA, **{name: jsonable(value, DIGITS.get(name)) for name, value in kept.items()}}
    for split, groups in payload["groups"].items():
        columns = [*next(iter(groups.values()))]
        rows = {group: [of[metric] for metric in columns] for group, of in groups.items()}
        payload["groups"][split] = {"columns": columns, "rows": rows}
    return payload


def dumps(payload: Json) -> str:
    """One line, without its end."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False)


def _parsed(line: str, where: str) -> RunRecord:
    try:
        schema = 1 if line.startswith('{"schema":1,') else (values := json.loads(line)).pop("schema")
        if schema != SCHEMA:
            advice = "make the run again" if schema < SCHEMA else "upgrade"
            raise UserError(f"{where}: written by another ntl (record schema {schema}, here {SCHEMA}): {advice}")
        record = RunRecord(**values)
        for name, kind in get_type_hints(RunRecord).items():
            wanted = float | int if kind is float else get_origin(kind) or kind
            if not isinstance(value := getattr(record, name), wanted):
                raise TypeError(f"{name}: {str(value)[:40]!r} does not fit {kind}")
        if not all(value is None or math.isfinite(value) for value in record.metrics.values()):
            raise ValueError("metrics: not finite")
        record.metrics = {key: value if value is None else float(value) for key, value in record.metrics.items()}
        record.wall_time_s = float(record.wall_time_s)
        record.overrides = [renamed(word) for word in record.overrides]
        record.config = {FORMER.get(key, key): value for key, value in record.config.items()}
        for split, table in record.groups.items():
            rows = table["rows"].items()
            record.groups[split] = {group: dict(zip(table["columns"], row, strict=True)) for group, row in rows}
        for split, packed in record.correct.items():
            if count := record.metrics.get(f"{split}/count"):
                unpack_bits(packed, int(count))
        for points in record.curves.values():
            np.asarray(points, dtype=np.float64)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: broken JSON ({error.msg}): restore the file or run again") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
        raise UserError(f"{where}: not a whole run record ({error}): restore the file or run again") from error
    check_name(record.id, f"{where}: id")
    return record


def read_records(path: Path | str) -> list[RunRecord]:
    """The records in a file, a line each. One-line UserError where one is broken, incomplete or of another schema."""
    with one_line_errors("read", Path(path)):
        text = regular(Path(path)).read_text(encoding="utf-8", errors="replace")  # then it is broken JSON
    return [_parsed(line, f"{path}:{number}") for number, line in enumerate(text.rstrip("\n").split("\n"), start=1)]


def read_record(path: Path | str) -> RunRecord:
    """The record in a file of one. UserError as of ``read_records``."""
    return read_records(path)[0]


def published_file(folder: Path, record: RunRecord) -> Path:
    """The file of the record's data set in a folder of published ones."""
    check_name(name := str(record.config["dataset"]["name"]), f"{record.id}: dataset.name")
    return folder / f"{name}.jsonl"


def write_record(path: Path | str, record: RunRecord, overwrite: bool = False) -> Path:
    """Write a record atomically, without the secrets of the environment in its settings.

    A ``.jsonl`` file gets it as one of its lines, sorted by id; any other file has one. The same record again adds
    fields of ``PUBLISHED_ALONE``, and changes nothing else. Another one in its place is a UserError unless
    ``overwrite``.
    """
    path = Path(path)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    if (after := merged(before, record, path, overwrite)) != before:
        write_atomically(path, after)
    return path


def merged(text: str, record: RunRecord, path: Path, overwrite: bool = False) -> str:
    """What :func:`write_record` makes of the text of a file; nothing is written."""
    payload, lines = to_json(record), {*text.split("\n")} - {""}
    payload.update({name: redacted(payload[name]) for name in ("config", "overrides")})
    head = dumps({"schema": SCHEMA, "id": record.id}).replace("}", ",")
    old = {line for line in lines if path.suffix != ".jsonl" or line.startswith(head)}
    if old and not overwrite:
        # Read and written again: it may hold more digits.
        stored = to_json(_parsed(min(old), str(path))) if len(old) == 1 else {}
        added = [name for name in PUBLISHED_ALONE if name in payload and name not in stored]
        if dumps(stored) != dumps({name: value for name, value in payload.items() if name not in added}):
            raise UserError(f"{path}: a different record is there already: remove it first or choose another folder")
        if not added:
            return text
    return "".join(f"{line}\n" for line in sorted({*lines - old, dumps(payload)}))


# ---- packed answers, and curves


def pack_bits(correct: Sequence[bool] | np.ndarray) -> str:
    """``(N,)`` booleans, eight a byte, the first in the highest bit, the last byte ending in zeros.

    ``"r:<base85>"``, or ``"z:<base85 of deflated>"`` where that is shorter, as with rows in order of their difficulty.
    """
    raw = np.packbits(np.asarray(correct, dtype=bool)).tobytes()
    deflated = zlib.compress(raw, 9, wbits=-15)  # without header
    mark, packed = ("z", deflated) if len(deflated) < len(raw) else ("r", raw)
    return f"{mark}:{base64.b85encode(packed).decode()}"


def pack_errors(errors: np.ndarray) -> str:
    """``(N,)`` errors, NaN where there is none, as bfloat16: ``"N:<low bytes>:<high bytes>"``, deflated, in base85.

    It has float32's range: integers up to 256 are exact, larger errors within 0.4 %.
    """
    with np.errstate(over="ignore"):
        bits = np.asarray(errors, dtype=np.float32).view(np.uint32)
    rounded = np.where(np.isnan(errors), 0x7FC0, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    planes = rounded.view(np.uint8).reshape(-1, 2).T  # the high bytes repeat, the low ones hardly do
    return ":".join(
        [str(rounded.size), *(base64.b85encode(zlib.compress(p.tobytes(), 9, -15)).decode() for p in planes)]
    )


def unpack_bits(text: str, count: int) -> np.ndarray:
    """The ``(count,)`` booleans of :func:`pack_bits`. ValueError where the text does not hold that many."""
    mark, _, packed = text.partition(":")
    raw = base64.b85decode(packed)
    bits = np.frombuffer(zlib.decompress(raw, -15) if mark == "z" else raw, dtype=np.uint8)
    if len(bits) != (count + 7) // 8:
        raise ValueError(f"packed bits hold {len(bits)} bytes, not {count} examples")
    return np.unpackbits(bits, count=count).astype(bool)


def unpack_errors(text: str) -> np.ndarray:
    """The ``(N,)`` errors of :func:`pack_errors`, as float32."""
    size, *planes = text.split(":")
    raw = np.frombuffer(b"".join(zlib.decompress(base64.b85decode(plane), -15) for plane in planes), np.uint8)
    bits = np.ascontiguousarray(raw.reshape(2, int(size)).T).view("<u2").ravel()
    return (bits.astype(np.uint32) << 16).view(np.float32)


def thin_curve(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """At most `CURVE_POINTS` of the ``[step, value]`` points, evenly spread, with the first and the last."""
    if len(points) <= CURVE_POINTS:
        return [list(point) for point in points]
    last = len(points) - 1
    return [list(points[round(index * last / (CURVE_POINTS - 1))]) for index in range(CURVE_POINTS)]


# ---- finding runs and records


def check_folders(folders: Sequence[Path]) -> Sequence[Path]:
    """The folders of ``--records``, as they are. UserError for one that does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"--records {folder}: no such folder")
    return folders


def with_weights_of(record: RunRecord, config: Config) -> Config:
    """The config with the weights and the tokenizer that the record names, wherever they lie here."""
    paths = {group: record.config.get(group, {}).get("path", "") for group in ("model", "tokenizer")}
    return replace(config, **{group: replace(getattr(config, group), path=path) for group, path in paths.items()})


def run_record(folder: Path, *, renamed: bool = False) -> RunRecord:
    """The record in the folder of a run. UserError as of ``read_record``, or where it is another run's.

    The folder's name is the id of its run, unless it may have been ``renamed``: then its config.yaml gives the id.
    """
    path, record = folder / RECORD, read_record(folder / RECORD)
    own, its = folder.absolute().name, "this folder"
    if renamed:
        from ntl.config.composition import read_config  # here, since it costs the import of OmegaConf

        with suppress(UserError):  # no config.yaml, or one of other code
            own, its = run_id(with_weights_of(record, read_config(folder))), "config.yaml beside it"
    if record.id != own:
        raise UserError(f"{path}: the record of another run, {record.id}; {its} is of {own}: restore it, or remove it.")
    return record


def checked_record(path: Path) -> RunRecord:
    """The record beside a file of predictions. UserError where it is of another run, or not of these predictions."""
    record = run_record(path.parent, renamed=True)
    if path.is_file() and record.predictions_sha256 not in ("", sha256_of(path)):
        lead = f"{path}: not the predictions that {RECORD} was computed from: edited, cut or decoded again elsewhere"
        advice = "restore them, or remove the record and repeat the run's command; evaluate.py --force scores them."
        raise UserError(f"{lead}; {advice}")
    return record


def load_records(folders: Iterable[Path | str]) -> list[RunRecord]:
    """The records of run folders, of all runs in folders of runs, and of files of records, sorted by id.

    A folder that does not exist holds none. Of two records with one id the one with more decodings is taken, then the
    one of a run folder. UserError as of ``run_record``.
    """
    best: dict[str, tuple[tuple[int, bool], RunRecord]] = {}
    for folder in map(Path, folders):
        runs = [folder / RECORD] if (folder / RECORD).is_file() else [*folder.glob(f"*/{RECORD}")]
        for path in runs or folder.glob("*.json*"):
            for record in [run_record(path.parent)] if runs else read_records(path):
                precedence = len(record.config.get("extra_decodings", {})), bool(runs)
                if record.id not in best or precedence > best[record.id][0]:
                    best[record.id] = precedence, record
    return [best[key][1] for key in sorted(best)]


def find_run(run: str, outputs: Path) -> Path:
    """A run folder, or the folder of a run id under ``outputs``. UserError names the nearest id."""
    for folder in (Path(run), outputs / run):
        if folder.is_dir():
            return folder
    ids = sorted(child.name for child in outputs.glob("[!.]*") if child.is_dir())
    hint = nearest(run, ids) or f" There are {len(ids)} runs there."
    raise UserError(f"no run {run!r}: neither a run folder nor an id under {outputs}/.{hint}")
