"""``scripts/benchmark_losses.py --implementations``: CE + number loss in every implementation, relative to CE alone.

The calls take turns (see ``ntl.benchmarks.losses``) on the same labels. They compute forward and backward from logits
or from hidden states. The baseline is torch's cross-entropy. The package ``ntloss`` is compared if it is installed.

Shapes: B batch, T length, V vocabulary, D hidden size.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ntl.benchmarks.timing import BASELINE, Call, Row, measure, rounded
from ntl.data.collate import IGNORE_INDEX
from ntl.losses import ce_ntl, linear_ce_ntl
from ntl.losses.kinds import kinds
from ntl.numbers import NumberVocabulary
from ntl.system.errors import UserError
from ntl.system.machine import keep_freed_memory

WEIGHT, HIDDEN = 0.3, 512
SHAPES = ((32, 64, 32_128), (8, 256, 50_257), (4, 256, 49_155))
DTYPES = ("float32", "bfloat16")
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


def draw_labels(setting: Setting, vocab: NumberVocabulary) -> Tensor:
    """Return random labels (B, T) with exactly the given share of digits, rounded; the others are text tokens."""
    total = setting.batch * setting.length
    text = torch.arange(setting.vocab)[vocab.values.isnan()]
    labels = text[torch.randint(len(text), (total,))]
    positions = torch.randperm(total)[: round(setting.share * total)]
    labels[positions] = vocab.token_ids[torch.randint(len(vocab.token_ids), (len(positions),))]
    return labels.reshape(setting.batch, setting.length)


def check(device: str, rounds: int) -> None:
    """Raise UserError for a device that is not available, or for too few rounds."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device; choose --device cpu")
    if rounds < 2:
        raise UserError(f"--rounds {rounds}: the spread needs at least 2")


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        setting: The logits and labels.
        part: "loss", from logits, or "linear", from hidden states.
        threads: The number of CPU threads.
        heap: "cold", or "warm" if the process keeps freed memory.
        ignored: The share of rows whose label is ignored.
        kinds: Further kinds of number loss to compare.
    """

    setting: Setting
    part: str = "loss"
    threads: int = 1
    heap: str = "cold"
    ignored: float = 0.0
    kinds: tuple[str, ...] = ()


def other_kinds() -> tuple[str, ...]:
    """Return the kinds other than NTL-WAS."""
    return tuple(name for name in kinds() if name != "was")


def cases(shapes: Sequence[tuple[int, int, int]], device: str) -> Iterator[Case]:
    """Yield every shape, type and share; the first shape also with all kinds, two threads and hidden states."""
    for shape in shapes:
        for dtype in DTYPES:
            for share in (0.8, 0.015):
                first = (shape, share) == (shapes[0], 0.8)
                setting = Setting(device, dtype, *shape, share)
                yield Case(setting, kinds=other_kinds() if first else ())
    first = Setting(device, "float32", *shapes[0], 0.8)
    yield from (Case(first, "linear", ignored=ignored) for ignored in (0.0, 0.72))
    if device == "cpu":
        yield Case(first, threads=2)
        warm = (Setting(device, dtype, *shape, 0.8) for shape in shapes for dtype in DTYPES)
        yield from (Case(setting, heap="warm") for setting in warm)


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

    makers = {"ntloss": False, "ntloss reweighed": True}
    return {
        name: partial(total, package.NTLoss(tokenizer, vocab_size=size, reweigh=reweigh))
        for name, reweigh in makers.items()
    }


def losses_of_logits(case: Case, vocab: NumberVocabulary, labels: Tensor) -> dict[str, Loss]:
    """Return the losses of logits (B, T, V) by name; the in-place one is last, because it overwrites the logits."""

    def ours(logits: Tensor, **options: Any) -> Tensor:
        return ce_ntl(logits, labels, vocab, weight=WEIGHT, **options).total

    found: dict[str, Loss] = {BASELINE: lambda logits: F.cross_entropy(logits.flatten(0, 1), labels.flatten())}
    found["was reference"] = partial(ours, implementation="reference")
    found["was fused"] = partial(ours, implementation="fused")
    found |= {f"{kind} fused": partial(ours, kind=kind, implementation="fused") for kind in case.kinds}
    found |= ntloss_calls(vocab, labels)
    found["was in place"] = partial(ours, implementation="fused", inplace=True)
    return found


def logits_calls(case: Case) -> dict[str, Call]:
    """Return forward and backward of each loss of logits."""
    vocab, labels = _labels(case)
    values = torch.randn(*labels.shape, case.setting.vocab, dtype=getattr(torch, case.setting.dtype))
    logits = values.to(case.setting.device).requires_grad_()

    def call(loss: Loss) -> None:
        loss(logits).backward()
        logits.grad = None

    return {name: partial(call, loss) for name, loss in losses_of_logits(case, vocab, labels).items()}


def linear_calls(case: Case) -> dict[str, Call]:
    """Return forward and backward from hidden states (B, T, D) and the head's weight (V, D)."""
    vocab, labels = _labels(case)
    dtype, device = getattr(torch, case.setting.dtype), case.setting.device
    hidden = torch.randn(*labels.shape, HIDDEN, dtype=dtype).to(device).requires_grad_()
    weight = (torch.randn(case.setting.vocab, HIDDEN, dtype=dtype) / HIDDEN**0.5).to(device).requires_grad_()
    flat = labels.flatten()

    def ours() -> Tensor:
        return linear_ce_ntl(hidden, weight, labels, vocab, weight=WEIGHT, implementation="fused").total

    found: dict[str, Callable[[], Tensor]] = {
        BASELINE: lambda: F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), flat),
        "was linear": ours,
    }
    torch_loss: Any = getattr(F, "linear_cross_entropy", None)  # only newer versions of torch have it
    if torch_loss is not None:
        found["torch CE"] = lambda: torch_loss(hidden.flatten(0, 1), weight, flat)

    def call(loss: Callable[[], Tensor]) -> None:
        loss().backward()
        hidden.grad = weight.grad = None

    return {name: partial(call, loss) for name, loss in found.items()}


CALLS = {"loss": logits_calls, "linear": linear_calls}


def run_case(case: Case, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Return a row for each implementation."""
    setting = case.setting
    shape = f"{setting.batch}x{setting.length}x{setting.vocab} {setting.dtype}"
    size = setting.batch * setting.length * setting.vocab * getattr(torch, setting.dtype).itemsize
    say(f"{case.part} {shape} share {setting.share:g} threads {case.threads} heap {case.heap} ignored {case.ignored:g}")
    if setting.device == "cpu":
        torch.set_num_threads(case.threads)
    if case.heap == "warm":
        keep_freed_memory()
    torch.manual_seed(0)
    common = {**asdict(setting), "threads": case.threads, "heap": case.heap, "ignored": case.ignored}
    clock = time.process_time if case.threads == 1 else time.perf_counter
    found = []
    for row in measure(CALLS[case.part](case), setting.device, rounds, clock):
        row["logits_mib"] = size / 2**20
        found.append({**common, "part": case.part, "rounds": rounds, **rounded(row)})
        extra = row["peak_mib"] / row["logits_mib"]
        say(f"  {row['loss']:<24} {1000 * row['seconds']:9.1f} ms  {row['ratio']:6.3f} x CE  {extra:5.2f} x logits")
    return found


def run_all(shapes: Sequence[tuple[int, int, int]], device: str, rounds: int) -> Iterator[list[Row]]:
    """Yield the rows of each of the `cases`; progress goes to standard error.

    Raises UserError for a device that is not available, or for too few rounds.
    """
    check(device, rounds)
    say = partial(print, file=sys.stderr, flush=True)
    for case in cases(shapes, device):
        yield run_case(case, rounds, say)


def _labels(case: Case) -> tuple[NumberVocabulary, Tensor]:
    vocab = number_vocabulary(case.setting.vocab)
    labels = draw_labels(case.setting, vocab)
    flat = labels.view(-1)
    flat[torch.randperm(len(flat))[: round(case.ignored * len(flat))]] = IGNORE_INDEX
    return vocab.to(case.setting.device), labels.to(case.setting.device)
