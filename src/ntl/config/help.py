"""``train.py --help GROUP``: the settings of a group, of a choice, or single ones, with the values that hold."""

from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from inspect import getdoc
from typing import Any

from ntl.config.cli import HELP_FLAGS
from ntl.config.composition import compose, hint
from ntl.config.folders import GROUPS, choices
from ntl.config.settings import describe
from ntl.config.suggestions import nearest
from ntl.system.errors import UserError

RUN = "run"  # stands for the settings without a group


def _group(group: str, config: Any) -> Iterator[str]:
    part = config if group == RUN else getattr(config, group, None)
    yield f"{group}: {GROUPS.get(group, 'what holds for the run as a whole')}."
    if group in GROUPS:
        yield f"{group}= {' '.join(choices(group))}"
    if is_dataclass(part):
        meaning = " ".join((getdoc(type(part)) or "").partition("\n\n")[0].replace("``", "`").split())
        yield f"{group}{f'={part.name}' if hasattr(part, 'name') else ''}: {meaning}"  # pyright: ignore
        for _, lines in describe(type(part), "" if group == RUN else f"{group}.", part):
            yield from lines


def _setting(name: str, config: Any) -> Iterator[str]:
    parts = {"": config, **{f"{group}.": getattr(config, group, None) for group in GROUPS}}
    known = {
        row: text
        for path, part in parts.items()
        if is_dataclass(part)
        for row, text in describe(type(part), path, part)
    }
    found = [row for row in known if f"{row}.".startswith(f"{name}.")]
    if not found:
        meant = nearest(name, known) if "." in name else hint(name, [*GROUPS, RUN])
        raise UserError(f"--help {name}: no such group or setting; choose one of {', '.join([*GROUPS, RUN])}.{meant}")
    for row in found:
        yield from known[row]


def help_asked(words: Sequence[str]) -> str | None:
    """The text for ``--help`` and the groups, settings and choices (``dataset=gsm8k``) that follow it.

    The settings and values are those that hold with these choices. None without ``--help``, and where nothing follows
    it. UserError: what follows is neither.
    """
    at = next((number for number, word in enumerate(words) if word in HELP_FLAGS), len(words))
    asked = [word for word in words[at:] if word not in HELP_FLAGS]
    if not asked:
        return None
    overrides = [word for word in asked if "=" in word]
    topics = [word for word in asked if "=" not in word] or [word.split("=")[0].split(".")[0] for word in overrides]
    config = compose(overrides)
    texts = [(_group if topic in (*GROUPS, RUN) else _setting)(topic, config) for topic in dict.fromkeys(topics)]
    return "\n\n".join("\n".join(text) for text in texts)
