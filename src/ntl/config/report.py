"""One line for a user's mistake, and the exit code that goes with it."""

import re
import sys
import traceback
from collections.abc import Callable

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ntl.config.errors import Diverged, UserError
from ntl.config.legality import nearest

DONE, FAILED, BAD_INPUT, DIVERGED, INTERRUPTED = 0, 1, 2, 3, 130


def _known_keys(path: str) -> list[str]:
    from ntl.config.composition import compose

    node = OmegaConf.structured(compose())
    parent = OmegaConf.select(node, path) if path else node
    return [str(key) for key in parent] if OmegaConf.is_dict(parent) else []


def _unknown_key(full_key: str) -> str:
    parent, _, key = full_key.rpartition(".")
    known = _known_keys(parent)
    where = f"{parent} has {', '.join(known)}." if parent else f"choose one of {', '.join(known)}."
    return f"{full_key}: no such setting; {where}{nearest(key, known)}"


def explain(error: Exception) -> str:
    """The one line for an exception of ours, of Hydra or of OmegaConf."""
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        options = [option for option in error.options if "/" not in option]
        return f"{group}={name}: no such choice; {group} is one of {', '.join(options)}.{nearest(name, options)}"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: not a setting of the form key=value."
    cause = error.__cause__ if isinstance(error, ConfigCompositionException) else error
    if isinstance(cause, OmegaConfBaseException):
        full_key = str(cause.full_key or "")
        if "not in" in str(cause) and full_key:
            return _unknown_key(full_key)
        override = re.search(r"override (\S+)", str(error))
        subject = override.group(1) if override else full_key
        return f"{subject}: {str(cause).splitlines()[0]}."
    return " ".join(str(error).split())


def report(main: Callable[[], int | None], interrupted: str = "interrupted.") -> int:
    """Run ``main`` and turn what it raises into one line on standard error and an exit code, which may be its own."""
    try:
        return main() or DONE
    except Diverged as error:
        print(f"diverged: {error}", file=sys.stderr)
        return DIVERGED
    except (UserError, HydraException, OmegaConfBaseException) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        return FAILED
