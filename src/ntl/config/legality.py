"""What the types cannot say: ranges, and which parts fit together."""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from ntl.config.errors import UserError

# The one table of legal combinations: model family -> tokenizer kinds that it can read.
TOKENIZERS = {
    "t5": ("default", "digit"),
    "decoder": ("default", "digit"),
}
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def nearest(word: str, options: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, or nothing when no option is near."""
    match = difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def setting_names(schema: type) -> list[str]:
    """The keys of a schema that are meant to be set."""
    return [field.name for field in fields(schema) if field.name != "_target_"]


def _leaves(config: Any, path: str = "") -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for field in fields(config):
        value = getattr(config, field.name)
        name = f"{path}{field.name}"
        if is_dataclass(value):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value, dict(field.metadata)


def _check_ranges(config: Any) -> None:
    for name, value, limits in _leaves(config):
        if limits and value != value:
            raise UserError(f"{name}=nan: must be a number.")
        if "min" in limits and value < limits["min"]:
            raise UserError(f"{name}={value}: must be at least {limits['min']}.")
        if "above" in limits and value <= limits["above"]:
            raise UserError(f"{name}={value}: must be above {limits['above']}.")
        if "max" in limits and value > limits["max"]:
            raise UserError(f"{name}={value}: must be at most {limits['max']}.")


def _check_path(name: str, path: str) -> None:
    if path and not Path(path).is_dir() and not HUB_ID.fullmatch(path):
        raise UserError(f"{name}={path}: neither an existing folder nor a hub id of the form owner/name.")


def _check_choice(name: str, value: str, options: tuple[str, ...]) -> None:
    if value not in options:
        raise UserError(f"{name}={value}: choose one of {', '.join(options)}.{nearest(value, options)}")


def validate(config: Any) -> None:
    """Raise ``UserError`` with one line at the first thing that is out of range or does not fit."""
    _check_ranges(config)
    _check_path("model.path", config.model.path)
    _check_path("tokenizer.path", config.tokenizer.path)
    _check_choice("device", config.device, ("auto", "cpu", "cuda"))
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        raise UserError(f"resume={config.resume}: choose auto, never, or the folder of a checkpoint.")
    if config.trainer.schedule.name == "plateau" and not config.trainer.eval_steps:
        raise UserError(
            "trainer.schedule=plateau trainer.eval_steps=0: the plateau is one of the validation CE; "
            "set trainer.eval_steps, or trainer.schedule=constant."
        )
    kinds = TOKENIZERS[config.model.family]
    if config.tokenizer.kind not in kinds:
        raise UserError(
            f"model={config.model.name} tokenizer={config.tokenizer.name}: this model reads {' or '.join(kinds)}; "
            f"use tokenizer={kinds[-1]}."
        )
    if config.model.pretrained and not (config.model.hub_id or config.model.path):
        raise UserError(
            f"model={config.model.name} model.pretrained=true: no published weights; "
            "give a folder by model.path=, or leave pretrained=false."
        )
