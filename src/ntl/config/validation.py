"""Which settings fit together, beyond their types: ranges, and a table of rules, each a condition and a line."""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from ntl.config.folders import check_plain
from ntl.config.loss import ExpectedErrorConfig, MaskConfig, MTPConfig
from ntl.config.model import HUB_ID, HFConfig, of_weights, source
from ntl.config.registry import SQUARED_ERROR
from ntl.config.settings import LIMITS, about, nearest, nested, text_of
from ntl.config.targets import check_trust
from ntl.config.trainer import DERIVED, LOSS, OF_LISTS, OF_NUMBERS, OF_TEXT, TORCH_OPTIMIZERS, WARMUP, is_decoded
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
    "sentence": "is a text with a number",
    "numbers": "is several numbers",
    "text": "is text",
    "exact": "is matched symbol by symbol",  # rt writes numbers and the spaces around them in another way
    "continuation": "continues the text of the question",  # in training from its first word, so nothing to encode
}
NUMERIC = ("number", "reasoning", "sentence")  # answers of which one number is scored
LISTS = "numbers"
PLAIN = "none"  # plain text has no questions and no answers
HEADS = {
    "lm": "a language-model head",
    "regression": "one output for a sequence",
    "masked_number": "a number head at a masked position",
}
# All legal combinations. Losses, objectives and decodings fit a family when they are for its head.
FAMILIES = {
    "t5": Family("lm", ("default", "digit"), ("number", "reasoning", "sentence", "numbers", "text", "exact")),
    "decoder": Family("lm", ("default", "digit"), (*ANSWERS, PLAIN)),
    "rt": Family("lm", ("rt",), ("number", "reasoning", "text")),
    "t5_regression": Family("regression", ("digit", "default"), ("number",)),
    "decoder_regression": Family("regression", ("default", "digit"), ("number",)),
    "xval": Family("masked_number", ("xval",), ("number",)),
}
BASE = re.compile(r"[^\s/@=]+@[0-9]+")

# The settings that the line names, whether something is wrong with them, and what, with what to do.
Rule = tuple[str, object, str]


def _value(config: Any, name: str) -> Any:
    for part in name.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return config


def _word(config: Any, name: str) -> str:
    value = _value(config, name)
    if is_dataclass(value):  # a group, or ``extra_decodings.`` and the name of a decoding
        return f"{name.partition('.')[0]}={getattr(value, 'name', '')}"
    return name if isinstance(value, dict) else f"{name}={text_of(value) if value != '' else ''}"


def _check_ranges(config: Any) -> None:
    for path, part in nested(config):
        for key, limits in about(type(part)).items():
            name, value = f"{path}{key}", getattr(part, key)
            choices = limits.get("choices", (value,))
            if value is not None and value not in choices:
                raise UserError(f"{name}={value}: choose one of {', '.join(choices)}.{nearest(str(value), choices)}")
            for limit, (_, words, holds) in LIMITS.items():
                if value is not None and limit in limits and not holds(value, limits[limit]):  # nan is within none
                    raise UserError(f"{name}={text_of(value)}: must be {words} {limits[limit]}.")


def unfit_for_chat(config: Any) -> str:
    """Why questions and answers cannot go through a chat template; empty if they can."""
    model, data = config.model, config.dataset
    if model.family != "decoder":
        return f"a chat template is for decoder-only language models, and model={model.name} is {model.family}"
    return f"dataset={data.name} has no questions" if data.answers in (PLAIN, "continuation") else ""


def _kinds(answers: Iterable[str]) -> str:
    return " or ".join(ANSWERS[each] for each in answers if each != PLAIN)


def _of_the_run(config: Any) -> Iterator[Rule]:
    for name in ("model.path", "tokenizer.path"):
        path = _value(config, name)
        yield name, Path(path).is_file(), "a file; give its folder (a GGUF file: model=hf and model.file, too)."
        is_known = not path or Path(path).is_dir() or HUB_ID.fullmatch(path)
        yield name, not is_known, "neither an existing folder nor a hub id of the form owner/name."
    is_known = config.resume in ("auto", "never") or Path(config.resume).is_dir()
    yield "resume", not is_known, "choose auto, never, or the folder of a checkpoint."
    is_one = not config.base or BASE.fullmatch(config.base)
    yield "base", not is_one, f"give the id of a run in {config.output_dir} and a step, as ID@8000."
    tracking = config.tracking
    is_set = tracking.name == "none" and replace(tracking, name="") != type(tracking)(name="")
    yield "tracking", is_set, "its other settings are those of W&B; add tracking=wandb, or leave them out."


def _of_training(config: Any) -> Iterator[Rule]:
    trainer, answers = config.trainer, config.dataset.answers
    trains, evaluates = trainer.max_steps or trainer.epochs, trainer.eval_steps or trainer.eval_epochs
    is_bf16 = isinstance(trainer.bf16, bool) or trainer.bf16 == "auto"
    yield "trainer.bf16", not is_bf16, "choose true, false, or auto: true where the device has it."
    if trainer.parallel == "fsdp":
        line = f"sharded weights need one of {', '.join(TORCH_OPTIMIZERS)}; or take trainer=ddp."
        yield "trainer.optim trainer.parallel", trainer.optim not in TORCH_OPTIMIZERS, line
        yield "trainer.max_steps trainer.parallel", not trains, "nothing is trained; use trainer=ddp."
        line = "sharded weights are not decoded; set trainer.eval_decoded=false trainer.best=loss, or trainer=ddp."
        yield "trainer.parallel trainer.eval_decoded trainer.best", is_decoded(trainer), line
        line = "adapters of sharded weights are not saved; take trainer=ddp."
        yield "model.lora.rank trainer.parallel", config.model.lora.rank, line
        line = "all processes need equally many passes; set trainer.max_tokens_per_batch=0, or take trainer=ddp."
        yield "trainer.parallel trainer.max_tokens_per_batch", trainer.max_tokens_per_batch, line
    is_blind = trains and not evaluates
    line = "the plateau is one of the validation CE; set trainer.eval_steps, or trainer.schedule=constant."
    yield "trainer.schedule trainer.eval_steps", is_blind and trainer.schedule == "plateau", line
    line = "plain text has no answers to decode; leave it out."
    yield "trainer.eval_decoded dataset", answers == PLAIN and trainer.eval_decoded, line
    by_kind = {PLAIN: (), LISTS: OF_LISTS, **dict.fromkeys(NUMERIC, OF_NUMBERS)}
    fitting = (LOSS, *by_kind.get(answers, OF_TEXT))
    line = f"no metric of these answers; choose one of {', '.join(fitting)}.{nearest(trainer.best, fitting)}"
    yield "trainer.best dataset", trainer.best and trainer.best not in fitting, line
    line = "only evaluations say which checkpoint is the best; set trainer.eval_epochs=1, or leave trainer.best out."
    yield "trainer.best trainer.eval_steps", trainer.best and is_blind, line
    line = "it watches a metric; set trainer.best=loss, or another validation metric."
    yield "trainer.early_stopping trainer.best", trainer.early_stopping and not trainer.best, line


def _of_the_model(config: Any) -> Iterator[Rule]:
    model, data, family = config.model, config.dataset, FAMILIES.get(config.model.family)
    loss, objective, has_tokens = config.loss, config.objective, config.model.head == "lm"
    known = ", ".join(f"{name} ({each.head})" for name, each in FAMILIES.items())
    line = f"choose one of {known}.{nearest(model.family, FAMILIES)}"
    yield "model model.family model.head", family is None or family.head != model.head, line
    assert family is not None
    line = f"this model reads {' or '.join(family.tokenizers)}; use tokenizer={family.tokenizers[-1]}."
    yield "model tokenizer", config.tokenizer.kind not in family.tokenizers, line
    line = "plain text is learned from left to right, token by token; take a decoder, such as model=gpt2_tiny."
    yield "model dataset", data.answers == PLAIN and PLAIN not in family.answers, line
    why = unfit_for_chat(config) if data.format == "chat" else ""
    yield "dataset.format", why, f"{why}; leave dataset.format out."
    line = f"its answer {ANSWERS.get(data.answers)}, and that of this model {_kinds(family.answers)}; take another."
    yield "model dataset", data.answers not in family.answers, line
    trained = HEADS.get(objective.head, objective.head)
    line = f"this model has {HEADS[model.head]}, and this objective is for {trained}; leave objective= out."
    yield "model objective", model.head != objective.head, line
    line = "it is the loss of a number head, and this model predicts tokens; take loss=ntl_mse, or leave loss= out."
    yield "model loss", has_tokens and loss.kind == SQUARED_ERROR, line
    line = f"this model has {HEADS[model.head]}, whose loss is loss=squared_error; leave loss= out."
    yield "model loss", not has_tokens and loss.kind != SQUARED_ERROR, line
    line = "a probe is the relative error of generated numbers, which this model or data set does not give."
    has_numbers = has_tokens and data.answers == "number"
    yield "probe_steps", config.probe_steps and not has_numbers, line
    for name in ("weight", "exclude_numbers"):
        is_set = getattr(data, name, "")
        line = "weights are of the tokens of an answer, and this model predicts one value; leave it out."
        yield f"dataset.{name} model", is_set and not has_tokens, line
        line = "a copy of an answer has no weights; leave one of the two out."
        yield f"dataset.{name} objective.mask.copy", is_set and objective.mask.copy != "none", line
    line = "its numbers are tokens of their places, which no pattern matches; leave it out."
    yield "dataset.exclude_numbers tokenizer", data.exclude_numbers and config.tokenizer.kind == "rt", line
    line = "it finds numbers by itself, and leaves none out; leave dataset.exclude_numbers out, or take another loss."
    yield "dataset.exclude_numbers loss", data.exclude_numbers and any(each.one_weight for each in loss.kinds), line
    line = "it weighs digits by their places, so each must be a token of its own; use tokenizer=digit."
    is_given = config.tokenizer.kind == "default" and model.pretrained  # then its number tokens are looked at
    needs_digits = any(each.digits for each in loss.kinds)
    yield "loss tokenizer", needs_digits and config.tokenizer.kind != "digit" and not is_given, line
    line = "it compares with the whole output layer, which is in parts; take trainer=ddp."
    reads_head = any("embedding" in each.options for each in loss.kinds)
    yield "loss trainer.parallel", reads_head and config.trainer.parallel == "fsdp", line
    if not model.pretrained:
        line = "an adapter changes weights that were learned; give them by model.path=, or leave model.lora out."
        yield "model.lora.rank model.pretrained", model.lora.rank, line
        line = "random weights have none of their own; give a rate, or leave it out."
        yield "model.dropout", model.dropout is None, line
    line = "no published weights; take model=hf model.path=FOLDER, or leave pretrained=false."
    yield "model model.pretrained", model.pretrained and not source(model), line


def _of_the_objective(config: Any) -> Iterator[Rule]:
    objective, family, mask = config.objective, config.model.family, config.objective.mask
    line = f"this objective is for models of the family {' or '.join(objective.families)}; take objective=next_token."
    yield "model objective", objective.families and family not in objective.families, line
    lora, is_token = config.model.lora, mask.fraction and mask.variant != "random"
    line = "a new mask token would stay untrained; set objective.mask.variant=random, or model.lora.full=[EMBEDDING]."
    yield "model.lora.rank objective.mask.fraction", lora.rank and is_token and not lora.full, line
    for field in fields(mask):
        line = "has no effect with objective.mask.fraction=0; set the fraction, or leave it out."
        is_idle = not mask.fraction and getattr(mask, field.name) != field.default
        yield f"objective.mask.{field.name}", is_idle, line
    line = "only the input of a decoder-only language model is masked; take one, such as model=gpt2_tiny."
    yield "model objective.mask.fraction", mask.fraction and family != "decoder", line
    line = "the answer of a copy is masked, and plain text has no answers; leave objective.mask.copy out."
    yield "objective.mask.copy dataset", mask.copy != "none" and config.dataset.answers == PLAIN, line
    line = "has no effect with objective.mask.copy=none; set objective.mask.copy, or leave it out."
    is_idle = mask.copy == "none" and mask.min_answer != MaskConfig.min_answer
    yield "objective.mask.min_answer", is_idle, line
    is_tree = isinstance(objective, ExpectedErrorConfig)
    line = "the one is computed by the other; give loss=expected_error alone, or neither."
    yield "loss objective", (config.loss.name == "expected_error") != is_tree, line
    if is_tree:
        data, line = config.dataset, "the expected error is that of a whole answer; leave it out."
        yield "objective dataset", data.answers != "number", "its answers are not one number; take another."
        yield "objective dataset.weight", getattr(data, "weight", ""), line
        for name in ("dataset.exclude_numbers", "objective.mask.fraction", "trainer.gradient_checkpointing"):
            yield f"objective {name}", _value(config, name), line
        yield "objective dataset.format", data.format == "chat", line
        yield "objective trainer.parallel", config.trainer.parallel == "fsdp", "take trainer=ddp."
    if isinstance(objective, MTPConfig):
        weights, has_variants = objective.head_weights, objective.kind == "parallel"
        line = "give one factor for each head, or none."
        yield "objective.head_weights objective.heads", weights and len(weights) != objective.heads, line
        is_wrong = any(not 0 <= weight < math.inf for weight in weights) or (weights and not any(weights))
        yield "objective.head_weights", is_wrong, "each must be finite and at least 0, and one above 0."
        line = "a variant is one of objective.kind=parallel; leave one of the two out."
        yield "objective.kind objective.variant", not has_variants and objective.variant != "independent", line
        line = "has no effect, since this kind keeps all blocks; leave it out."
        is_idle = objective.keep_depth is not None and (not has_variants or objective.variant == "linear")
        yield "objective.keep_depth", is_idle, line


def _of_a_decoding(config: Any, name: str) -> Iterator[Rule]:
    """``name`` is ``decoding``, or ``extra_decodings.`` and the name of a further one."""
    decoding, model, data, objective = _value(config, name), config.model, config.dataset, config.objective
    other = "use decoding=greedy or decoding=beam" if name == "decoding" else "leave it out"
    heads = 1 if getattr(objective, "kind", "") == "shared" else getattr(objective, "heads", 1)
    line = f"the model has no heads to draft with; {other}, or train it with objective=mtp."
    yield f"{name} objective", decoding.drafts and heads < 2, line
    if decoding.drafts:
        yield f"{name}.heads objective.heads", decoding.heads > heads, "choose at most those of the model."
    read = HEADS.get(decoding.head, decoding.head)
    line = f"this model has {HEADS[model.head]}, and this decoding is for {read}; leave it out."
    yield f"model {name}", decoding.head != model.head, line
    line = "plain text has no answers to decode; decoding=likelihood scores it, and nothing else."
    yield f"{name} dataset", (data.answers == PLAIN) != (PLAIN in decoding.answers), line
    line = "an answer of one number alone has an interval; leave it out."
    for key, chosen in (("rows", decoding.interval_rows), ("scale", decoding.interval_scale != "linear")):
        yield f"{name}.interval_{key} dataset", chosen and data.answers not in NUMERIC, line
    line = f"its answer {ANSWERS.get(data.answers)}, and that of this decoding {_kinds(decoding.answers)}; {other}."
    yield f"{name} dataset", data.answers not in decoding.answers, line
    line = f"its numbers are tokens of their own, and this decoding reads {' or '.join(decoding.tokenizers)}; {other}."
    yield f"{name} tokenizer", decoding.tokenizers and config.tokenizer.kind not in decoding.tokenizers, line
    line = "there is nothing to choose from; train with extra_decodings=all, or give one decoding."
    yield (
        f"{name} extra_decodings",
        decoding.name == "auto" and (name != "decoding" or not config.extra_decodings),
        line,
    )
    own = config.tokenizer.digits_only
    is_other = getattr(decoding, "digits_only", own) != own
    yield f"{name}.digits_only tokenizer.digits_only", is_other, "it is the tokenizer's own setting; set that instead."


def check_keep_steps(config: Any) -> None:
    """UserError for a step to keep that the run does not have."""
    last = config.trainer.max_steps
    if not all(1 <= step <= last for step in config.keep_steps):
        raise UserError(f"keep_steps={text_of(config.keep_steps)}: choose steps of 1 to trainer.max_steps={last}.")


def validate(config: Any, typed: Collection[str] | None = None) -> None:
    """Raise ``UserError`` at the first setting that is out of range or does not fit the others.

    ``typed`` are the keys on a command line, such as ``model.lora.rank``: none of them may be without effect, and what
    nobody typed has to fit them.
    """
    check_trust(config)
    _check_ranges(config)
    config.loss.check()
    for name in ("model.path", "tokenizer.path", "output_dir", "data_dir", "resume"):
        path = _value(config, name)
        check_plain(path, f"{name}={path}")
    if not config.trainer.epochs:
        check_keep_steps(config)
    rules = chain(
        *(part(config) for part in (_of_the_run, _of_training, _of_the_model, _of_the_objective)),
        _of_a_decoding(config, "decoding"),
        *(_of_a_decoding(config, f"extra_decodings.{name}") for name in config.extra_decodings),
        () if typed is None else _of_what_was_typed(config, typed),
    )
    for names, is_wrong, line in rules:
        if is_wrong:  # model=gpt2_tiny trainer.lr=2: ...
            raise UserError(f"{' '.join(_word(config, name) for name in names.split())}: {line}")


def _of_what_was_typed(config: Any, typed: Collection[str]) -> Iterator[Rule]:
    model, trainer = config.model, config.trainer
    is_other = not isinstance(model, HFConfig) and (not model.hub_id or ("model.hub_id" in typed and not model.path))
    line = f"this model has random weights; use model=hf model.path={source(model)}, which takes these as they are."
    names = f"model model.{'path' if model.path else 'hub_id'}"
    yield names, is_other and source(model) and model.family in ("decoder", "t5"), line
    line = "describes the model's file; write one of your own."
    idle: dict[str, str] = dict.fromkeys(("name", "family", "head", "requires", "hub_id"), line)
    if not model.lora.rank:
        idle["lora"] = "has no effect with model.lora.rank=0; set the rank, or leave it out."
    if config.tokenizer.path or model.path or model.hub_id:
        idle["tokenizer_hub_id"] = "nothing is read from there, since the tokenizer comes from elsewhere; leave it out."
    if model.pretrained:
        line = "loaded weights have their own; leave it out, or set model.pretrained=false to train from scratch."
        idle |= dict.fromkeys(of_weights(model), line)
    elif model.path:
        idle["path"] = "not read with model.pretrained=false; set that to true, or give tokenizer.path= instead."
    for name, line in idle.items():
        for key in typed:
            yield key, f"{key}.".startswith(f"model.{name}."), line
    is_idle = "loss.weight" in typed and isinstance(config.objective, ExpectedErrorConfig)
    yield "loss loss.weight", is_idle, "the factor of the expected error is objective.weight; set that instead."
    for key in WARMUP:
        is_idle = f"trainer.{key}" in typed and getattr(trainer, key) and trainer.schedule == "plateau"
        yield f"trainer.{key} trainer.schedule", is_idle, "it has no warm-up; leave one of the two out."
    for length, steps in DERIVED.items():
        names = f"trainer.{length} trainer.{steps}"
        line = f"trainer.{steps} follows from trainer.{length}; leave one of them out."
        yield names, getattr(trainer, length) and {*names.split()} <= {*typed}, line
    if not {"scale", "experiment"} & {*typed}:
        line = "scale=tiny is meant for random weights; add scale=finetune, or another."
        yield "model model.pretrained", model.pretrained and config.scale.name == "tiny", line
        line = "scale=finetune is meant for learned weights; add scale=tiny, or scale=paper, the paper's own steps."
        yield "model model.pretrained", not model.pretrained and config.scale.name == "finetune", line
