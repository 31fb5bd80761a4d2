"""``scripts/benchmark_losses.py``: time and memory of losses relative to cross-entropy, which take turns.

Every loss as in the paper's Figure 3: the total, base + weight × number term, on the same random logits, of whose
labels the given share are number tokens (the original draws labels from the whole vocabulary, where numbers are very
rare). With ``--implementations``: CE + number loss in every implementation, forward and backward from logits or from
hidden states, on the same labels, relative to torch's CE; the package ``ntloss`` is compared if it is installed.

Shapes: B batch, T length, V vocabulary, D hidden size.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from omegaconf import OmegaConf
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from ntl.benchmarks.timing import BASELINE, Call, Row, measure, rounded
from ntl.config import compose, folders
from ntl.config.loss import NextTokenConfig
from ntl.losses import ce_ntl, linear_ce_ntl
from ntl.losses.kinds import Terms, kinds
from ntl.losses.rows import IGNORE_INDEX
from ntl.numbers import NumberVocabulary
from ntl.objectives.next_token import NextToken, terms_of
from ntl.system.errors import UserError

BASIS = "ratios to CE of the same turn, with quartiles"
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


# ---- all losses


def token_losses() -> list[str]:
    """Return the names in config/loss that use a language-model head, cross-entropy first."""
    names = []
    for path in (folders.CONFIG_DIR / "loss").glob("*.yaml"):
        config: Any = OmegaConf.load(path)
        if "lm" in config.get("heads", ["lm"]):
            names.append(path.stem)
    return sorted(names, key=lambda name: (name != BASELINE, name))


def check_losses(names: Sequence[str]) -> None:
    """Raise UserError for a name that is not one of ``token_losses``."""
    known = token_losses()
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"--losses {unknown[0]}: choose from {', '.join(known)}")


def loss_calls(setting: Setting, terms: Mapping[str, Terms], part: str) -> dict[str, Call]:
    """Return the call to time for each loss; ``part`` is ``forward`` or ``forward+backward``."""
    vocab, labels = vocabulary_and_labels(setting)
    logits = torch.randn(*labels.shape, setting.vocab, dtype=getattr(torch, setting.dtype)).to(setting.device)
    logits.requires_grad_()

    def total(loss: Terms) -> Tensor:
        base = loss.base(logits, labels, vocab)
        return base + loss.weight * loss.number(logits, labels, vocab) if loss.numbers else base

    def backward(loss: Terms) -> None:
        total(loss).backward()
        logits.grad = None

    function = total if part == "forward" else backward
    return {name: partial(function, loss) for name, loss in terms.items()}


def step_calls(setting: Setting, terms: Mapping[str, Terms]) -> dict[str, Call]:
    """Return for each loss an optimizer step of a GPT-2 with two layers of width 64 and ``setting.vocab`` tokens."""
    vocab, labels = vocabulary_and_labels(setting)
    size: Any = {"vocab_size": setting.vocab, "n_positions": setting.length, "n_embd": 64, "n_layer": 2, "n_head": 2}
    shape = GPT2Config(**size, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    network: Any = GPT2LMHeadModel(shape)
    network.to(setting.device)
    optimizer = torch.optim.AdamW(network.parameters())
    inputs, mask = labels.roll(1, dims=1), torch.ones_like(labels)

    def call(loss: Terms) -> Call:
        objective = NextToken(NextTokenConfig(), model=network, terms=loss, number_vocab=vocab).train()

        def step() -> None:
            objective(inputs, mask, labels).total.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return {name: call(loss) for name, loss in terms.items()}


def benchmark(setting: Setting, losses: Sequence[str], rounds: int) -> Iterator[Row]:
    """Measure every part of every loss at one setting. Raises UserError for an unknown device or loss."""
    check(setting.device, rounds)
    check_losses(losses)
    if setting.vocab < 20 or not 0 <= setting.share <= 1:
        raise UserError(f"--vocab {setting.vocab} --shares {setting.share}: at least 20, and between 0 and 1")
    torch.manual_seed(0)
    vocab = number_vocabulary(setting.vocab).to(setting.device)
    names = [BASELINE, *(name for name in losses if name != BASELINE)]
    known = {"point_id": None, "embedding": torch.randn(setting.vocab, 64, device=setting.device)}
    terms = {name: terms_of(compose([f"loss={name}"]).loss, vocab, known) for name in names}
    parts = {part: loss_calls(setting, terms, part) for part in ("forward", "forward+backward")}
    parts["training step"] = step_calls(setting, terms)
    common = {**asdict(setting), "threads": torch.get_num_threads() if setting.device == "cpu" else None}
    for part, calls in parts.items():
        for row in measure(calls, setting.device, rounds):
            yield {**common, "part": part, "rounds": rounds, **rounded(row)}


# ---- all implementations


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


def in_chunks(hidden: Tensor, weight: Tensor, labels: Tensor, chunks: int = 16) -> Tensor:
    """Return CE whose logits are computed a chunk at a time, and again backward; for ``torch.compile``."""

    def part(rows: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(rows, weight), labels, reduction="sum")

    pairs = zip(hidden.flatten(0, 1).chunk(chunks), labels.chunk(chunks), strict=True)
    sums = [checkpoint(part, *pair, use_reentrant=False) for pair in pairs]
    return torch.stack(sums).sum() / (labels != IGNORE_INDEX).sum()


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
        if shutil.which("g++"):  # which torch.compile needs
            found["CE compiled chunks"] = partial(torch.compile(in_chunks), hidden, weight, flat)
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


def run_case(case: Case, rounds: int) -> Iterator[Row]:
    """Yield a row for each implementation, of forward and backward."""
    setting = case.setting
    size = setting.batch * setting.length * setting.vocab * getattr(torch, setting.dtype).itemsize
    if setting.device == "cpu":
        torch.set_num_threads(1)
    torch.manual_seed(0)
    common = {**asdict(setting), "threads": 1, "heap": "cold", "ignored": case.ignored}
    leaves, losses = losses_of(case)

    def call(loss: Callable[[], Tensor]) -> None:
        loss().backward()
        for leaf in leaves:
            leaf.grad = None

    for row in measure({name: partial(call, loss) for name, loss in losses.items()}, setting.device, rounds):
        yield {**common, "part": case.part, "rounds": rounds, **rounded({**row, "logits_mib": size / 2**20})}


def run_all(device: str, rounds: int) -> Iterator[Row]:
    """Yield the rows of all `cases`. UserError as of ``check``."""
    check(device, rounds)
    for case in cases(device):
        yield from run_case(case, rounds)
