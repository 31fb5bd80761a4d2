"""The list of all runs: a line each, and the data from which the page shows a run's settings, metrics and curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from ntl.results.match import leaves
from ntl.results.record import RunRecord, to_json
from ntl.results.report.markup import Html, element

_MAIN_SPLITS = ("test", "interpolate", "validation")
_ABOUT = ("git", "device", "num_devices", "packages", "data", "rules", "steps", "examples_seen", "tokens_seen")
_MEASURED = ("wall_time_s", "peak_memory_bytes", "predictions_sha256")
# Name of the column -> whether it is sorted, and aligned, as a number.
COLUMNS = {
    "dataset": False,
    "model": False,
    "tokenizer": False,
    "loss": False,
    "weight": True,
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


def values(record: RunRecord) -> list[str | float | None]:
    """What the list shows of a run, in the order of ``COLUMNS``; accuracy and MAE are those of the first test split."""
    config = record.config
    loss = config.get("loss", {})
    return [
        _name(config, "dataset"),
        _name(config, "model"),
        _name(config, "tokenizer"),
        _name(config, "loss"),
        loss.get("weight") if loss.get("number") else None,  # without a number term its weight is of no use
        _name(config, "scale"),
        record.seed,
        record.steps,
        record.wall_time_s,
        _main(record.metrics, "accuracy"),
        _main(record.metrics, "mae"),
    ]


def details(record: RunRecord) -> dict[str, Any]:
    """What the page shows of a run on demand, in JSON's types: nothing of its packed answers and its groups."""
    payload = to_json(record)
    about = {key: payload[key] for key in (*_ABOUT, *_MEASURED)}
    if record.model:  # an older one does not say
        about["model"] = record.model
    kept = {key: payload[key] for key in ("overrides", "metrics", "curves")}
    return {**kept, "config": leaves(payload["config"]), "about": leaves(about)}


def _cell(value: str | float | None, numeric: bool) -> Html:
    if not numeric:
        return element("td", str(value))
    text = "-" if value is None else f"{value:.4g}"
    return element("td", text, class_="number", data_value="" if value is None else repr(value))


def _run(record: RunRecord) -> Html:
    cells = [_cell(value, numeric) for value, numeric in zip(values(record), COLUMNS.values(), strict=True)]
    more = element("details", element("summary", record.id), element("div", class_="run-body"))
    line = element("tr", element("td", more, colspan=len(COLUMNS)), class_="more")
    searched = " ".join([record.id, *record.overrides]).lower()
    return element("tbody", element("tr", *cells), line, class_="run", data_id=record.id, data_text=searched)


def section(records: Sequence[RunRecord]) -> Html:
    """The list, a field to search it, and a button a column to sort it."""
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
    table = element("table", element("thead", element("tr", *heads)), *map(_run, records), id="run-list")
    return element(
        "section",
        element("h2", "Runs", id="runs-title"),
        element(
            "p",
            "Accuracy and MAE are those of test or interpolate under our rules. A run opens to its command, settings, "
            "metrics and training curves. All words of a search must occur in a run's id or command line.",
        ),
        search,
        element("div", table, class_="scroll", tabindex=0, role="region", aria_labelledby="runs-title"),
        id="runs",
        aria_labelledby="runs-title",
    )
