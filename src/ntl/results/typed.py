"""A YAML file read into nested dataclasses, whose UserError names the file and the key."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ntl.config.targets import parse_yaml, read_yaml
from ntl.system.errors import UserError


def read_typed(schema: Any, path: Path) -> Any:
    """An object of ``schema`` from the file; a list or mapping of schemas, if it is given, has at least one element.

    UserError, in one line: no YAML, a key that the schema lacks, a key that is missing, a value of a wrong type.
    """
    return _typed(schema, read_yaml(path), f"{path}: ")


def read_typed_text(schema: Any, text: str, where: str) -> Any:
    """As ``read_typed``, for a text; ``where`` names its place in the UserError."""
    return _typed(schema, parse_yaml(text, where), f"{where}: ")


def _typed(schema: Any, raw: Any, where: str) -> Any:
    # Piece by piece, because an error within a list of schemas does not say which of its elements is meant.
    if not isinstance(raw, dict):
        raise UserError(f"{where.rstrip('.: ')}: a mapping is expected, not {str(raw)[:40]!r}")
    parts: dict[str, Any] = {}
    for item in fields(schema):
        inner = get_args(item.type)[-1:]
        if inner and is_dataclass(inner[0]) and item.name in raw:
            parts[item.name] = _children(inner[0], raw[item.name], get_origin(item.type), f"{where}{item.name}")
    try:
        rest = {key: value for key, value in raw.items() if key not in parts}
        flat = OmegaConf.merge(OmegaConf.structured(schema), rest, {name: type(part)() for name, part in parts.items()})
        typed = OmegaConf.to_object(flat)
    except OmegaConfBaseException as error:
        key = str(error.full_key or error.key or "")
        raise UserError(f"{where}{key}: {str(error.msg or error).splitlines()[0]}") from error
    for name, part in parts.items():
        setattr(typed, name, part)
    return typed


def _children(schema: Any, raw: Any, kind: Any, where: str) -> Any:
    if not isinstance(raw, kind) or not raw:
        raise UserError(f"{where}: a {'list' if kind is list else 'mapping'} with something in it is expected")
    if isinstance(raw, list):
        return [_typed(schema, item, f"{where}[{index}].") for index, item in enumerate(raw)]
    return {str(key): _typed(schema, item, f"{where}.{key}.") for key, item in raw.items()}
