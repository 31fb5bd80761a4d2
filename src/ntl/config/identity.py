"""The id of a run: a hash of what it computes, not of where or when."""

import hashlib
import json
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ntl.config.model import NOT_IN_WEIGHTS
from ntl.config.own import code_of
from ntl.system.hub import digest, tokenizer_files, weight_files

COMPUTED = ("model", "tokenizer", "loss", "objective", "dataset", "scale", "trainer")

# Locations and bookkeeping, which change no result.
NOT_RECORDED = ("output_dir", "data_dir", "tracking", "resume", "device", "probe_steps", "keep_steps")


def plain(value: Any) -> Any:
    """Dataclasses, enums and containers as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def differing(config: Any) -> dict[str, Any]:
    """The values that differ from their schema's defaults: a new setting with a default changes no id."""
    values = {}
    for field in fields(config):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if (value := plain(getattr(config, field.name))) != plain(default):
            values[field.name] = value
    return values


def _contents(config: Any) -> dict[str, str]:
    """Group -> what is hashed for its path: the sha256 of the files read from a folder, or the hub id itself."""
    model, tokenizer = config.model.path, config.tokenizer.path
    found = {"model": model, "tokenizer": tokenizer}
    if model and Path(model).is_dir():
        found["model"] = f"sha256:{digest(weight_files(Path(model)))}"
        tokenizer = tokenizer or model
    if tokenizer and Path(tokenizer).is_dir():
        found["tokenizer"] = f"sha256:{digest(tokenizer_files(Path(tokenizer)))}"
    return {group: content for group, content in found.items() if content}


def deciding(config: Any) -> dict[str, Any]:
    """Everything that decides the result, by group, except for defaults.

    UserError: a folder of weights or of a tokenizer contains none.
    """
    values: dict[str, Any] = {group: differing(getattr(config, group)) for group in COMPUTED}
    for group, content in _contents(config).items():
        values[group]["path"] = content
    if code := {group: files for group, files in code_of(config).items() if group in COMPUTED}:
        values["code"] = code
    if config.base:
        values["base"] = config.base
    return {**values, "seed": config.seed}


def run_id(config: Any) -> str:
    """``<dataset>-<model>-<loss>-s<seed>-<hash>``. The hash, of ``deciding``, identifies the run; words are for people.

    It leaves out locations (``NOT_RECORDED``), and decoding and paper_compat: a trained model can be decoded in several
    ways, and every record has the scores of both parse rules.
    """
    canonical = json.dumps(deciding(config), sort_keys=True, separators=(",", ":"))
    hashed = hashlib.sha256(canonical.encode()).hexdigest()[:12]
    return f"{config.dataset.name}-{config.model.name}-{config.loss.name}-s{config.seed}-{hashed}"


def recorded(config: Any) -> dict[str, Any]:
    """The part of a config that a run's record keeps, without settings that are switched off.

    Where weights are loaded, the shapes of ``config/model`` are left out: those of the weights are in
    ``RunRecord.model``.
    """
    values = {key: value for key, value in plain(config).items() if key not in NOT_RECORDED}
    for group, content in _contents(config).items():
        values[group]["path"] = content
    if config.model.pretrained:
        values["model"] = {key: value for key, value in values["model"].items() if key in NOT_IN_WEIGHTS}
    for name in ("beside", "base"):
        if not values[name]:
            del values[name]
    if not values["model"]["lora"]["rank"]:
        del values["model"]["lora"]
    if code := code_of(config):
        values["code"] = code
    return values
