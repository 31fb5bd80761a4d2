"""Running a command: a user's mistake becomes one line on standard error and an exit code; ``train.py --help GROUP``.

Hydra and omegaconf are imported inside functions, since one of the mistakes is that they are not installed.
"""

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from inspect import getdoc
from typing import Any, NoReturn

from ntl.config.folders import GROUPS, choices
from ntl.config.settings import describe, nearest, shorten
from ntl.system.errors import Diverged, UserError, needs, print_traceback, redact
from ntl.system.messages import printed

HELP_FLAGS = ("-h", "--help")
DONE, FAILED, BAD_INPUT, DIVERGED, INTERRUPTED, CLOSED = 0, 1, 2, 3, 130, 141

# Advice where a group is given a path.
PATH_ADVICE = {
    "dataset": " A file is given by dataset=file dataset.path={0}, plain text by dataset=text dataset.path={0}.",
    "model": " Weights are given by model=hf model.path={0}.",
}
# Errors about a path that cannot be followed: the path was typed by the user.
PATH_ERRORS = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EROFS)


class Parser(argparse.ArgumentParser):
    """argparse's, with errors of one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"error: {message}; {self.prog} --help says what is taken.\n")


def explain(error: Exception) -> str:
    """One line for a mistake of the user, as this project, Hydra or OmegaConf raises it; empty for other exceptions."""
    if isinstance(error, OSError) and error.filename is not None:  # Hydra's have no file name
        line = f"{shorten(os.fsdecode(error.filename))}: {error.strerror}; give another path."
        return line if error.errno in PATH_ERRORS else ""
    one_line = " ".join(str(error).split())
    if type(error).__module__.startswith("yaml."):  # of a file that Hydra composes
        return one_line[:300]
    if isinstance(error, UserError) or "hydra" not in sys.modules:
        return one_line if isinstance(error, UserError) else ""
    from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    from ntl.config.composition import unknown_setting

    if type(error).__module__.startswith("submitit") or "on a slurm cluster?" in one_line:
        # There is no Slurm here, it takes no job, or a job was killed.
        return f"{one_line[:300]}; jobs that were submitted go on."
    if isinstance(error, MissingConfigException) and "/submitit_" in str(error.missing_cfg_file):
        return "hydra-submitit-launcher is not installed; run pip install -e '.[slurm]' in the clone."
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = str(error.missing_cfg_file).partition("/")
        if group == "hydra":
            group, name = "hydra/launcher", name.rpartition("/")[2]
        options = [option for option in error.options if "/" not in option]
        is_path = group in PATH_ADVICE and ("/" in name or "." in name)
        remedy = PATH_ADVICE[group].format(name) if is_path else nearest(name, options)
        return f"{group}={name}: no such choice; {group} is one of {', '.join(options)}.{remedy}"
    if isinstance(error, OverrideParseException):
        remedy = "; give text that has such signs in further quotation marks, as \"KEY='TEXT'\"."
        return f"{error.override}: not a setting of the form key=value{remedy if '=' in error.override else '.'}"
    cause = error.__cause__ if isinstance(error, ConfigCompositionException) else error
    if isinstance(cause, OmegaConfBaseException):
        full_key = str(cause.full_key or "")
        if "not in" in str(cause) and full_key:
            schema: Any = cause.object_type  # of the node itself: the settings of the data set that was chosen
            if isinstance(schema, type) and is_dataclass(schema):
                return unknown_setting(full_key, schema)
            remedy = full_key.replace(".", "=") if full_key.startswith("extra_decodings.") else f"+{full_key}=VALUE"
            return f"{full_key}: {full_key.rpartition('.')[0]} has no such key yet; add it as {remedy}."
        subject = override.group(1) if (override := re.search(r"override (\S+)", str(error))) else full_key
        if isinstance(cause.child_node, DictConfig):
            below = ", ".join(f"{full_key}.{key}" for key in cause.child_node)
            return f"{subject}: no value but a group of settings; set one of {below}."
        return f"{subject}: {str(cause).splitlines()[0].removesuffix('.')}."
    return one_line if isinstance(error, HydraException) else ""


def report(
    main: Callable[[], int | None], interrupted: str = "interrupted.", extra: str = "train", *, messages: str = "stderr"
) -> int:
    """Run ``main`` and return its exit code; an exception becomes one line on standard error and a code of its own.

    What ``main`` imports when it runs may be missing: the line then names the extra of pyproject.toml, ``extra`` if it
    has the package. What it logs goes to ``messages``. When the reader of standard output is gone (``... | head``), the
    command ends silently.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # as standard error: a sign that the locale lacks is no traceback
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            with needs(extra), printed(messages):
                return main() or DONE
        except Diverged as error:
            print(f"diverged: {error}", file=sys.stderr)
            return DIVERGED
        except KeyboardInterrupt:
            print(interrupted, file=sys.stderr)
            return INTERRUPTED
        except Exception as error:
            if line := explain(error):
                print(f"error: {redact(line)}", file=sys.stderr)
                return BAD_INPUT
            if isinstance(error, BrokenPipeError):
                print(flush=True)  # raises again where standard output is the pipe
            print_traceback()
            return FAILED
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Otherwise the interpreter flushes its buffer at exit and raises again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED


# ---- train.py --help GROUP: the settings of a group, of a choice, or single ones, with the values that hold

RUN = "run"  # stands for the settings without a group


def help_asked(words: Sequence[str]) -> str | None:
    """The text for ``--help`` and the groups, settings and choices (``dataset=gsm8k``) that follow it.

    The settings and values are those that hold with these choices. None without ``--help``, and where nothing follows
    it. UserError: what follows is neither.
    """
    from ntl.config.composition import compose, hint

    at = next((number for number, word in enumerate(words) if word in HELP_FLAGS), len(words))
    asked = [word for word in words[at:] if word not in HELP_FLAGS]
    if not asked:
        return None
    overrides = [word for word in asked if "=" in word]
    topics = [word for word in asked if "=" not in word] or [word.split("=")[0].split(".")[0] for word in overrides]
    try:
        config = compose(overrides)
    except UserError:  # such as dataset=file without a path, whose help is asked for
        config = compose(overrides, check=False)
    settings, texts, known = describe(config), list[str](), [RUN, *GROUPS]
    for topic in dict.fromkeys(topics):
        lines, part = [], getattr(config, topic, config)
        if topic in known:
            lines.append(f"{topic}: {GROUPS.get(topic, 'what holds for the run as a whole')}.")
        if topic in GROUPS:
            lines.append(f"{topic}= {' '.join(choices(topic))}")
        if topic in known and is_dataclass(part):
            meaning = " ".join((getdoc(type(part)) or "").partition("\n\n")[0].replace("``", "`").split())
            lines.append(f"{topic}{f'={part.name}' if hasattr(part, 'name') else ''}: {meaning}")  # pyright: ignore
        names = [name for name in settings if ("." not in name if topic == RUN else f"{name}.".startswith(f"{topic}."))]
        if not names and topic not in known:
            meant = nearest(topic, settings) if "." in topic else hint(topic, known)
            raise UserError(f"--help {topic}: no such group or setting; choose one of {', '.join(known)}.{meant}")
        texts.append("\n".join([*lines, *(settings[name] for name in names)]))
    return "\n\n".join(texts)
