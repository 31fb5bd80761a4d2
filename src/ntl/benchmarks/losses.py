"""``scripts/benchmark_losses.py``: time and memory of each loss relative to cross-entropy, as in the paper's Figure 3.

Every loss is the total, base + weight × number term, on the same random logits. The given share of the labels are
number tokens; the original draws labels from the whole vocabulary, where numbers are very rare. The losses take turns,
and ratios are taken within a turn, so that a slow phase of the machine affects both sides.

Shapes: B batch, T length, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ntl.benchmarks.implementations import Setting, check, number_vocabulary, vocabulary_and_labels
from ntl.benchmarks.timing import BASELINE, Call, Row, measure, rounded
from ntl.config import compose, folders
from ntl.config.loss import NextTokenConfig
from ntl.losses.kinds import Terms
from ntl.objectives.next_token import NextToken, terms_of
from ntl.system.errors import UserError

BASIS = "ratios to CE of the same turn, with quartiles"


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


def benchmark(
    setting: Setting, losses: Sequence[str], rounds: int, say: Callable[[str], None] = lambda line: None
) -> Iterator[Row]:
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
        say(f"share {setting.share:g}, {part}: {rounds} turns of {len(calls)} losses")
        for row in measure(calls, setting.device, rounds):
            yield {**common, "part": part, "rounds": rounds, **rounded(row)}
