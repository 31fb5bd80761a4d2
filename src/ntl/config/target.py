"""Building an object from its typed config is a step of its own."""

from inspect import isclass, isfunction
from typing import Any

from hydra.errors import HydraException
from hydra.utils import get_object

from ntl.config.errors import UserError
from ntl.config.trust import check_target

PACKAGE = "ntl"


def locate(target: str) -> Any:
    """The class or function at a dotted path, for example ``ntl.losses.ntl_was``.

    UserError unless it is one that this package defines: a module of ours imports others, and what they hold, such as
    ``subprocess.run``, has a path through it as well.
    """
    check_target(target, PACKAGE, "_target_")
    try:
        found = get_object(target)
    except (HydraException, ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {target!r} cannot be imported: {str(error).splitlines()[0]}") from error
    if not (isclass(found) or isfunction(found)) or found.__module__.partition(".")[0] != PACKAGE:
        raise UserError(f"_target_ {target!r}: no class or function that {PACKAGE} defines.")
    return found


def build(config: Any, **runtime: Any) -> Any:
    """Call the class or function named by ``config._target_`` with the config and what only the run knows."""
    return locate(config._target_)(config, **runtime)
