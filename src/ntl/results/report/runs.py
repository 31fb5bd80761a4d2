"""The list of all runs: a line each, and the data from which the page shows a run's settings, metrics and curves."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ntl.results.match import PLACES, leaves
from ntl.results.record import RunRecord, to_json
from ntl.results.report.markup import Html, element

# The folders of an absolute path, whose last part is kept.
_FOLDERS = re.compile(r"""(^|[\s=,:'"\[{(])(?:~|[A-Za-z]:)?[/\\](?:[^/\\\s,'"\]})<>]+[/\\])+""")
_SIGNS = {"sigma": "σ"}
_MAIN_SPLITS = ("test", "interpolate", "validation")
_ABOUT = ("git", "device", "num_devices", "packages", "data", "rules", "steps", "examples_seen", "tokens_seen")
_MEASURED = ("wall_time_s", "peak_memory_bytes", "predictions_sha256")
# Name of the column -> whether it is sorted, and aligned, as a number.
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


def _name(config: Mapping[str, Any], group: str) -> str:
    return str(config.get(group, {}).get("name", ""))


def _main(metrics: Mapping[str, float | None], name: str) -> float | None:
    keys = (f"{split}/{name}" for split in _MAIN_SPLITS)
    return next((metrics[key] for key in keys if key in metrics), None)


def _kind(record: RunRecord) -> tuple[str, ...]:
    """What runs have in common whose settings are compared: everything else follows from these names."""
    return tuple(_name(record.config, group) for group in ("dataset", "model", "tokenizer", "loss", "scale"))


def _settings(record: RunRecord) -> dict[str, str]:
    """All that a run computes with, but its seed, as text."""
    found = {}
    for key, value in leaves(record.config).items():
        seed = key.endswith(".seed") and value == record.seed  # data that the run's own seed draws
        if not seed and key.split(".")[0] not in PLACES:
            found[key] = f"{value:.6g}" if isinstance(value, float) else _anywhere(str(value))
    return found


def _has_weight(record: RunRecord) -> bool:
    # Without a number term its weight is of no use.
    return bool(record.config.get("loss", {}).get("number"))


def _differing(runs: Sequence[tuple[RunRecord, Mapping[str, str]]]) -> list[str]:
    """The keys that two runs set to different values.

    A key that a record lacks is younger than it, which then has the default: that counts where two lines would
    look the same otherwise.
    """
    keys = sorted({key for _, settings in runs for key in settings})
    found = [key for key in keys if len({settings[key] for _, settings in runs if key in settings}) > 1]
    lines = {(record.seed, *(settings.get(key) for key in found)) for record, settings in runs}
    if len(lines) == len(runs):
        return found
    return [key for key in keys if len({settings.get(key) for _, settings in runs}) > 1]


def _short(settings: Mapping[str, str]) -> str:
    """``σ = 1``: each setting by the last part of its key, by the whole where two of that name differ."""
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
    """By the id of each run: what is set otherwise in another run of its model, tokenizer, loss, data set and scale.

    λ is left out where the list has it in a column.
    """
    kinds: dict[tuple[str, ...], list[tuple[RunRecord, dict[str, str]]]] = {}
    for record in records:
        kinds.setdefault(_kind(record), []).append((record, _settings(record)))
    found = {}
    for runs in kinds.values():
        differing = _differing(runs)
        for record, settings in runs:
            keys = [key for key in differing if key in settings and not (key == "loss.weight" and _has_weight(record))]
            found[record.id] = _short({key: settings[key] for key in keys})
    return found


def values(record: RunRecord, settings: str = "") -> list[str | float | None]:
    """What the list shows of a run, in the order of ``COLUMNS``; accuracy and MAE are those of the first test split.

    ``settings`` are what ``other_settings`` says of it.
    """
    config = record.config
    return [
        _name(config, "dataset"),
        _name(config, "model"),
        _name(config, "tokenizer"),
        _name(config, "loss"),
        config["loss"].get("weight") if _has_weight(record) else None,
        settings,
        _name(config, "scale"),
        record.seed,
        record.steps,
        record.wall_time_s,
        _main(record.metrics, "accuracy"),
        _main(record.metrics, "mae"),
    ]


def _anywhere(value: Any) -> Any:
    """The same JSON without the folders of the machine that it was run on."""
    if isinstance(value, str):
        return _FOLDERS.sub(r"\1…/", value)
    if isinstance(value, dict):
        return {key: _anywhere(item) for key, item in value.items()}
    return [_anywhere(item) for item in value] if isinstance(value, list) else value


def details(record: RunRecord) -> dict[str, Any]:
    """What the page shows of a run on demand, in JSON's types: nothing of its packed answers and its groups.

    Of an absolute path only the last part is kept: it says nothing elsewhere.
    """
    payload = to_json(record)
    about = {key: payload[key] for key in (*_ABOUT, *_MEASURED)}
    if record.model:  # an older one does not say
        about["model"] = record.model
    settings = {"overrides": payload["overrides"], "config": leaves(payload["config"]), "about": leaves(about)}
    return {**_anywhere(settings), "metrics": payload["metrics"], "curves": payload["curves"]}


def _cell(value: str | float | None, numeric: bool) -> Html:
    if not numeric:
        return element("td", str(value))
    text = "-" if value is None else f"{value:.4g}"
    return element("td", text, class_="number", data_value="" if value is None else repr(value))


def _run(record: RunRecord, settings: str) -> Html:
    cells = [_cell(value, numeric) for value, numeric in zip(values(record, settings), COLUMNS.values(), strict=True)]
    more = element("details", element("summary", record.id), element("div", class_="run-body"))
    line = element("tr", element("td", more, colspan=len(COLUMNS)), class_="more")
    searched = " ".join([record.id, *_anywhere(list(record.overrides)), settings]).strip().lower()
    return element("tbody", element("tr", *cells), line, class_="run", data_id=record.id, data_text=searched)


def section(records: Sequence[RunRecord]) -> Html:
    """The list, a field to search it, and a button a column to sort it."""
    settings = other_settings(records)
    heads = [
        element(
            "th",
            element("button", name, element("span", aria_hidden="true", class_="arrow"), type="button"),
            scope="col",
            aria_sort="none",
            class_="number" if numeric else None,
        )
        for name, numeric in COLUMNS.items()
    ]
    search = element(
        "div",
        element("label", "Search ", element("input", type="search", id="run-filter", autocomplete="off")),
        element("output", f"{len(records)} of {len(records)} runs", id="run-count", for_="run-filter"),
        class_="search",
    )
    table = element(
        "table",
        element("thead", element("tr", *heads)),
        *(_run(each, settings[each.id]) for each in records),
        id="run-list",
    )
    return element(
        "section",
        element("h2", "All runs", id="runs-title"),
        element(
            "p",
            "Accuracy and MAE are those of test or interpolate under our rules. Other settings are those in which "
            "runs of one data set, model, tokenizer, loss and scale differ. A run opens to its command, settings, "
            "metrics and training curves. All words of a search must occur in a run's id, command "
            "line or settings.",
        ),
        search,
        element("div", table, class_="scroll", tabindex=0, role="region", aria_labelledby="runs-title"),
        id="runs",
        aria_labelledby="runs-title",
    )
