"""``scripts/benchmark_losses.py --implementations``: CE + number loss in every implementation, relative to CE alone.

The calls take turns (see ``ntl.benchmarks.losses``) on the same labels. They compute forward and backward from logits
or from hidden states. The baseline is torch's cross-entropy. The package ``ntloss`` is compared if it is installed.

Shapes: B batch, T length, V vocabulary, D hidden size.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ntl.benchmarks.timing import BASELINE, Row, measure, rounded
from ntl.losses import ce_ntl, linear_ce_ntl
from ntl.losses.kinds import kinds
from ntl.losses.rows import IGNORE_INDEX
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError

WEIGHT, HIDDEN = 0.3, 512
SHAPES = ((32, 64, 32_128), (8, 256, 50_257), (4, 256, 49_155))
DTYPES = ("float32", "bfloat16")
NTLOSS = ("ntloss", "ntloss reweighed")
Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Setting:
    """The shape (batch, length, vocab), type and device of the logits, and the share of labels that are digits."""

    device: str = "cpu"
    dtype: str = "float32"
    batch: int = 16
    length: int = 64
    vocab: int = 32_128
    share: float = 0.8


def number_vocabulary(size: int) -> NumberVocabulary:
    """Return a vocabulary of ``size`` token ids with ten digits, evenly spread."""
    values = torch.full((size,), math.nan)
    values[torch.arange(10) * (size // 10) + size // 20] = torch.arange(10.0)
    return NumberVocabulary.from_values(values)


def vocabulary_and_labels(setting: Setting, ignored: float = 0.0) -> tuple[NumberVocabulary, Tensor]:
    """Return the vocabulary, and random labels (B, T) of which the given shares, rounded, are digits, or ignored."""
    vocab, total = number_vocabulary(setting.vocab), setting.batch * setting.length
    text = torch.arange(setting.vocab)[vocab.values.isnan()]
    labels = text[torch.randint(len(text), (total,))]
    positions = torch.randperm(total)[: round(setting.share * total)]
    labels[positions] = vocab.token_ids[torch.randint(len(vocab.token_ids), (len(positions),))]
    labels[torch.randperm(total)[: round(ignored * total)]] = IGNORE_INDEX
    return vocab.to(setting.device), labels.reshape(setting.batch, setting.length).to(setting.device)


def check(device: str, rounds: int) -> None:
    """Raise UserError for a device that is not available, or for too few rounds."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device; choose --device cpu")
    if rounds < 2:
        raise UserError(f"--rounds {rounds}: the spread needs at least 2")


@dataclass(frozen=True)
class Case:
    """One comparison of a ``setting``; ``ignored`` is the share of rows whose label is ignored."""

    setting: Setting
    part: str = "loss"  # from logits; "linear": from hidden states
    ignored: float = 0.0
    kinds: tuple[str, ...] = ()  # of number loss, besides NTL-WAS


def cases(device: str) -> Iterator[Case]:
    """Yield every shape, type and share; the first shape also with all kinds, and with hidden states."""
    others = tuple(name for name in kinds() if name != "was")
    for shape, dtype, share in product(SHAPES, DTYPES, (0.8, 0.015)):
        yield Case(Setting(device, dtype, *shape, share), kinds=others if (shape, share) == (SHAPES[0], 0.8) else ())
    yield from (Case(Setting(device, "float32", *SHAPES[0], 0.8), "linear", ignored) for ignored in (0.0, 0.72))


def ntloss_calls(vocab: NumberVocabulary, labels: Tensor) -> dict[str, Loss]:
    """Return CE + the loss of the package ``ntloss``, as in the paper and reweighed; empty if it is not installed."""
    try:
        package = import_module("ntloss")
    except ImportError:
        return {}
    size = vocab.values.numel()
    digits = {int(token): str(digit) for digit, token in enumerate(vocab.token_ids.tolist())}
    words = {digits.get(token, f"w{token}"): token for token in range(size)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")))

    def total(loss: Any, logits: Tensor) -> Tensor:
        number = loss(logits, labels)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + WEIGHT * number

    losses = {name: package.NTLoss(tokenizer, vocab_size=size, reweigh="re" in name) for name in NTLOSS}
    return {name: partial(total, loss) for name, loss in losses.items()}


def losses_of(case: Case) -> tuple[list[Tensor], dict[str, Callable[[], Tensor]]]:
    """Return the tensors that get gradients, and the losses by name: of logits, or of hidden states and the head.

    The loss in place is last, because it overwrites the logits.
    """
    setting = case.setting
    vocab, labels = vocabulary_and_labels(setting, case.ignored)
    flat = labels.flatten()

    def leaf(*shape: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(*shape, dtype=getattr(torch, setting.dtype)) * scale
        return values.to(setting.device).requires_grad_()

    if case.part == "linear":
        hidden = leaf(*labels.shape, HIDDEN)
        weight = leaf(setting.vocab, HIDDEN, scale=HIDDEN**-0.5)
        options: Any = {"weight": WEIGHT, "implementation": "fused"}
        found: dict[str, Callable[[], Tensor]] = {
            BASELINE: lambda: F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), flat),
            "was linear": lambda: linear_ce_ntl(hidden, weight, labels, vocab, **options).total,
        }
        torch_loss: Any = getattr(F, "linear_cross_entropy", None)  # only newer versions of torch have it
        if torch_loss is not None:
            found["torch CE"] = lambda: torch_loss(hidden.flatten(0, 1), weight, flat)
            chunks: Any = torch.nn.LinearCrossEntropyOptions()  # pyright: ignore
            found["torch CE chunked"] = lambda: torch_loss(hidden.flatten(0, 1), weight, flat, options=chunks)
        return [hidden, weight], found

    logits = leaf(*labels.shape, setting.vocab)

    def ours(implementation: str = "fused", **options: Any) -> Tensor:
        return ce_ntl(logits, labels, vocab, weight=WEIGHT, implementation=implementation, **options).total

    found = {BASELINE: lambda: F.cross_entropy(logits.flatten(0, 1), flat)}
    found |= {"was reference": partial(ours, "reference"), "was fused": ours}
    found |= {f"{kind} fused": partial(ours, kind=kind) for kind in case.kinds}
    found |= {name: partial(loss, logits) for name, loss in ntloss_calls(vocab, labels).items()}
    found["was in place"] = partial(ours, inplace=True)
    return [logits], found


def run_case(case: Case, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Return a row for each implementation, of forward and backward."""
    setting = case.setting
    shape = f"{setting.batch}x{setting.length}x{setting.vocab} {setting.dtype}"
    size = setting.batch * setting.length * setting.vocab * getattr(torch, setting.dtype).itemsize
    say(f"{case.part} {shape} share {setting.share:g} ignored {case.ignored:g}")
    if setting.device == "cpu":
        torch.set_num_threads(1)
    torch.manual_seed(0)
    common, found = {**asdict(setting), "threads": 1, "heap": "cold", "ignored": case.ignored}, []
    leaves, losses = losses_of(case)

    def call(loss: Callable[[], Tensor]) -> None:
        loss().backward()
        for leaf in leaves:
            leaf.grad = None

    for row in measure({name: partial(call, loss) for name, loss in losses.items()}, setting.device, rounds):
        row["logits_mib"] = size / 2**20
        found.append({**common, "part": case.part, "rounds": rounds, **rounded(row)})
        extra = row["peak_mib"] / row["logits_mib"]
        say(f"  {row['loss']:<24} {1000 * row['seconds']:9.1f} ms  {row['ratio']:6.3f} x CE  {extra:5.2f} x logits")
    return found


def run_all(device: str, rounds: int) -> Iterator[list[Row]]:
    """Yield the rows of each of the `cases`; progress goes to standard error. UserError as of ``check``."""
    check(device, rounds)
    say = partial(print, file=sys.stderr, flush=True)
    for case in cases(device):
        yield run_case(case, rounds, say)
