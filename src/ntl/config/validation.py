"""Whether a config holds: each setting to what its schema allows, and all of them to each other (``Schema.rules``)."""

import math
from collections.abc import Collection, Iterable
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from ntl.config.settings import LIMITS, Schema, about, default_of, nearest, nested, text_of
from ntl.config.targets import check_name, check_target
from ntl.system.errors import UserError


class Family(NamedTuple):
    """The head of one family of models, and the tokenizers (the default last) and answers that it works with."""

    head: str
    tokenizers: tuple[str, ...]
    answers: tuple[str, ...]


NUMERIC = ("number", "reasoning", "sentence")  # answers of which one number is scored
LISTS = "numbers"
PLAIN = "none"  # plain text has no questions and no answers
ANSWERS = {
    "number": "one number",
    "reasoning": "a number worked out in text",
    "sentence": "a text with a number",
    LISTS: "several numbers",
    "text": "text",
    "exact": "text matched symbol by symbol",  # rt writes numbers and the spaces around them in another way
    "continuation": "the rest of the question's text",  # in training from its first word, so nothing to encode
    PLAIN: "plain text",
}
HEADS = {
    "lm": "a language-model head",
    "regression": "one output for a sequence",
    "masked_number": "a number head at a masked position",
}
# All legal combinations. Losses, objectives and decodings fit a family when they are for its head.
FAMILIES = {
    "t5": Family("lm", ("default", "digit"), ("number", "reasoning", "sentence", "numbers", "text", "exact")),
    "decoder": Family("lm", ("default", "digit"), tuple(ANSWERS)),
    "rt": Family("lm", ("rt",), ("number", "reasoning", "text")),
    "t5_regression": Family("regression", ("digit", "default"), ("number",)),
    "decoder_regression": Family("regression", ("default", "digit"), ("number",)),
    "xval": Family("masked_number", ("xval",), ("number",)),
}


def kinds_of(answers: Iterable[str]) -> str:
    """What answers of these kinds are, in words."""
    return " or ".join(ANSWERS[kind] for kind in answers)


def unfit_for_chat(config: Any) -> str:
    """Why questions and answers cannot go through a chat template; empty if they can."""
    model, data = config.model, config.dataset
    if model.family != "decoder":
        return f"a chat template is for decoder-only language models, and model={model.name} is {model.family}"
    return f"dataset={data.name} has no questions" if data.answers in (PLAIN, "continuation") else ""


def value_of(config: Any, name: str) -> Any:
    """The setting or the group of this name, such as ``model.lora.rank`` or ``extra_decodings.median``."""
    for part in name.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return config


def _word(config: Any, name: str) -> str:
    value = value_of(config, name)
    if is_dataclass(value):  # a group, or ``extra_decodings.`` and the name of a decoding
        return f"{name.partition('.')[0]}={getattr(value, 'name', '')}"
    return name if isinstance(value, dict) else f"{name}={text_of(value) if value != '' else ''}"


def _check(part: Any, item: Any, path: str) -> None:
    """UserError for a value that its schema does not allow, whatever the other groups are."""
    value, told, name = getattr(part, item.name), about(type(part))[item.name], f"{path}{item.name}"
    if room := told.get("room"):
        check_target(value, room, name)
    elif item.name == "name":
        check_name(value, name)
    word, options = f"{name}={text_of(value)}", [text_of(option) for option in told.get("choices", ())]
    if value is not None and options and text_of(value) not in options:
        raise UserError(f"{word}: choose one of {', '.join(options)}.{nearest(text_of(value), options)}")
    for limit, (_, words, holds) in LIMITS.items():
        if value is not None and limit in told and not holds(value, told[limit]):  # nan is within none
            raise UserError(f"{word}: must be {words} {told[limit]}.")
    if isinstance(value, float) and not math.isfinite(value) and told.get("max") != math.inf:
        raise UserError(f"{word}: must be a finite number.")
    needed = told.get("needs")
    if needed and getattr(part, needed) in (0, "none") and value != default_of(item):
        line = f"has no effect with {path}{needed}={text_of(getattr(part, needed))}; set that, or leave this out."
        raise UserError(f"{word}: {line}")


def check_keep_steps(config: Any) -> None:
    """UserError for a step to keep that the run does not have."""
    last = config.trainer.max_steps
    if not all(1 <= step <= last for step in config.keep_steps):
        raise UserError(f"keep_steps={text_of(config.keep_steps)}: choose steps of 1 to trainer.max_steps={last}.")


def validate(config: Any, typed: Collection[str] = ()) -> None:
    """Raise ``UserError`` at the first setting that is out of range or does not fit the others.

    ``typed`` are the keys on a command line, such as ``model.lora.rank``: none of them may be without effect, and what
    nobody typed has to fit them.
    """
    for path, part in nested(config):
        for item in fields(part):
            _check(part, item, path)
    for name in config.extra_decodings:
        check_name(name, "extra_decodings")
    for path, part in nested(config):
        for names, line in part.rules(config, typed) if isinstance(part, Schema) else ():  # model=xval_tiny seed=2: ...
            full = [f"{path}{name[1:]}".rstrip(".") if name[0] == "." else name for name in names.split()]
            raise UserError(f"{' '.join(_word(config, name) for name in full)}: {line}")
