"""``train.py --help GROUP``: the settings of a group or a choice, and single ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from ntl.config.cli import HELP_FLAGS
from ntl.config.composition import compose, hint, schemas
from ntl.config.folders import GROUPS, choices, config_file
from ntl.config.root import Config
from ntl.config.settings import Described, describe, lines
from ntl.config.suggestions import nearest
from ntl.system.errors import UserError

RUN = "run"  # stands for the settings without a group
FIELDS = "__dataclass_fields__"
DEFAULTS = (
    "A default holds where no file of config/ sets the value: `--help {group} scale=paper dataset=gsm8k` prints what "
    "holds with these."
)


@dataclass(frozen=True)
class Section:
    """The settings that one schema adds to those of the schema that it extends; ``of`` says which choices have them."""

    of: str
    about: str
    settings: list[Described]


def sections(group: str) -> Iterator[Section]:
    """The settings of a group, those of all its choices first; of ``RUN``, those without a group."""
    if group == RUN:
        yield Section("every run", "Settings without a group.", list(describe(Config)))
        return
    seen: dict[type, list[Described]] = {}
    texts = {name: path.read_text(encoding="utf-8") for name in choices(group) if (path := config_file(group, name))}
    found = [(path, schema) for path, schema in schemas().items() if path.startswith(f"{group}/")]
    of_choice = {name: schema for name, text in texts.items() for path, schema in found if f"/schema/{path}@" in text}
    paths = {schema: path.partition("/")[2] for path, schema in found}
    # What a schema extends comes before it.
    for path, schema in sorted(found, key=lambda each: len(each[1].__mro__)):
        new: list[type] = [base for base in schema.__mro__ if hasattr(base, FIELDS) and base not in seen]
        for part in reversed(new):
            seen[part] = list(describe(part, f"{group}."))
            inherited = [row for base in part.__mro__[1:] for row in seen.get(base, [])]
            rows = [
                row for row in seen[part] if row not in inherited and (not inherited or not row.name.endswith(".name"))
            ]
            of = f"every {group}"
            if part is schema and inherited:
                of = ", ".join(name for name, text in texts.items() if f"/schema/{path}@" in text)
                of += f", with the settings of {paths[part.__mro__[1]]}" if part.__mro__[1] in paths else ""
            elif inherited:
                of = ", ".join(name for name, own in of_choice.items() if issubclass(own, part))
            if rows and of:
                yield Section(of, _about(part), rows)


def _about(schema: type) -> str:
    return (getdoc(schema) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")


def _group(group: str) -> Iterator[str]:
    yield f"{group}: {GROUPS.get(group, 'what holds for the run as a whole')}."
    if group in GROUPS:
        yield f"{group}= {' '.join(choices(group))}"
    parts = list(sections(group))
    for part in parts:
        yield from ("", f"{part.of}: {part.about}" if len(parts) > 1 else part.about, *lines(part.settings))
    if group in GROUPS and parts:
        yield from ("", DEFAULTS.format(group=group))


def _composed(group: str, config: Any) -> Iterator[str]:
    part = config if group == RUN else getattr(config, group)
    yield f"{group}{'' if group == RUN else f'={part.name}'}: {_about(type(part))}"
    yield from lines(list(describe(type(part), "" if group == RUN else f"{group}.", part)), "value")


def _setting(name: str, known: Sequence[str]) -> Iterator[str]:
    rows = [row for group in known for part in sections(group) for row in part.settings]
    found = [row for row in dict.fromkeys(rows) if f"{row.name}.".startswith(f"{name}.")]
    if not found:
        meant = nearest(name, [row.name for row in rows]) if "." in name else hint(name, known)
        raise UserError(f"--help {name}: no such group or setting; choose one of {', '.join(known)}.{meant}")
    yield from lines(found)


def help_asked(words: Sequence[str]) -> str | None:
    """The text for ``--help`` and the groups, settings and choices (``dataset=gsm8k``) that follow it.

    None without ``--help``, and where nothing follows it.

    With choices the values are those that hold with them. UserError: what follows is neither.
    """
    at = next((number for number, word in enumerate(words) if word in HELP_FLAGS), None)
    if at is None:
        return None
    topics = [word for word in words[at + 1 :] if word not in HELP_FLAGS and "=" not in word]
    overrides = [word for word in words[at + 1 :] if "=" in word]
    known = [group for group in (*GROUPS, RUN) if any(sections(group))]
    if not topics and not overrides:
        return None
    config = compose(overrides) if overrides else None
    if not topics:
        groups = [word.partition("=")[0].partition(".")[0] for word in overrides]
        topics = [group if group in known else RUN for group in dict.fromkeys(groups)]
    texts = []
    for topic in topics:
        if config is not None and topic in known:
            texts.append(_composed(topic, config))
        else:
            texts.append(_group(topic) if topic in (*GROUPS, RUN) else _setting(topic, known))
    return "\n\n".join("\n".join(text) for text in texts)
