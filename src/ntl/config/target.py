"""Building an object from its typed config is a step of its own."""

from typing import Any

from hydra.errors import HydraException
from hydra.utils import get_object

from ntl.config.errors import UserError


def locate(target: str) -> Any:
    """The object at a dotted path, for example ``ntl.losses.ntl_was``."""
    try:
        return get_object(target)
    except (HydraException, ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {target!r} cannot be imported: {str(error).splitlines()[0]}") from error


def build(config: Any, **runtime: Any) -> Any:
    """Call the class or function named by ``config._target_`` with the config and what only the run knows."""
    return locate(config._target_)(config, **runtime)
