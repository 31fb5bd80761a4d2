"""What distinguishes runs: the names of their parts, and the settings that two of them set to different values."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ntl.results.match import NOT_COMPUTED_WITH, leaves
from ntl.results.record import RunRecord

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
