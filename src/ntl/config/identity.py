"""The id of a run: a hash of what it computes, not of where or when."""

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ntl.config.loss import SQUARED_ERROR, LossConfig
from ntl.config.model import NOT_IN_WEIGHTS, gguf_file
from ntl.config.root import DatasetConfig
from ntl.config.trainer import DERIVED, chooses_decoded
from ntl.system.files import data_roots
from ntl.system.hub import digest, file_digest, tokenizer_files, weights_digest

COMPUTED = ("model", "tokenizer", "loss", "objective", "dataset", "scale", "trainer")

# Locations and bookkeeping, which change no result.
NOT_RECORDED = ("output_dir", "data_dir", "tracking", "resume", "device", "probe_steps", "keep_steps")

# Settings of a data set that never name a file, and names of settings that do.
_NAMELESS = ("_target_", *(field.name for field in fields(DatasetConfig)))
_PATH = re.compile(r"(path|file|folder|dir)s?$")


def plain(value: Any) -> Any:
    """Dataclasses and containers as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def non_default(config: Any) -> dict[str, Any]:
    """The values that differ from their schema's defaults: a new setting with a default changes no id."""
    defaults = plain(type(config)())
    return {key: value for key, value in plain(config).items() if value != defaults[key]}


def _of_functions(loss: LossConfig) -> dict[str, Any]:
    """The loss in the words that ids were made of from the first, which name functions in place of kinds."""
    values = {key: value for key, value in non_default(loss).items() if key in ("name", "weight", "implementation")}
    if loss.kind == SQUARED_ERROR:
        return {**values, "name": "mse", "heads": ["regression", "masked_number"], "number": _function(loss.kind)}
    for part, is_base in (("base", True), ("number", False)):
        name = "+".join(kind.function for kind in loss.kinds if kind.is_base == is_base)
        if name and (name != "cross_entropy" or loss.options):
            values[part] = _function(name, **loss.options)
    return {**values, "cost": _function("squashed_cost", factor=loss.squash)} if loss.squash else values


def _function(name: str, **options: Any) -> dict[str, Any]:
    return {"_target_": f"ntl.losses.{name}", "options": options}


def _contents(config: Any) -> dict[str, str]:
    """Group -> what is hashed for its path: the sha256 of the files read from a folder, or the hub id itself."""
    model, tokenizer, file = config.model.path, config.tokenizer.path, gguf_file(config.model)
    contents = {"model": model, "tokenizer": tokenizer}
    if model and Path(model).is_dir():
        contents["model"] = f"sha256:{weights_digest(Path(model), file)}"
        tokenizer = tokenizer or model
    if tokenizer and Path(tokenizer).is_dir():
        of_model = file if tokenizer == model else ""
        contents["tokenizer"] = f"sha256:{digest(tokenizer_files(Path(tokenizer), of_model))}"
    return {group: content for group, content in contents.items() if content}


def find_file(path: str, data_dir: str | Path) -> Path | None:
    """The file or folder of this path, or of this path below a data folder."""
    places = (Path(path), *(root / path for root in data_roots(Path(data_dir))))
    return next((place for place in places if place.exists()), None)


def setting_files(config: Any, data_dir: str | Path) -> dict[str, list[Path]]:
    """Setting -> the existing files and folders that its text or list names, of a data set's settings.

    A text names a file by a path of its own or one below a data folder. It must have a dot or a slash in it, or stand
    in a setting called path, file, folder or dir: a word such as ``train`` is none because a folder has that name.
    """
    files: dict[str, list[Path]] = {}
    for key, value in sorted(plain(config).items()):
        texts = [] if key in _NAMELESS else value if isinstance(value, list) else [value]
        for text in texts:
            if isinstance(text, str) and text and (_PATH.search(key) or "/" in text or "." in text):
                with suppress(OSError, ValueError):
                    if path := find_file(text, data_dir):
                        files.setdefault(key, []).append(path)
    return files


def read_contents(config: Any, data_dir: str | Path) -> None:
    """Set ``contents`` of a data set's config: the sha256 of what each setting names that names a file or a folder.

    From then on it stands for the setting: an edited file is another data set, and a moved one the same.
    """
    config.contents = {key: contents_of(paths) for key, paths in setting_files(config, data_dir).items()}


def contents_of(paths: list[Path]) -> str:
    """``sha256:`` and the digest of a file, of the names and contents of a folder's files, or of several of these."""
    contents = []
    for path in paths:
        files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
        lines = "".join(f"{name} {file_digest(file)}\n" for name, file in files)
        contents.append(f"sha256:{_sha256(lines) if path.is_dir() else file_digest(path)}")
    return contents[0] if len(contents) == 1 else f"sha256:{_sha256(json.dumps(contents))}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def by_content(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a data set's config, with contents in place of the settings that name files."""
    return {key: value for key, value in values.items() if key != "contents"} | values.get("contents", {})


# The text of a model's file that ids were made of from the first, where it was wrong and has been corrected.
_REQUIRES = {
    "t5_3b": "trainer.bf16=true on one GPU of 80 GB, or with trainer.gradient_checkpointing=true model.lora.rank=16 "
    "as well on one of 24 GB"
}


def identity_fields(config: Any) -> dict[str, Any]:
    """Everything that decides the result, by group, except for defaults.

    UserError: a folder of weights or of a tokenizer contains none.
    """
    values: dict[str, Any] = {group: non_default(getattr(config, group)) for group in COMPUTED}
    values["loss"] = _of_functions(config.loss)
    for group, content in _contents(config).items():
        values[group]["path"] = content
    if config.model.pretrained:  # null, as the weights have it, is what is meant where nothing is said
        values["model"].pop("dropout", None)
        if config.model.dropout is not None:
            values["model"]["dropout"] = config.model.dropout
    values["model"].pop("file", None)  # its content counts, not its name
    if config.model.name in _REQUIRES:
        values["model"]["requires"] = _REQUIRES[config.model.name]
    for given, steps in DERIVED.items():
        if getattr(config.trainer, given):
            values["trainer"].pop(steps, None)
    if chooses_decoded(config.trainer):
        idle = ("interval_rows", "interval_scale")  # they choose nothing
        values["decoding"] = {key: value for key, value in non_default(config.decoding).items() if key not in idle}
    values["dataset"] = by_content(values["dataset"])
    if config.base:
        values["base"] = config.base
    return {**values, "seed": config.seed}


def run_id(config: Any, values: dict[str, Any] | None = None) -> str:
    """``<dataset>-<model>-<loss>-s<seed>-<hash>``. The hash, of ``identity_fields``, is the id; words are for people.

    ``values`` are what ``identity_fields`` returns, where it is known.

    It leaves out locations (``NOT_RECORDED``), steps that follow from epochs, and decoding and paper_compat: a trained
    model can be decoded in several ways, and every record has the scores of both parse rules. Only where decoded
    answers choose the checkpoint (``trainer.best``) is the decoding part of it.
    """
    values = values or identity_fields(config)
    hashed = _sha256(json.dumps(values, sort_keys=True, separators=(",", ":")))[:12]
    return f"{config.dataset.name}-{config.model.name}-{values['loss']['name']}-s{config.seed}-{hashed}"


def recorded(config: Any) -> dict[str, Any]:
    """The part of a config that a run's record keeps, without settings that are switched off.

    Where weights are loaded, the shapes of ``config/model`` are left out: the shapes of the weights
    are in ``RunRecord.model``.
    """
    values = {key: value for key, value in plain(config).items() if key not in NOT_RECORDED}
    for group, content in _contents(config).items():
        values[group]["path"] = content
    values["dataset"] = by_content(values["dataset"])
    idle = {"format": "plain", "weight": "", "exclude_numbers": ""}
    values["dataset"] = {key: value for key, value in values["dataset"].items() if (key, value) not in idle.items()}
    if config.model.pretrained:
        values["model"] = {key: value for key, value in values["model"].items() if key in NOT_IN_WEIGHTS}
    for name in ("extra_decodings", "base"):
        if not values[name]:
            del values[name]
    if not values["model"]["lora"]["rank"]:
        del values["model"]["lora"]
    if not values["objective"]["mask"]["fraction"]:
        del values["objective"]["mask"]
    return values
