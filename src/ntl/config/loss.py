"""Schemas of the loss, a term on all labelled tokens plus a weighted one on number tokens, and of the objective."""

from dataclasses import dataclass
from typing import Any

from ntl.config.registry import SQUARED_ERROR, Kind, checked_kind, registered
from ntl.config.settings import MISSING, nearest, setting  # ntl.losses imports this file and works without omegaconf
from ntl.system.errors import UserError

# How both terms are computed, equal up to rounding: one after the other from all logits, both in one pass over them,
# from hidden states without all logits, in one pass by kernels of a GPU, or as benchmarks showed to be fastest.
IMPLEMENTATIONS = ("auto", "reference", "fused", "linear", "triton")


def checked_implementation(name: str) -> str:
    """ValueError for a name that is none of them."""
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"implementation must be {', '.join(map(repr, IMPLEMENTATIONS))}, not {name!r}")
    return name


@dataclass
class LossConfig:
    """total = CE + weight x NTL (paper, Eq. 3: CE + λ NTL), or with another base in place of CE."""

    name: str = setting(MISSING, "The choice of the group, part of the run's name.")
    kind: str = setting(MISSING, "A registered loss, or several joined by +; `squared_error` is that of a number head.")
    weight: float = setting(0.3, "The factor λ of the number loss.", origin="paper", min=0)
    squash: float | None = setting(
        None, "The cost of the farthest number token where the nearest costs 1; null: the distance of values.", above=1
    )
    options: dict[str, Any] = setting(dict, "The options of the kind, as `+loss.options.delta=2`.")
    implementation: str = setting(
        "auto",
        "How both terms are computed, equal up to rounding: `reference` from all logits, `fused` in one pass over "
        "them, `linear` from hidden states in chunks, `triton` by kernels of a GPU; `auto` takes the fastest.",
        choices=IMPLEMENTATIONS,
    )

    @property
    def kinds(self) -> list[Kind]:
        """What is registered of each kind; nothing of the loss of a number head."""
        return [] if self.kind == SQUARED_ERROR else [registered()[each] for each in self.kind.split("+")]

    @property
    def has_number(self) -> bool:
        """Whether there is a number loss, which the weight multiplies."""
        return self.kind == SQUARED_ERROR or not all(each.is_base for each in self.kinds)

    def check(self) -> None:
        """UserError for kinds, or options, that are none or do not fit each other."""
        checked_kind(self.kind)
        bases = [each for each in self.kinds if each.is_base]
        if len(bases) > 1:
            raise UserError(f"loss.kind={self.kind}: more than one is a base; leave out all but one.")
        implied = [registered()["ce"]] if self.kinds and not bases else []
        allowed = [name for each in (*implied, *self.kinds) for name in each.options]
        for name in self.options:
            if name not in allowed:
                line = f"loss.kind={self.kind} takes {', '.join(allowed) or 'no options'}"
                raise UserError(f"loss.options.{name}: no such option; {line}.{nearest(name, allowed)}")
        if self.squash is not None and "cost" not in allowed:
            raise UserError(f"loss.squash={self.squash:g}: loss.kind={self.kind} has no costs; leave loss.squash out.")


@dataclass
class MaskConfig:
    """Mask-enhanced autoregressive prediction (MEAP; Zhuang et al., 2025): some input tokens are masked in training."""

    fraction: float = setting(0.0, "Share of masked input tokens; published: 0.15, in fine-tuning 0.1.", min=0, max=1)
    variant: str = setting(
        "paper",
        "`paper`: positions of its own for each row; `code`: by the rule of the released code, the same for all rows "
        "of a batch; `random`: as `paper`, with random tokens in place of the mask, as a control.",
        choices=("paper", "code", "random"),
    )
    numbers: str = setting(
        "auto",
        "`forbid` masks no number, `only` nothing else; `auto` is `forbid` where answers are computed from numbers.",
        choices=("auto", "allow", "forbid", "only"),
    )
    copy: str = setting(
        "none",
        "`none`: mask the example itself. In fine-tuning, mask the answer of a copy: `concatenate` puts it behind the "
        "example, as in the paper; `separate` makes it a row of its own, as in the released code.",
        choices=("none", "concatenate", "separate"),
    )
    min_answer: int = setting(50, "Of a shorter answer there is no `copy`.", "tokens", origin="published", min=0)


@dataclass
class ObjectiveConfig:
    """Settings of every objective: an nn.Module that wraps a model and computes the loss inside its forward."""

    _target_: str = MISSING
    name: str = setting(MISSING, "The choice of the group.")
    head: str = setting("lm", "The head of the model that it trains: lm, regression or masked_number.")
    collator: str = setting("ntl.data.collate.token_collator", "The dotted path of the function that makes batches.")
    keep_target: bool = setting(False, "Store the value of an answer with its tokens.")
    families: list[str] = setting(list, "The families of models that it is for; empty: all with its head.")
    adds: str = setting("", "The dotted path of a function that adds modules to the model; empty: none are added.")
    watch: str = setting("ce", "The validation term that the plateau schedule follows.", choices=("ce", "ntl"))
    mask: MaskConfig = setting(MaskConfig, "Masks some of the input tokens; the labels stay.")


@dataclass
class NextTokenConfig(ObjectiveConfig):
    """Every label is the next token: the paper's objective."""

    _target_: str = "ntl.objectives.next_token.NextToken"
    name: str = "next_token"


@dataclass
class ExpectedErrorConfig(ObjectiveConfig):
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


@dataclass
class RegressionConfig(ObjectiveConfig):
    """One output for a sequence against the number that its answer is (paper, Table 4)."""

    _target_: str = "ntl.objectives.number_heads.Regression"
    name: str = "regression"
    head: str = "regression"
    collator: str = "ntl.data.collate.regression_collator"
    keep_target: bool = True
    watch: str = "ntl"
    standardize: bool = setting(False, "Standardize answers by those of training; false: not, as in the original code.")


@dataclass
class MaskedNumberConfig(ObjectiveConfig):
    """The answer's last number is masked: its token and its value are predicted (xVal)."""

    _target_: str = "ntl.objectives.number_heads.MaskedNumber"
    name: str = "masked_number"
    head: str = "masked_number"
    collator: str = "ntl.data.collate.masked_number_collator"
    watch: str = "ntl"


@dataclass
class MTPConfig(ObjectiveConfig):
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
        "number of weights is that of a next-token model; null: false where the model has enough blocks.",
    )
    one_at_a_time: bool = setting(True, "Compute one head after the other, so that only one's logits are held.")
