"""The Config of a run from its folder or record, without the files of ``config/``, which may have changed since."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ntl.config.composition import compose, schemas
from ntl.config.legality import validate
from ntl.config.root import Config
from ntl.config.targets import as_now, read_yaml
from ntl.system.errors import UserError

# Settings that may be changed when a finished run is decoded again.
CHANGEABLE = ("decoding", "device", "data_dir", "paper_compat")


def _schema_of(group: str, values: Mapping[str, Any]) -> type | None:
    for path, schema in schemas().items():
        names = {field.name for field in fields(schema)}
        if path.startswith(f"{group}/") and set(values) <= names:
            target = getattr(schema, "_target_", MISSING)
            if target == MISSING or values.get("_target_", target) == target:
                return schema
    return None


def _merged(group: str, values: Mapping[str, Any]) -> Any:
    schema = _schema_of(group, values)
    return values if schema is None else OmegaConf.merge(OmegaConf.structured(schema), values)


def from_values(values: Mapping[str, Any], where: str) -> Config:
    """The dataclasses that ``values`` (plain dictionaries) were written from.

    UserError, which names ``where``, for a key or a type that no schema has.
    """
    node = OmegaConf.structured(Config)
    try:
        for key, value in as_now(values).items():
            if key == "beside":
                for name, reading in value.items():
                    OmegaConf.update(node, f"beside.{name}", _merged("decoding", reading))
            else:
                merged = _merged(key, value) if isinstance(value, Mapping) else value
                OmegaConf.update(node, key, merged, merge=merged is value)
        config = OmegaConf.to_object(node)
    except OmegaConfBaseException as error:
        raise UserError(f"{where}: {str(error).splitlines()[0]}; written by another version of ntl?") from error
    assert isinstance(config, Config)
    return config


def _changed(config: Config, override: str) -> Config:
    try:
        changed = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(config), OmegaConf.from_dotlist([override])))
    except OmegaConfBaseException as error:
        raise UserError(f"{override}: {str(error).splitlines()[0]}.") from error
    assert isinstance(changed, Config)
    return changed


def read_config(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """The config of a run folder, with overrides of ``CHANGEABLE``. UserError: no config.yaml, or another override."""
    path = folder / "config.yaml"
    if not path.is_file():
        raise UserError(f"{path}: not found; give the folder of a run, for example outputs/<run id>.")
    values = read_yaml(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: no config of a run; give the folder of a run, for example outputs/<run id>.")
    config = from_values(values, str(path))
    for override in overrides:
        key, equals, _ = override.partition("=")
        if not equals or key.split(".")[0] not in CHANGEABLE:
            raise UserError(f"{override}: only {', '.join(CHANGEABLE)} may be set for a trained run.")
        if key == "decoding":
            config.decoding = compose([override]).decoding
        else:
            config = _changed(config, override)
    config.output_dir = str(folder.parent)
    # Weights and tokenizer are those of the run itself, so the folders that it began from may be gone.
    validate(replace(config, model=_at(config.model, folder), tokenizer=_at(config.tokenizer, folder)))
    return config


def _at(config: Any, folder: Path) -> Any:
    return replace(config, path=str(folder)) if config.path else config
