"""Schemas of the loss, a term on all labelled tokens plus a weighted one on number tokens, and of the objective."""

import ast
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ntl.config import folders
from ntl.config.settings import MISSING, Rule, Schema, nearest, setting  # as ntl.losses needs: without omegaconf
from ntl.config.validation import HEADS, PLAIN, value_of
from ntl.system.errors import UserError

# How both terms are computed, equal up to rounding: one after the other from all logits, both in one pass over them,
# from hidden states without all logits, in one pass by kernels of a GPU, or as benchmarks showed to be fastest.
IMPLEMENTATIONS = ("auto", "reference", "fused", "linear", "triton")
# The loss of a number head, which is none of tokens and so not registered.
SQUARED_ERROR = "squared_error"


def checked_implementation(name: str) -> str:
    """ValueError for a name that is none of them."""
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"implementation must be {', '.join(map(repr, IMPLEMENTATIONS))}, not {name!r}")
    return name


class Kind(NamedTuple):
    """A registered loss: its function, the options of it, and those facts of its registration that rules read."""

    function: str
    options: dict[str, str]  # the type of each, as written
    is_base: bool = False
    one_weight: bool = False
    digits: bool = False


def registered() -> dict[str, Kind]:
    """All losses that a line ``register("NAME", FUNCTION, ...)`` of a module of ``ntl.losses`` registers, by name.

    The modules are read and not imported, so that composing a config loads no torch.
    """
    return _registered(tuple(import_module("ntl.losses").__path__))


@cache
def _registered(places: tuple[str, ...]) -> dict[str, Kind]:
    kinds = {}
    for path in sorted(path for place in places for path in Path(place).glob("*.py")):
        lines = ast.parse(path.read_text(encoding="utf-8")).body
        defined = {line.name: line.args.kwonlyargs for line in lines if isinstance(line, ast.FunctionDef)}
        calls = [line.value for line in lines if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)]
        for call in (call for call in calls if ast.unparse(call.func) == "register"):
            name, function = ast.literal_eval(call.args[0]), ast.unparse(call.args[1])
            options = {arg.arg: ast.unparse(arg.annotation or ast.Name("Any")) for arg in defined.get(function, ())}
            options = {option: of for option, of in options.items() if option not in ("ignore_index", "reduction")}
            facts = {str(fact.arg): ast.literal_eval(fact.value) for fact in call.keywords if fact.arg in Kind._fields}
            kinds[name] = Kind(function, options, **facts)
    return kinds


def _names() -> dict[str, str]:
    """The kind of each name that stands for one: its own, or the name of its function."""
    return {word: name for name, kind in registered().items() for word in (kind.function, name)}


def checked_kind(kind: str) -> str:
    """The registered names of kinds joined by "+", which their functions' names stand for, too. UserError: unknown."""
    names = {kind: kind} if kind == SQUARED_ERROR else _names()
    for word in kind.split("+"):
        if word not in names:
            line = f"choose one of {', '.join(registered())}, or {SQUARED_ERROR} for a number head"
            raise UserError(f"loss.kind={kind}: {word!r} is none; {line}.{nearest(word, [*names, SQUARED_ERROR])}")
    return "+".join(names[word] for word in kind.split("+"))


def loss_choice(word: str) -> str:
    """The choice of ``loss=`` that has the kind of this name, or of the function of this name; else the word itself.

    A file of an own folder has no say where this package has one of the kind.
    """
    files = [[*(folder / "loss").glob("*.yaml")] for folder in (folders.CONFIG_DIR, *folders.own_folders)]
    if word in [path.stem for path in chain(*files)] or word not in _names():
        return word
    line = re.compile(rf"^kind: {_names()[word]}$", re.MULTILINE)
    found = ([path.stem for path in paths if line.search(path.read_text(encoding="utf-8"))] for paths in files)
    # The paper's losses are named ntl_KIND; others of the same kind are variants.
    return next(
        (min(stems, key=lambda stem: (stem != f"ntl_{_names()[word]}", stem)) for stems in found if stems), word
    )


@dataclass
class LossConfig(Schema, schema="loss/base"):
    """total = CE + weight x NTL (paper, Eq. 3: CE + λ NTL), or with another base in place of CE."""

    name: str = setting(MISSING, "The choice of the group, part of the run's name.")
    kind: str = setting(MISSING, "A registered loss, or several joined by +; for a number head, `squared_error`.")
    weight: float = setting(0.3, "The factor λ of the number loss.", origin="paper", min=0)
    squash: float | None = setting(
        None, "The cost of the farthest number token where the nearest costs 1; null: the distance of values.", above=1
    )
    options: dict[str, Any] = setting(dict, "The options of the kind, as `++loss.options.delta=2`.")
    implementation: str = setting(
        "auto",
        "How both terms are computed, equal up to rounding: `reference` from all logits, `fused` in one pass over "
        "them, `linear` from hidden states in chunks, `triton` with GPU kernels; `auto` takes the fastest.",
        choices=IMPLEMENTATIONS,
    )

    @property
    def kinds(self) -> list[Kind]:
        """What is registered of its kinds; nothing of the loss of a number head."""
        return [] if self.kind == SQUARED_ERROR else [registered()[name] for name in self.kind.split("+")]

    @property
    def has_number(self) -> bool:
        """Whether there is a number loss, which the weight multiplies."""
        return self.kind == SQUARED_ERROR or not all(kind.is_base for kind in self.kinds)

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        checked_kind(self.kind)
        kinds, tokenizer = self.kinds, config.tokenizer.kind
        bases = [kind for kind in kinds if kind.is_base]
        if len(bases) > 1:
            yield ".kind", "more than one is a base; leave out all but one."
        implied = [registered()["ce"]] if kinds and not bases else []
        allowed = {name: of for kind in (*implied, *kinds) for name, of in kind.options.items()}
        for name, value in self.options.items():
            if name not in allowed:
                line = f"loss.kind={self.kind} takes {', '.join(allowed) or 'no options'}"
                raise UserError(f"loss.options.{name}: no such option; {line}.{nearest(name, allowed)}")
            is_number = type(value) in (int, float) or (value is None and "None" in allowed[name])
            if allowed[name].startswith(("float", "int")) and not is_number:
                raise UserError(f"loss.options.{name}={value}: must be a number.")
        if self.squash is not None and "cost" not in allowed:
            yield ".squash", f"loss.kind={self.kind} has no costs; leave loss.squash out."
        if (config.model.head == "lm") == (self.kind == SQUARED_ERROR):
            yield "model .", "loss=squared_error is for a number head, and any other for tokens; leave loss= out."
        if config.dataset.exclude_numbers and any(kind.one_weight for kind in kinds):
            yield "dataset.exclude_numbers .", "this loss leaves no number out; take another, or no such pattern."
        is_given = tokenizer == "default" and config.model.pretrained  # then its number tokens are looked at
        if any(kind.digits for kind in kinds) and tokenizer != "digit" and not is_given:
            yield ". tokenizer", "it weighs digits by place, so each must be a token; use tokenizer=digit."
        if "embedding" in allowed and config.trainer.parallel == "fsdp":
            yield ". trainer.parallel", "it needs the whole output layer, which is in parts; take trainer=ddp."


@dataclass
class MaskConfig(Schema):
    """Mask-enhanced autoregressive prediction (MEAP; Zhuang et al., 2025): some input tokens are masked in training."""

    fraction: float = setting(0.0, "Share of masked input tokens; published: 0.15, in fine-tuning 0.1.", min=0, max=1)
    variant: str = setting(
        "paper",
        "`paper`: positions of its own for each row; `code`: by the rule of the released code, the same for all rows "
        "of a step; `random`: as `paper`, with random tokens in place of the mask, as a control.",
        choices=("paper", "code", "random"),
        needs="fraction",
    )
    numbers: str = setting(
        "auto",
        "`forbid`: no numbers; `only`: only numbers; `auto`: `forbid` where answers are computed from numbers.",
        choices=("auto", "allow", "forbid", "only"),
        needs="fraction",
    )
    copy: str = setting(
        "none",
        "`none`: mask the example itself. In fine-tuning, mask the answer of a copy: `concatenate` puts it behind the "
        "example, as in the paper; `separate` makes it a row of its own, as in the released code.",
        choices=("none", "concatenate", "separate"),
        needs="fraction",
    )
    min_answer: int = setting(
        50, "Only longer answers have a `copy`.", "tokens", origin="published", min=0, needs="copy"
    )

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        lora = config.model.lora
        if self.fraction and self.variant != "random" and lora.rank and not lora.full:
            yield "model.lora.rank .fraction", "adapters train no new mask token; set objective.mask.variant=random."
        if self.fraction and config.model.family != "decoder":
            yield "model .fraction", "only the input of a decoder is masked; take one, such as model=gpt2_tiny."
        if self.copy != "none" and config.dataset.answers == PLAIN:
            yield ".copy dataset", "the answer of a copy is masked, and plain text has none; leave it out."


@dataclass
class ObjectiveConfig(Schema, schema="objective/base"):
    """Settings of every objective: an nn.Module that wraps a model and computes the loss inside its forward."""

    _target_: str = setting(MISSING, room="ntl.objectives")
    name: str = setting(MISSING, "The choice of the group.")
    head: str = setting("lm", "The head of the model that it trains.", choices=tuple(HEADS))
    collator: str = setting(
        "ntl.data.collate.token_collator", "The dotted path of the function that makes batches.", room="ntl.data"
    )
    keep_target: bool = setting(False, "Store the value of an answer with its tokens.")
    families: list[str] = setting(list, "The families of models that it is for; empty: all with its head.")
    adds: str = setting("", "The dotted path of a function that adds modules to the model; empty: none are added.")
    watch: str = setting("ce", "The validation term that the plateau schedule follows.", choices=("ce", "ntl"))
    mask: MaskConfig = setting(MaskConfig, "Masks some of the input tokens; the labels stay.")

    @property
    def drafts(self) -> int:
        """The heads that a decoding can draft with, the model's own among them; 0 without others."""
        return 0

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        if self.families and config.model.family not in self.families:
            families = " or ".join(self.families)
            yield "model .", f"this objective is for models of the family {families}; take objective=next_token."
        if (config.loss.name == "expected_error") != isinstance(self, ExpectedErrorConfig):
            yield "loss .", "the one is computed by the other; give loss=expected_error alone, or neither."


@dataclass
class NextTokenConfig(ObjectiveConfig, schema="objective/next_token"):
    """Every label is the next token: the paper's objective."""

    _target_: str = "ntl.objectives.next_token.NextToken"
    name: str = "next_token"


@dataclass
class ExpectedErrorConfig(ObjectiveConfig, schema="objective/expected_error"):
    """The next token, and the expected error of the whole answer by the tree of its digits."""

    _target_: str = "ntl.objectives.expected_error.ExpectedError"
    families: list[str] = setting(lambda: ["decoder", "t5"], "The families of models that it is for.")
    weight: float = setting(0.1, "The factor of the expected error.", min=0)
    kind: str = setting(
        "absolute",
        "`squared` error of the mean, `absolute` error, or `crps`, the absolute error less half the spread.",
        choices=("squared", "absolute", "crps"),
    )
    outside: float = setting(1.0, "The factor of -log P(the answer is a number of the tree), beside the error.", min=0)
    num_beams: int = setting(16, "Prefixes kept of one length; exact where there are no more.", "prefixes", min=1)
    grid: list[float] = setting(
        list, "The numbers that count, and no others; with `squared` and `outside=0`: RAFT. Empty: all of the tree."
    )

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        yield from super().rules(config, typed)
        data = config.dataset
        if data.answers != "number":
            yield ". dataset", "its answers are not one number; take another."
        others = ["dataset.exclude_numbers", "objective.mask.fraction", "trainer.gradient_checkpointing"]
        others += ["dataset.weight"] if hasattr(data, "weight") else []
        others = [name for name in others if value_of(config, name)]
        for name in (*others, *(["dataset.format"] if data.format == "chat" else [])):
            yield f". {name}", "the expected error is of a whole answer; leave it out."
        if config.trainer.parallel == "fsdp":
            yield ". trainer.parallel", "take trainer=ddp."
        if "loss.weight" in typed:
            yield "loss loss.weight", "the factor of the expected error is objective.weight; set that instead."


@dataclass
class RegressionConfig(ObjectiveConfig, schema="objective/regression"):
    """One output for a sequence against the number that its answer is (paper, Table 4)."""

    _target_: str = "ntl.objectives.number_heads.Regression"
    name: str = "regression"
    head: str = "regression"
    collator: str = "ntl.data.collate.regression_collator"
    keep_target: bool = True
    watch: str = "ntl"
    standardize: bool = setting(False, "Standardize answers by the training set's; false: as the original code.")


@dataclass
class MaskedNumberConfig(ObjectiveConfig, schema="objective/masked_number"):
    """The answer's last number is masked: its token and its value are predicted (xVal)."""

    _target_: str = "ntl.objectives.number_heads.MaskedNumber"
    name: str = "masked_number"
    head: str = "masked_number"
    collator: str = "ntl.data.collate.masked_number_collator"
    watch: str = "ntl"


@dataclass
class MTPConfig(ObjectiveConfig, schema="objective/mtp"):
    """Multi-token prediction: head k predicts the token k places ahead, and the losses of all heads are added."""

    _target_: str = "ntl.objectives.mtp.MultiTokenPrediction"
    families: list[str] = setting(lambda: ["decoder"], "The families of models that it is for.")
    adds: str = "ntl.models.mtp.add_heads"
    kind: str = setting(
        "parallel",
        "`parallel`: heads of one block each on a shared trunk (Gloeckle et al., 2024); `sequential`: modules that "
        "each read the next token and the state of the head before (DeepSeek-V3); `shared`: the model's own logits.",
        choices=("parallel", "sequential", "shared"),
    )
    heads: int = setting(2, "Tokens that are predicted at each position; head 1 predicts the next token.", min=1)
    head_weights: list[float] = setting(list, "A factor for the loss of each head; empty: 1, as in the paper.")
    head_schedule: str = setting(
        "constant",
        "The factors over equal parts of the training, as many as heads: `forward` adds a head in each, `reverse` "
        "takes the last one away, `annealed` lets it fade.",
        choices=("constant", "forward", "reverse", "annealed"),
    )
    variant: str = setting(
        "independent",
        "With `kind=parallel`, what the block of head k reads: the trunk; the state of head k - 1 (`causal`). "
        "With `linear`, heads 2, 3, ... are linear maps of a trunk that keeps all blocks.",
        choices=("independent", "causal", "linear"),
    )
    keep_depth: bool | None = setting(
        None,
        "With `kind=parallel`, keep all blocks of the trunk; false: it has one less for each further head, so that the "
        "number of weights is as in a next-token model; null: false where the model has enough blocks.",
    )
    one_at_a_time: bool = setting(True, "Compute one head after the other, so that only one's logits are held.")

    @property
    def drafts(self) -> int:
        """As ``ObjectiveConfig.drafts``."""
        return self.heads if self.kind != "shared" and self.heads > 1 else 0

    def rules(self, config: Any, typed: Collection[str]) -> Iterator[Rule]:
        yield from super().rules(config, typed)
        weights, has_variants = self.head_weights, self.kind == "parallel"
        if weights and len(weights) != self.heads:
            yield ".head_weights .heads", "give one factor for each head, or none."
        if any(not 0 <= weight < math.inf for weight in weights) or (weights and not any(weights)):
            yield ".head_weights", "each must be finite and at least 0, and one above 0."
        if not has_variants and self.variant != "independent":
            yield ".kind .variant", "a variant is one of objective.kind=parallel; leave one of the two out."
        if self.keep_depth is not None and (not has_variants or self.variant == "linear"):
            yield ".keep_depth", "has no effect, since this kind keeps all blocks; leave it out."
