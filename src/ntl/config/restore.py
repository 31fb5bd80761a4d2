"""A typed Config from the values that a run folder keeps, without Hydra's files, which may have changed since."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ntl.config.composition import SCHEMAS, compose
from ntl.config.legality import validate
from ntl.config.root import Config
from ntl.config.targets import as_now, read_yaml
from ntl.system.errors import UserError

# What may differ when a finished run is decoded again.
CHANGEABLE = ("decoding", "device", "data_dir", "paper_compat")


def _schema_of(group: str, values: Mapping[str, Any]) -> type | None:
    for path, schema in SCHEMAS.items():
        names = {field.name for field in fields(schema)}
        if path.startswith(f"{group}/") and set(values) <= names:
            target = {field.name: field.default for field in fields(schema)}.get("_target_")
            if (
                "_target_" not in values
                or target == values["_target_"]
                or not isinstance(target, str)
                or target == "???"
            ):
                return schema
    return None


def _merged(group: str, values: Mapping[str, Any]) -> Any:
    schema = _schema_of(group, values)
    return values if schema is None else OmegaConf.merge(OmegaConf.structured(schema), values)


def from_values(values: Mapping[str, Any], where: str) -> Config:
    """Build the dataclasses that ``values`` (plain dictionaries) came from.

    Raises:
        UserError: ``where`` holds a key or a type that no schema has.
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
    """The config of a run folder, with other ``decoding``, ``device``, ``data_dir`` or ``paper_compat``.

    Raises:
        UserError: There is no config.yaml, or an override is not one of those.
    """
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
    validate(config)
    return config
