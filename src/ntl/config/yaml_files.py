"""YAML that was written by a run or by somebody else: values only."""

from pathlib import Path
from typing import Any

from ntl.system.errors import UserError


def check_plain(text: str, where: str) -> None:
    """UserError for an interpolation such as ``${oc.env:HOME}`` in a text that was not typed here."""
    if "${" in text:
        raise UserError(f"{where}: it has an interpolation, ${{...}}, which is not resolved here; write the value.")


def read_yaml(path: Path) -> Any:
    """The lists, mappings and values of a YAML file. UserError for what cannot be read, and for an interpolation."""
    # Imported here: what reports a mistake must work without them.
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        text = path.read_text(encoding="utf-8")
        check_plain(text, str(path))
        return OmegaConf.to_container(OmegaConf.create(text))
    except (OSError, YAMLError, ValueError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:300]}") from error
