"""YAML that was written by a run or by somebody else: values only, and no more of them than were meant.

yaml and omegaconf are imported inside functions: what reports a mistake must work without them.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntl.system.errors import UserError

if TYPE_CHECKING:
    import yaml

# Values in one file with its aliases expanded; the largest file of this project has some hundreds.
MAX_VALUES = 100_000


def check_plain(text: str, where: str) -> None:
    """Check YAML that was written by a run or by somebody else.

    UserError for an interpolation such as ``${oc.env:HOME}``, and for aliases that expand to more than ``MAX_VALUES``
    values or contain themselves. RecursionError where it is nested too deeply, YAMLError where it is not YAML.
    """
    if "${" in text:
        raise UserError(f"{where}: it has an interpolation, ${{...}}, which is not resolved here; write the value.")
    if "*" not in text:
        return
    import yaml

    # Reading expands aliases, and a few lines can expand to more than any memory holds.
    if _size(yaml.compose(text, yaml.SafeLoader), {}) > MAX_VALUES:
        raise UserError(
            f"{where}: its aliases (*name) unfold to more than {MAX_VALUES:,} values; write out what is meant."
        )


def _size(node: "yaml.Node | None", sizes: dict[int, float]) -> float:
    # An alias is the same object as its anchor: each node is visited once.
    parts = getattr(node, "value", None)
    if not isinstance(parts, list):  # a scalar's is its text
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = math.inf  # while its parts are counted: it may contain itself
        nodes = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        sizes[id(node)] = 1 + sum(_size(each, sizes) for each in nodes)
    return sizes[id(node)]


def read_yaml(path: Path) -> Any:
    """The lists, mappings and values of a YAML file, which ``check_plain`` accepts.

    UserError, in one line, for what cannot be read.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        text = path.read_text(encoding="utf-8")
        check_plain(text, str(path))
        return OmegaConf.to_container(OmegaConf.create(text))
    except RecursionError as error:
        raise UserError(f"{path}: lists or mappings are nested too deeply to be read; write it flatter") from error
    except (OSError, YAMLError, ValueError, OmegaConfBaseException) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())[:300]}") from error
