"""The list of all runs, and the data from which the page shows a run's settings, metrics and curves."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ntl.results.match import NOT_COMPUTED_WITH, leaves
from ntl.results.record import RunRecord, plain, to_json

# The folders of an absolute path; its last part is kept.
_FOLDERS = re.compile(r"""(^|[\s=,:'"\[{(])(?:~|[A-Za-z]:)?[/\\](?:[^/\\\s,'"\]})<>]+[/\\])+""")
KIND = ("dataset", "model", "tokenizer", "loss", "scale")


def name_of(config: Mapping[str, Any], group: str) -> str:
    """The name of a part of a run: of its model, its loss, ..."""
    return str(config.get(group, {}).get("name", ""))


def kind(record: RunRecord) -> tuple[str, ...]:
    """Runs with the same key are compared in their settings."""
    return tuple(name_of(record.config, group) for group in KIND)


def settings_of(record: RunRecord) -> dict[str, str]:
    """Every setting that a run computes with, except its seed, as text."""
    found = {}
    for key, value in leaves(record.config).items():
        seed = key.endswith(".seed") and value == record.seed  # data that the run's own seed draws
        if not seed and key.split(".")[0] not in NOT_COMPUTED_WITH:
            found[key] = f"{value:.6g}" if isinstance(value, float) else without_folders(str(value))
    return found


def differing(runs: Sequence[tuple[RunRecord, Mapping[str, str]]]) -> list[str]:
    """The keys that two runs set to different values.

    A key that a record lacks is younger than the record, which then has the default. It counts only where two lines
    would look the same without it.
    """
    keys = sorted({key for _, settings in runs for key in settings})
    found = [key for key in keys if len({settings[key] for _, settings in runs if key in settings}) > 1]
    lines = {(record.seed, *(settings.get(key) for key in found)) for record, settings in runs}
    if len(lines) == len(runs):
        return found
    return [key for key in keys if len({settings.get(key) for _, settings in runs}) > 1]


def without_folders(value: Any) -> Any:
    """The same JSON without the folders of the machine that it was run on."""
    if isinstance(value, str):
        return _FOLDERS.sub(r"\1…/", value)
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    return [without_folders(item) for item in value] if isinstance(value, list) else value


_SIGNS = {"sigma": "σ"}
_MAIN_SPLITS = ("test", "interpolate", "validation")
_ABOUT = ("git", "device", "num_devices", "packages", "data", "rules", "steps", "examples_seen", "tokens_seen")
_MEASURED = ("wall_time_s", "peak_memory_bytes", "predictions_sha256")
_CURVE_DIGITS = 4  # significant ones: a drawn curve shows no more, and all of them would be most of the page
# Name of the column -> whether it is numeric.
COLUMNS = {
    "dataset": False,
    "model": False,
    "tokenizer": False,
    "loss": False,
    "λ": True,
    "other settings": False,
    "scale": False,
    "seed": True,
    "steps": True,
    "time (s)": True,
    "accuracy": True,
    "MAE": True,
}


def _first_value(metrics: Mapping[str, float | None], name: str) -> float | None:
    keys = (f"{split}/{name}" for split in _MAIN_SPLITS)
    return next((metrics[key] for key in keys if key in metrics), None)


def _has_weight(record: RunRecord) -> bool:
    # Without a number term its weight is not used.
    return bool(record.config.get("loss", {}).get("number"))


def _short_settings(settings: Mapping[str, str]) -> str:
    """``σ = 1``: each setting by the last part of its key, or by the whole key where two of that name differ."""
    by_name: dict[str, dict[str, str]] = {}
    for key, value in settings.items():
        by_name.setdefault(key.rpartition(".")[2], {})[key] = value
    lines = []
    for name, same in by_name.items():
        alike = len(set(same.values())) == 1
        shown = {_SIGNS.get(name, name): next(iter(same.values()))} if alike else same
        lines += [f"{key} = {value}" for key, value in shown.items()]
    return ", ".join(lines)


def other_settings(records: Iterable[RunRecord]) -> dict[str, str]:
    """Run id -> its settings that differ among the runs of its model, tokenizer, loss, data set and scale.

    λ is left out where the list has it in a column.
    """
    kinds: dict[tuple[str, ...], list[tuple[RunRecord, dict[str, str]]]] = {}
    for record in records:
        kinds.setdefault(kind(record), []).append((record, settings_of(record)))
    found = {}
    for runs in kinds.values():
        found_keys = differing(runs)
        for record, settings in runs:
            keys = [key for key in found_keys if key in settings and not (key == "loss.weight" and _has_weight(record))]
            found[record.id] = _short_settings({key: settings[key] for key in keys})
    return found


def details(record: RunRecord) -> dict[str, Any]:
    """What the page shows of a run when it is opened, in JSON's types, without packed answers and groups.

    Only the last part of an absolute path is kept: the rest means nothing on another machine.
    """
    payload = to_json(record)
    about = {key: payload[key] for key in (*_ABOUT, *_MEASURED)}
    if record.model:  # an older one does not say
        about["model"] = record.model
    settings = {"overrides": payload["overrides"], "config": leaves(payload["config"]), "about": leaves(about)}
    worst = {"worst": record.worst} if record.worst else {}
    # Steps and values apart: gzip packs the page's largest part a third smaller than it does pairs.
    curves = {
        name: {"steps": [step for step, _ in points], "values": [value for _, value in points]}
        for name, points in plain(record.curves, _CURVE_DIGITS).items()
    }
    return {**without_folders(settings), "metrics": payload["metrics"], "curves": curves, **worst}


def page_data(records: Iterable[RunRecord]) -> dict[str, Any]:
    """``runs``, run id -> ``details``, and ``config``, the settings that most runs have.

    The config of a run has the settings that differ from those, and ``lacks`` names those that it does not have.
    """
    runs = {record.id: details(record) for record in records}
    counts = Counter((key, json.dumps(value)) for run in runs.values() for key, value in run["config"].items())
    shared = {key: json.loads(value) for (key, value), count in counts.items() if 2 * count > len(runs)}
    for run in runs.values():
        own = run["config"]
        run["config"] = {key: value for key, value in own.items() if key not in shared or shared[key] != value}
        run["lacks"] = [key for key in shared if key not in own]
    return {"config": shared, "runs": runs}


@dataclass(frozen=True)
class ListedRun:
    """A line of the list: ``values`` in the order of ``COLUMNS``, and the text that a search looks at."""

    id: str
    values: list[str | float | None]
    searched: str


def listed(record: RunRecord, settings: str = "") -> ListedRun:
    """What the list shows of a run; accuracy and MAE are those of the first test split.

    ``settings`` is what ``other_settings`` says of it.
    """
    config = record.config
    values = [
        *(name_of(config, group) for group in ("dataset", "model", "tokenizer", "loss")),
        config["loss"].get("weight") if _has_weight(record) else None,
        settings,
        name_of(config, "scale"),
        record.seed,
        record.steps,
        record.wall_time_s,
        _first_value(record.metrics, "accuracy"),
        _first_value(record.metrics, "mae"),
    ]
    searched = " ".join([record.id, *without_folders(list(record.overrides)), settings]).strip().lower()
    return ListedRun(record.id, values, searched)
