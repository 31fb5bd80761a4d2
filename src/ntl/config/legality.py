"""Checks of a config beyond its types: ranges, and which parts fit together."""

import errno
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import ge, gt, le
from pathlib import Path
from typing import Any

from ntl.config.loss import MaskConfig, MTPConfig
from ntl.config.settings import COMPUTED, about
from ntl.config.suggestions import nearest, shorten
from ntl.config.targets import check_trust
from ntl.config.trainer import LOSS, OF_NUMBERS, OF_TEXT, OPTIMIZERS, TORCH_OPTIMIZERS, is_decoded
from ntl.config.yaml_files import check_plain
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
NUMERIC = ("number", "reasoning")  # answers that are, or end in, one number
PLAIN = "none"  # plain text has no questions and no answers
WITHOUT_WANDB = ("none", "tensorboard")
HEADS = {
    "lm": "a language-model head",
    "regression": "one output for a sequence",
    "masked_number": "a number head at a masked position",
}
# All legal combinations. Losses, objectives and decodings fit a family when they are for its head.
FAMILIES = {
    "t5": Family("lm", ("default", "digit"), ("number", "reasoning", "text", "exact")),
    "decoder": Family("lm", ("default", "digit"), (*ANSWERS, PLAIN)),
    "rt": Family("lm", ("rt",), ("number", "reasoning", "text")),
    "t5_regression": Family("regression", ("digit", "default"), ("number",)),
    "decoder_regression": Family("regression", ("default", "digit"), ("number",)),
    "xval": Family("masked_number", ("xval",), ("number",)),
}
LIMITS: Any = (("min", "at least", ge), ("above", "above", gt), ("max", "at most", le))
BASE = re.compile(r"[^\s/@=]+@[0-9]+")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def setting_names(schema: type) -> list[str]:
    """The keys of a schema that a user may set."""
    return [field.name for field in fields(schema) if field.name not in COMPUTED]


def _check_ranges(config: Any, path: str = "") -> None:
    for key, limits in about(type(config)).items():
        name, value = f"{path}{key}", getattr(config, key)
        if is_dataclass(value):
            _check_ranges(value, f"{name}.")
        if value is None:
            continue
        choices = limits.get("choices", (value,))
        if value not in choices:
            raise UserError(f"{name}={value}: choose one of {', '.join(choices)}.{nearest(str(value), choices)}")
        if value != value:
            raise UserError(f"{name}=nan: must be a number.")
        for limit, words, holds in LIMITS:
            if limit in limits and not holds(value, limits[limit]):
                raise UserError(f"{name}={value}: must be {words} {limits[limit]}.")


def check_place(name: str, path: str) -> None:
    """UserError for a path that is too long or circular, or that could not be read back from a stored config."""
    check_plain(path, f"{name}={path}")
    try:
        Path(path).stat()
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise UserError(f"{name}={shorten(path)}: {error.strerror}; give another path.") from error


def unfit_for_chat(config: Any) -> str:
    """Why questions and answers cannot go through a chat template; empty if they can."""
    model, data = config.model, config.dataset
    if model.family != "decoder":
        return f"a chat template is for decoder-only language models, and model={model.name} is {model.family}"
    return f"dataset={data.name} has no questions" if data.answers in (PLAIN, "continuation") else ""


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
    if config.dataset.answers == PLAIN and PLAIN not in family.answers:
        raise UserError(
            f"model={model.name} dataset={config.dataset.name}: plain text is learned from left to right, token by "
            "token, by a decoder-only language model; take one, such as model=gpt2_tiny."
        )
    if config.dataset.format == "chat" and (why := unfit_for_chat(config)):
        raise UserError(f"dataset.format=chat: {why}; leave dataset.format out.")
    if config.dataset.answers not in family.answers:
        takes = " or ".join(f"that {ANSWERS[answers]}" for answers in family.answers)
        raise UserError(
            f"model={model.name} dataset={config.dataset.name}: its answer {ANSWERS[config.dataset.answers]}, and "
            f"this model predicts an answer {takes}; take another data set, or a language model."
        )
    for group, fits in {"loss": config.loss.heads, "objective": [config.objective.head]}.items():
        if model.head not in fits:
            known = " or ".join(HEADS.get(head, str(head)) for head in fits)
            raise UserError(
                f"model={model.name} {group}={getattr(config, group).name}: this model has {HEADS[model.head]}, and "
                f"this {group} is for {known}; leave {group}= out, or choose one that fits."
            )


def _check_mask(config: Any, mask: MaskConfig) -> None:
    if not mask.fraction:
        for field in fields(mask):
            if (value := getattr(mask, field.name)) != field.default:
                raise UserError(
                    f"objective.mask.{field.name}={value}: has no effect with objective.mask.fraction=0; set the "
                    "fraction, or leave it out."
                )
        return
    chosen, model, data = f"objective.mask.fraction={mask.fraction}", config.model, config.dataset
    if model.family != "decoder":
        raise UserError(
            f"model={model.name} {chosen}: only the input of a decoder-only language model is masked, and this one is "
            f"of the family {model.family}; leave objective.mask out, or take a decoder, such as model=gpt2_tiny."
        )
    if mask.copy != "none" and data.answers == PLAIN:
        raise UserError(
            f"objective.mask.copy={mask.copy} dataset={data.name}: the answer of a copy is masked, and plain text has "
            "no answers; leave objective.mask.copy out."
        )
    if mask.copy == "none" and mask.min_answer != MaskConfig.min_answer:
        raise UserError(
            f"objective.mask.min_answer={mask.min_answer}: has no effect with objective.mask.copy=none; set "
            "objective.mask.copy, or leave it out."
        )


def _check_objective(config: Any) -> None:
    objective, model = config.objective, config.model
    if objective.families and model.family not in objective.families:
        raise UserError(
            f"model={model.name} objective={objective.name}: this objective is for models of the family "
            f"{' or '.join(objective.families)}, and this one is of {model.family}; take objective=next_token."
        )
    _check_mask(config, objective.mask)
    if not isinstance(objective, MTPConfig):
        return
    if objective.head_weights and len(objective.head_weights) != objective.heads:
        raise UserError(
            f"objective.head_weights={list(objective.head_weights)} objective.heads={objective.heads}: give one "
            "factor for each head, or none."
        )
    if not all(0 <= weight < math.inf for weight in objective.head_weights):
        raise UserError(f"objective.head_weights={list(objective.head_weights)}: each must be finite and at least 0.")
    if objective.kind == "sequential" and objective.variant != "independent":
        raise UserError(
            f"objective.kind=sequential objective.variant={objective.variant}: a variant is one of objective.kind="
            "parallel; leave one of the two out."
        )
    if objective.keep_depth is not None and (objective.kind == "sequential" or objective.variant == "linear"):
        raise UserError(
            f"objective.keep_depth={str(objective.keep_depth).lower()}: has no effect, since heads of this kind are "
            "always added to all blocks; leave it out."
        )


def _check_heads(config: Any, decoding: Any, chosen: str, other: str) -> None:
    """Heads to draft with are there, or are not needed."""
    objective, heads = config.objective, getattr(config.objective, "heads", 1)
    if decoding.drafts:
        if heads < 2:
            raise UserError(
                f"{chosen} objective={objective.name}: the model has no heads to draft with; {other}, or train it with "
                "objective=mtp and objective.heads of at least 2."
            )
        if decoding.heads > heads:
            raise UserError(
                f"decoding.heads={decoding.heads} objective.heads={heads}: choose at most those of the model."
            )


def _check_decoding(config: Any, decoding: Any, group: str, other: str) -> None:
    chosen = f"{group}={decoding.name}"
    _check_heads(config, decoding, chosen, other)
    if decoding.head != config.model.head:
        raise UserError(
            f"model={config.model.name} {chosen}: this model has {HEADS[config.model.head]}, and this decoding is for "
            f"{HEADS.get(decoding.head, decoding.head)}; {other}."
        )
    if (config.dataset.answers == PLAIN) is not (PLAIN in decoding.answers):
        raise UserError(
            f"{chosen} dataset={config.dataset.name}: plain text has no answers to decode, and decoding=likelihood, "
            f"which scores it, decodes none; leave {group}= out."
        )
    if decoding.interval_rows and config.dataset.answers not in NUMERIC:
        raise UserError(
            f"{group}.interval_rows={decoding.interval_rows} dataset={config.dataset.name}: only numbers have "
            "intervals; leave it out."
        )
    if config.dataset.answers not in decoding.answers:
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


def check_keep_steps(config: Any) -> None:
    """UserError for a step to keep that the run does not have."""
    if wrong := [step for step in config.keep_steps if not 1 <= step <= config.trainer.max_steps]:
        raise UserError(f"keep_steps={wrong}: choose steps of 1 to trainer.max_steps={config.trainer.max_steps}.")


def _check_trainer(config: Any) -> None:
    trainer = config.trainer
    is_sharded, evaluates = trainer.parallel.name == "fsdp", trainer.eval_steps or trainer.eval_epochs
    trains = trainer.max_steps or trainer.epochs
    if not isinstance(trainer.bf16, bool) and trainer.bf16 != "auto":
        raise UserError(f"trainer.bf16={trainer.bf16}: choose true, false, or auto: true where the device has it.")
    if trainer.optim not in OPTIMIZERS:
        raise UserError(f"trainer.optim={trainer.optim}: choose one of {', '.join(OPTIMIZERS)}.")
    if is_sharded and trainer.optim not in TORCH_OPTIMIZERS:
        raise UserError(
            f"trainer.optim={trainer.optim} trainer.parallel=fsdp: sharded weights need an optimizer of torch; choose "
            f"one of {', '.join(TORCH_OPTIMIZERS)}, or trainer=ddp."
        )
    if is_sharded and not trains:
        raise UserError("trainer.max_steps=0 trainer.parallel=fsdp: nothing is trained; use trainer=ddp.")
    if is_sharded and is_decoded(trainer):
        raise UserError(
            f"trainer.parallel=fsdp trainer.eval_decoded={trainer.eval_decoded} trainer.best={trainer.best}: sharded "
            "weights would be gathered at every generated token; set trainer.eval_decoded=false trainer.best=loss, or "
            "trainer=ddp."
        )
    if is_sharded and trainer.max_tokens_per_batch:
        raise UserError(
            f"trainer.parallel=fsdp trainer.max_tokens_per_batch={trainer.max_tokens_per_batch}: sharded weights need "
            "equally many forward passes in each process; set trainer.max_tokens_per_batch=0, or take trainer=ddp."
        )
    if trainer.schedule.name == "plateau" and trains and not evaluates:
        raise UserError(
            "trainer.schedule=plateau trainer.eval_steps=0: the plateau is one of the validation CE; "
            "set trainer.eval_steps, or trainer.schedule=constant."
        )
    answers = config.dataset.answers
    fitting = (LOSS, *(() if answers == PLAIN else OF_NUMBERS if answers in NUMERIC else OF_TEXT))
    if answers == PLAIN and trainer.eval_decoded:
        raise UserError(
            f"trainer.eval_decoded=true dataset={config.dataset.name}: plain text has no answers to decode; leave it "
            "out."
        )
    if trainer.best and trainer.best not in fitting:
        raise UserError(
            f"trainer.best={trainer.best} dataset={config.dataset.name}: no validation metric of these answers; choose "
            f"one of {', '.join(fitting)}.{nearest(trainer.best, fitting)}"
        )
    if trainer.best and trains and not evaluates:
        raise UserError(
            f"trainer.best={trainer.best} trainer.eval_steps=0: only evaluations say which checkpoint is the best; set "
            "trainer.eval_epochs=1 or trainer.eval_steps, or leave trainer.best out."
        )
    if trainer.early_stopping and not trainer.best:
        raise UserError(
            f"trainer.early_stopping={trainer.early_stopping} trainer.best=: it watches a metric; "
            "set trainer.best=loss, or another validation metric."
        )


def validate(config: Any) -> None:
    """Raise ``UserError`` at the first setting that is out of range or does not fit the others."""
    check_trust(config)
    _check_ranges(config)
    sources = {"model.path": config.model.path, "tokenizer.path": config.tokenizer.path}
    places = {name: getattr(config, name) for name in ("output_dir", "data_dir", "resume")}
    for name, path in (places | sources).items():
        check_place(name, path)
    for name, path in sources.items():
        if path and Path(path).is_file():
            raise UserError(f"{name}={path}: a file; give its folder (a GGUF file: model=hf and model.file, too).")
        if path and not Path(path).is_dir() and not HUB_ID.fullmatch(path):
            raise UserError(f"{name}={path}: neither an existing folder nor a hub id of the form owner/name.")
    if config.resume not in ("auto", "never") and not Path(config.resume).is_dir():
        raise UserError(f"resume={config.resume}: choose auto, never, or the folder of a checkpoint.")
    if config.base and not BASE.fullmatch(config.base):
        raise UserError(f"base={config.base}: give the id of a run in {config.output_dir} and a step, as ID@8000.")
    if not config.trainer.epochs:
        check_keep_steps(config)
    tracking = config.tracking
    if tracking.name in WITHOUT_WANDB and replace(tracking, name="", _target_="") != type(tracking)("", ""):
        raise UserError(
            f"tracking={tracking.name}: its other settings are those of W&B; add tracking=wandb, or leave them out."
        )
    _check_trainer(config)
    _check_family(config)
    _check_objective(config)
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
    if config.model.dropout is None and not config.model.pretrained:
        raise UserError("model.dropout=null: random weights have none of their own; give a rate, or leave it out.")
    if config.model.pretrained and not (config.model.hub_id or config.model.path):
        raise UserError(
            f"model={config.model.name} model.pretrained=true: no published weights; "
            "take model=hf model.path=FOLDER, or leave pretrained=false."
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
