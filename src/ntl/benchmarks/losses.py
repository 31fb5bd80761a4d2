"""``scripts/benchmark_losses.py``: time and memory of losses relative to cross-entropy, which take turns.

Every loss as in the paper's Figure 3: the total, base + weight × number term, on the same random logits, of whose
labels the given share are number tokens (the original draws labels from the whole vocabulary, where numbers are very
rare). With ``--implementations``: CE + number loss in every implementation, forward and backward from logits or from
hidden states, on the same labels, relative to torch's CE; the package ``ntloss`` is compared if it is installed.

Shapes: B batch, T length, V vocabulary, D hidden size.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from ntl.benchmarks.timing import MIB, Call, Row, measure
from ntl.config import compose
from ntl.config.folders import choices
from ntl.config.kinds import SQUARED_ERROR
from ntl.config.loss import NextTokenConfig
from ntl.losses import NumberTokenLoss, ce_ntl, linear_ce_ntl
from ntl.losses.kinds import kinds
from ntl.losses.rows import IGNORE_INDEX
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken, loss_of
from ntl.system.errors import UserError

BASELINE, WEIGHT, HIDDEN = "ce", 0.3, 512
SHAPES = ((32, 64, 32_128), (8, 256, 50_257), (4, 256, 49_155))


@dataclass(frozen=True)
class Setting:
    """The shape (batch, length, vocab), type and device of the logits, and the share of labels that are digits."""

    device: str = "cpu"
    dtype: str = "float32"
    batch: int = 16
    length: int = 64
    vocab: int = 32_128
    share: float = 0.8

    def leaf(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Return random values that get gradients."""
        return (torch.randn(*shape, dtype=getattr(torch, self.dtype)) * scale).to(self.device).requires_grad_()


def vocabulary_and_labels(setting: Setting, ignored: float = 0.0) -> tuple[NumberVocabulary, Tensor]:
    """Return a vocabulary with ten digits, and random labels (B, T): these shares, rounded, are digits, or ignored."""
    values = torch.full((setting.vocab,), math.nan)
    values[torch.arange(10) * (setting.vocab // 10) + setting.vocab // 20] = torch.arange(10.0)
    vocab, text = NumberVocabulary.from_values(values), values.isnan().nonzero().squeeze(-1)
    total = setting.batch * setting.length
    labels = text[torch.randint(len(text), (total,))]
    positions = torch.randperm(total)[: round(setting.share * total)]
    labels[positions] = vocab.token_ids[torch.randint(10, (len(positions),))]
    labels[torch.randperm(total)[: round(ignored * total)]] = IGNORE_INDEX
    return vocab.to(setting.device), labels.reshape(setting.batch, setting.length).to(setting.device)


# ---- all losses


def token_losses() -> list[str]:
    """Return the names in config/loss of losses of tokens, cross-entropy first."""
    return sorted({*choices("loss")} - {SQUARED_ERROR}, key=lambda name: (name != BASELINE, name))


def check_losses(names: Sequence[str]) -> None:
    """Raise UserError for a name that is not one of ``token_losses``."""
    if unknown := [name for name in names if name not in token_losses()]:
        raise UserError(f"--losses {unknown[0]}: choose from {', '.join(token_losses())}")


def backward(loss: Callable[[], Tensor], leaves: Sequence[Tensor]) -> None:
    """Compute the loss and its gradients, and forget them."""
    loss().backward()
    for leaf in leaves:
        leaf.grad = None


def steps_of(setting: Setting, losses: dict[str, NumberTokenLoss], labels: Tensor) -> dict[str, Call]:
    """Return for each loss an AdamW step of a GPT-2 with two layers of width 64."""
    size: Any = {"vocab_size": setting.vocab, "n_positions": setting.length, "n_embd": 64, "n_layer": 2, "n_head": 2}
    size |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0) | {"bos_token_id": None}
    network: Any = GPT2LMHeadModel(GPT2Config(**size, eos_token_id=None)).to(setting.device)  # pyright: ignore
    optimizer, inputs, mask = torch.optim.AdamW(network.parameters()), labels.roll(1, dims=1), torch.ones_like(labels)

    def step(objective: NextToken) -> None:
        objective(labels, input_ids=inputs, attention_mask=mask).total.backward()
        optimizer.step()
        optimizer.zero_grad()

    make = partial(NextToken, NextTokenConfig(), model=network)
    return {name: partial(step, make(loss=loss).train()) for name, loss in losses.items()}


def rows_of(calls: dict[str, Call], setting: Setting, rounds: int, **columns: Any) -> Iterator[Row]:
    """Yield a row for each loss, of which the first is the baseline."""
    for name, row in measure(calls, setting.device, rounds):
        yield {**asdict(setting), **columns, "rounds": rounds, "loss": name, **row}


def benchmark(setting: Setting, losses: Sequence[str], rounds: int) -> Iterator[Row]:
    """Measure every part of every loss at one setting. UserError for an unknown loss, or a setting that is not one."""
    check_losses(losses)
    if setting.vocab < 20 or not 0 <= setting.share <= 1:
        raise UserError(f"--vocab {setting.vocab} --shares {setting.share}: at least 20, and between 0 and 1")
    torch.manual_seed(0)
    vocab, labels = vocabulary_and_labels(setting)
    logits = setting.leaf(*labels.shape, setting.vocab)
    known = {"point_id": None, "embedding": torch.randn(setting.vocab, 64, device=setting.device)}
    configs = {name: compose([f"loss={name}"]).loss for name in dict.fromkeys([BASELINE, *losses])}
    found = {name: loss_of(replace(each, implementation="reference"), vocab, known) for name, each in configs.items()}
    totals: dict[str, Call] = {name: partial(loss, logits, labels) for name, loss in found.items()}
    both = {name: partial(backward, each, [logits]) for name, each in totals.items()}
    steps, threads = steps_of(setting, found, labels), 1 if setting.device == "cpu" else None
    for part, calls in (("forward", totals), ("forward+backward", both), ("training step", steps)):
        yield from rows_of(calls, setting, rounds, threads=threads, part=part)


# ---- all implementations


def losses_of(setting: Setting, more: Sequence[str] = (), ignored: float | None = None) -> Any:
    """Return the tensors that get gradients, and the losses by name; ``more`` are kinds besides NTL-WAS.

    They are of logits, the one in place last, as it overwrites them; or, where a share is ignored, of hidden states.
    """
    vocab, labels = vocabulary_and_labels(setting, ignored or 0.0)
    flat, found = labels.flatten(), dict[str, Callable[[], Tensor]]()
    if ignored is not None:
        hidden, weight = setting.leaf(*labels.shape, HIDDEN), setting.leaf(setting.vocab, HIDDEN, scale=HIDDEN**-0.5)
        options: Any = {"weight": WEIGHT, "implementation": "fused"}
        found[BASELINE] = lambda: F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), flat)
        found["was linear"] = lambda: linear_ce_ntl(hidden, weight, labels, vocab, **options).total
        if torch_loss := getattr(F, "linear_cross_entropy", None):  # only newer versions of torch have it
            found["torch CE"] = partial(torch_loss, hidden.flatten(0, 1), weight, flat)
            chunks: Any = torch.nn.LinearCrossEntropyOptions()  # pyright: ignore
            found["torch CE chunked"] = partial(found["torch CE"], options=chunks)
        return [hidden, weight], found
    logits = setting.leaf(*labels.shape, setting.vocab)

    def ours(implementation: str = "fused", **options: Any) -> Tensor:
        return ce_ntl(logits, labels, vocab, weight=WEIGHT, implementation=implementation, **options).total

    def with_ce(loss: Any) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), flat) + WEIGHT * loss(logits, labels)

    found[BASELINE] = lambda: F.cross_entropy(logits.flatten(0, 1), flat)
    found |= {"was reference": partial(ours, "reference"), "was fused": ours}
    found |= {f"{kind} fused": partial(ours, kind=kind) for kind in more}
    with suppress(ImportError):
        package = import_module("ntloss")
        digits = dict(zip(vocab.token_ids.tolist(), "0123456789", strict=True))
        words = {digits.get(token, f"w{token}"): token for token in range(setting.vocab)}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")))
        for name, reweigh in (("ntloss", False), ("ntloss reweighed", True)):
            found[name] = partial(with_ce, package.NTLoss(tokenizer, vocab_size=setting.vocab, reweigh=reweigh))
    found["was in place"] = partial(ours, inplace=True)
    return [logits], found


def run_case(setting: Setting, rounds: int, more: Sequence[str] = (), ignored: float | None = None) -> Iterator[Row]:
    """Yield a row for each implementation, of forward and backward."""
    torch.manual_seed(0)
    size = setting.batch * setting.length * setting.vocab * getattr(torch, setting.dtype).itemsize / MIB
    leaves, losses = losses_of(setting, more, ignored)
    calls: dict[str, Call] = {name: partial(backward, loss, leaves) for name, loss in losses.items()}
    columns = {"threads": 1, "heap": "cold", "ignored": ignored or 0.0, "part": "loss" if ignored is None else "linear"}
    for row in rows_of(calls, setting, rounds, **columns):
        yield {**row, "logits_mib": size}


def run_all(device: str, rounds: int) -> Iterator[Row]:
    """Yield the rows of every shape, type and share; of the first shape also all kinds, and hidden states."""
    others = [name for name in kinds() if name != "was"]
    for shape, dtype, share in product(SHAPES, ("float32", "bfloat16"), (0.8, 0.015)):
        more = others if (shape, share) == (SHAPES[0], 0.8) else ()
        yield from run_case(Setting(device, dtype, *shape, share), rounds, more)
    for ignored in (0.0, 0.72):
        yield from run_case(Setting(device, "float32", *SHAPES[0], 0.8), rounds, ignored=ignored)
