"""Checks of a config beyond its types: ranges, and which parts fit together."""

import difflib
import errno
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from ntl.config.targets import check_plain, check_trust
from ntl.system.errors import UserError


@dataclass(frozen=True)
class Family:
    """The head of one family of models, and the tokenizers (the default last) and answers that it works with."""

    head: str
    tokenizers: tuple[str, ...]
    answers: tuple[str, ...]


ANSWERS = {
    "number": "is one number",
    "reasoning": "is worked out in text",
    "text": "is text",
    "exact": "is matched symbol by symbol",  # rt writes numbers and the spaces around them in another way
    "continuation": "continues the text of the question",  # in training from its first word, so nothing to encode
}
HEADS = {
    "lm": "a language-model head",
    "regression": "one output for a sequence",
    "masked_number": "a number head at a masked position",
}
# All legal combinations. Losses, objectives and decodings fit a family when they are for its head.
FAMILIES = {
    "t5": Family("lm", ("default", "digit"), ("number", "reasoning", "text", "exact")),
    "decoder": Family("lm", ("default", "digit"), tuple(ANSWERS)),
    "rt": Family("lm", ("rt",), ("number", "reasoning", "text")),
    "t5_regression": Family("regression", ("digit", "default"), ("number",)),
    "decoder_regression": Family("regression", ("default", "digit"), ("number",)),
    "xval": Family("masked_number", ("xval",), ("number",)),
}
DEVICES = ("auto", "cpu", "cuda")
BASE = re.compile(r"[^\s/@=]+@[0-9]+")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def did_you_mean(options: Iterable[str]) -> str:
    """``" Did you mean 'x'?"``, ``" Did you mean one of 'x', 'y'?"``, or nothing."""
    quoted = [repr(option) for option in options]
    return f" Did you mean {'one of ' if len(quoted) > 1 else ''}{', '.join(quoted)}?" if quoted else ""


def nearest(word: str, options: Iterable[str]) -> str:
    """``did_you_mean`` with the options that begin with the word, if they are few, else with the most similar one."""
    options = list(options)
    family = [option for option in options if word and option.startswith(word)]
    return did_you_mean(family if 0 < len(family) <= 8 else difflib.get_close_matches(word, options, n=1, cutoff=0.5))


def setting_names(schema: type) -> list[str]:
    """The keys of a schema that a user may set."""
    return [field.name for field in fields(schema) if field.name != "_target_"]


def shorten(text: str) -> str:
    """A text of at most 80 characters, or its beginning and end."""
    return text if len(text) <= 80 else f"{text[:40]}...{text[-40:]}"


def _check_ranges(config: Any, path: str = "") -> None:
    for field in fields(config):
        name, value, limits = f"{path}{field.name}", getattr(config, field.name), field.metadata
        if is_dataclass(value):
            _check_ranges(value, f"{name}.")
        if limits and value != value:
            raise UserError(f"{name}=nan: must be a number.")
        if "min" in limits and value < limits["min"]:
            raise UserError(f"{name}={value}: must be at least {limits['min']}.")
        if "above" in limits and value <= limits["above"]:
            raise UserError(f"{name}={value}: must be above {limits['above']}.")
        if "max" in limits and value > limits["max"]:
            raise UserError(f"{name}={value}: must be at most {limits['max']}.")


def _check_place(name: str, path: str) -> None:
    """UserError for a path that is too long or circular, or that could not be read back from a stored config."""
    check_plain(path, f"{name}={path}")
    try:
        Path(path).stat()
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise UserError(f"{name}={shorten(path)}: {error.strerror}; give another path.") from error


def _check_family(config: Any) -> None:
    model = config.model
    family = FAMILIES.get(model.family)
    if family is None or family.head != model.head:
        raise UserError(
            f"model={model.name} family={model.family} head={model.head}: choose one of "
            f"{', '.join(f'{name} ({each.head})' for name, each in FAMILIES.items())}.{nearest(model.family, FAMILIES)}"
        )
    if config.tokenizer.kind not in family.tokenizers:
        raise UserError(
            f"model={model.name} tokenizer={config.tokenizer.name}: this model reads "
            f"{' or '.join(family.tokenizers)}; use tokenizer={family.tokenizers[-1]}."
        )
    if config.dataset.answers not in family.answers:
        takes = " or ".join(f"that {ANSWERS[answers]}" for answers in family.answers)
        raise UserError(
            f"model={model.name} dataset={config.dataset.name}: its answer {ANSWERS[config.dataset.answers]}, and "
            f"this model predicts an answer {takes}; take another data set, or a language model."
        )
    heads = {"loss": config.loss.heads, "objective": [config.objective.head], "decoding": [config.decoding.head]}
    for group, fits in heads.items():
        if model.head not in fits:
            raise UserError(
                f"model={model.name} {group}={getattr(config, group).name}: this model has "
                f"{HEADS[model.head]}, and this {group} is for {' or '.join(HEADS[head] for head in fits)}; "
                f"leave {group}= out, or choose one that fits."
            )


def _check_decoding(config: Any, decoding: Any, group: str, other: str) -> None:
    chosen = f"{group}={decoding.name}"
    if decoding.head != config.model.head:
        raise UserError(
            f"model={config.model.name} {chosen}: this model has {HEADS[config.model.head]}, and this decoding is for "
            f"{HEADS.get(decoding.head, decoding.head)}; {other}."
        )
    if decoding.answers and config.dataset.answers not in decoding.answers:
        reads = " or ".join(f"that {ANSWERS[answers]}" for answers in decoding.answers)
        raise UserError(
            f"{chosen} dataset={config.dataset.name}: its answer {ANSWERS[config.dataset.answers]}, and this decoding "
            f"reads an answer {reads}; {other}."
        )
    if decoding.tokenizers and config.tokenizer.kind not in decoding.tokenizers:
        raise UserError(
            f"{chosen} tokenizer={config.tokenizer.name}: it writes numbers in tokens of their own, and this decoding "
            f"reads {' or '.join(decoding.tokenizers)}; {other}."
        )


def validate(config: Any) -> None:
    """Raise ``UserError`` at the first setting that is out of range or does not fit the others."""
    check_trust(config)
    _check_ranges(config)
    sources = {"model.path": config.model.path, "tokenizer.path": config.tokenizer.path}
    places = {name: getattr(config, name) for name in ("output_dir", "data_dir", "resume")}
    for name, path in (places | sources).items():
        _check_place(name, path)
    for name, path in sources.items():
        if path and not Path(path).is_dir() and not HUB_ID.fullmatch(path):
            raise UserError(f"{name}={path}: neither an existing folder nor a hub id of the form owner/name.")
    if config.device not in DEVICES:
        raise UserError(f"device={config.device}: choose one of {', '.join(DEVICES)}.{nearest(config.device, DEVICES)}")
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        raise UserError(f"resume={config.resume}: choose auto, never, or the folder of a checkpoint.")
    if config.base and not BASE.fullmatch(config.base):
        raise UserError(f"base={config.base}: give the id of a run in {config.output_dir} and a step, as ID@8000.")
    if wrong := [step for step in config.keep_steps if not 1 <= step <= config.trainer.max_steps]:
        raise UserError(f"keep_steps={wrong}: choose steps of 1 to trainer.max_steps={config.trainer.max_steps}.")
    if config.tracking.name == "none" and config.tracking != type(config.tracking)():
        raise UserError("tracking=none: its other settings are those of W&B; add tracking=wandb, or leave them out.")
    if config.trainer.schedule.name == "plateau" and not config.trainer.eval_steps:
        raise UserError(
            "trainer.schedule=plateau trainer.eval_steps=0: the plateau is one of the validation CE; "
            "set trainer.eval_steps, or trainer.schedule=constant."
        )
    _check_family(config)
    _check_decoding(config, config.decoding, "decoding", "use decoding=greedy or decoding=beam")
    for name, decoding in config.beside.items():
        _check_ranges(decoding, f"beside.{name}.")
        _check_decoding(config, decoding, "beside", "leave it out")
    if config.probe_steps and (config.model.head != "lm" or config.dataset.answers != "number"):
        raise UserError(
            f"probe_steps={config.probe_steps}: a probe is the relative error of generated numbers, which "
            f"model={config.model.name} dataset={config.dataset.name} do not give; leave it out."
        )
    if config.model.lora.rank and not config.model.pretrained:
        raise UserError(
            f"model.lora.rank={config.model.lora.rank} model.pretrained=false: an adapter changes weights that were "
            "learned; give them by model.path=, or leave model.lora out."
        )
    if config.model.pretrained and not (config.model.hub_id or config.model.path):
        raise UserError(
            f"model={config.model.name} model.pretrained=true: no published weights; "
            "give a folder by model.path=, or leave pretrained=false."
        )


def check_effects(config: Any, changed: Mapping[str, Any]) -> None:
    """UserError for a setting of the model that would change nothing but the run's id.

    ``changed`` are the settings that differ from the model's file, with names such as ``lora.rank``.
    """
    # Imported here: reporting a mistake must work without omegaconf.
    from ntl.config.model import NOT_IN_WEIGHTS

    model, own_tokenizer = config.model, bool(config.tokenizer.path)
    description = f"describes config/model/{model.name}.yaml; write a model file of your own instead"
    idle: dict[str, str] = dict.fromkeys(("name", "family", "head", "requires"), description)
    if not model.lora.rank:
        idle["lora"] = "has no effect with model.lora.rank=0; set the rank, or leave it out"
    if model.path or (own_tokenizer and not model.pretrained):
        idle["hub_id"] = "nothing is read from there, since model.path or tokenizer.path replaces it; leave it out"
    if own_tokenizer or model.path or model.hub_id:
        idle["tokenizer_hub_id"] = "nothing is read from there, since the tokenizer comes from elsewhere; leave it out"
    if model.pretrained:
        remedy = "loaded weights have their own; leave it out, or set model.pretrained=false to train from scratch"
        idle |= {item.name: remedy for item in fields(model) if item.name not in NOT_IN_WEIGHTS}
    else:
        idle["path"] = (
            "the weights in it are not read with model.pretrained=false; set model.pretrained=true to start from them, "
            "or tokenizer.path= to use its tokenizer alone"
        )
    for name, reason in idle.items():
        for key, value in changed.items():
            if f"{key}.".startswith(f"{name}."):
                raise UserError(f"model.{key}={value}: {reason}.")
