"""``scripts/benchmark_losses.py``: time and memory of each loss against cross-entropy, as in the paper's Figure 3.

Every loss is the whole of what is minimised, base + weight × number term, on the same random logits. A share of the
labels are number tokens, as named; the original draws labels from the whole vocabulary, hardly ever a number. What is
compared takes turns, and ratios are taken within a turn, so that what slows the machine slows both.

Shapes: B batch, T length, V vocabulary.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from ntl.config import UserError, compose
from ntl.config.composition import CONFIG_DIR
from ntl.config.objective import NextTokenConfig
from ntl.numbers import NumberVocabulary
from ntl.training.objectives.next_token import NextToken
from ntl.training.objectives.terms import LossTerms
from ntl.training.trainer import mean
from ntl.training.turns import BASELINE, Call, Row, measure, short, write_csv


@dataclass(frozen=True)
class Setting:
    """Logits (batch, length, vocab) of ``dtype``, and the share of their labels that are digits."""

    device: str = "cpu"
    dtype: str = "float32"
    batch: int = 16
    length: int = 64
    vocab: int = 32_128
    share: float = 0.8


def token_losses() -> list[str]:
    """The names of config/loss that read a language-model head, cross-entropy first."""
    names = []
    for path in (CONFIG_DIR / "loss").glob("*.yaml"):
        config: Any = OmegaConf.load(path)
        if "lm" in config.get("heads", ["lm"]):
            names.append(path.stem)
    return sorted(names, key=lambda name: (name != BASELINE, name))


def number_vocabulary(size: int) -> NumberVocabulary:
    """Ten digits, spread over ``size`` token ids."""
    values = torch.full((size,), math.nan)
    values[torch.arange(10) * (size // 10) + size // 20] = torch.arange(10.0)
    return NumberVocabulary.from_values(values)


def draw_labels(setting: Setting, vocab: NumberVocabulary) -> Tensor:
    """(B, T): exactly the share of digits, rounded, at random places; text tokens everywhere else."""
    total = setting.batch * setting.length
    text = torch.arange(setting.vocab)[vocab.values.isnan()]
    labels = text[torch.randint(len(text), (total,))]
    places = torch.randperm(total)[: round(setting.share * total)]
    labels[places] = vocab.token_ids[torch.randint(len(vocab.token_ids), (len(places),))]
    return labels.reshape(setting.batch, setting.length)


def loss_calls(setting: Setting, terms: Mapping[str, LossTerms], part: str) -> dict[str, Call]:
    """loss -> what is timed: ``forward``, ``forward+backward``, or ``number term``, the forward of that term alone."""
    vocab = number_vocabulary(setting.vocab)
    labels = draw_labels(setting, vocab).to(setting.device)
    logits = torch.randn(*labels.shape, setting.vocab, dtype=getattr(torch, setting.dtype)).to(setting.device)
    logits.requires_grad_()
    vocab = vocab.to(setting.device)

    def whole(one: LossTerms) -> Tensor:
        loss = one.base(logits, labels, vocab)
        return loss if one.number is None else loss + one.weight * one.number(logits, labels, vocab)

    def backward(one: LossTerms) -> None:
        whole(one).backward()
        logits.grad = None

    def number(one: LossTerms) -> Tensor:
        return (one.number or one.base)(logits, labels, vocab)

    function = {"forward": whole, "forward+backward": backward, "number term": number}[part]
    chosen = {name: one for name, one in terms.items() if part != "number term" or one.number or name == BASELINE}
    return {name: lambda one=one: function(one) for name, one in chosen.items()}


def step_calls(setting: Setting, terms: Mapping[str, LossTerms]) -> dict[str, Call]:
    """loss -> one optimizer step of a GPT-2 of two layers of width 64, whose head has ``setting.vocab`` tokens."""
    vocab = number_vocabulary(setting.vocab).to(setting.device)
    labels = draw_labels(setting, number_vocabulary(setting.vocab)).to(setting.device)
    size: Any = {"vocab_size": setting.vocab, "n_positions": setting.length, "n_embd": 64, "n_layer": 2, "n_head": 2}
    shape = GPT2Config(**size, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    network: Any = GPT2LMHeadModel(shape)
    network.to(setting.device)
    optimizer = torch.optim.AdamW(network.parameters())
    inputs, mask = labels.roll(1, dims=1), torch.ones_like(labels)

    def call(one: LossTerms) -> Call:
        objective = NextToken(NextTokenConfig(), model=network, terms=one, number_vocab=vocab).train()

        def step() -> None:
            parts = objective(inputs, mask, labels)
            ntl = one.weight * mean(parts.ntl_sum, parts.ntl_count)
            (mean(parts.ce_sum, parts.ce_count) + ntl).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return {name: call(one) for name, one in terms.items()}


def check(device: str, rounds: int) -> None:
    """UserError for a device that is not there, or too few rounds."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no CUDA device; choose --device cpu")
    if rounds < 2:
        raise UserError(f"--rounds {rounds}: the spread needs at least 2")


def benchmark(
    setting: Setting, losses: Sequence[str], rounds: int, say: Callable[[str], None] = lambda line: None
) -> Iterator[Row]:
    """Every part of every loss at one setting. UserError for a device or a loss that is not there."""
    check(setting.device, rounds)
    if setting.vocab < 20:
        raise UserError(f"--vocab {setting.vocab}: ten of the tokens are digits; give at least 20")
    if not 0 <= setting.share <= 1:
        raise UserError(f"--shares {setting.share}: a share is between 0 and 1")
    known = token_losses()
    if unknown := [name for name in losses if name not in known]:
        raise UserError(f"--losses {unknown[0]}: choose from {', '.join(known)}")
    torch.manual_seed(0)
    vocab = number_vocabulary(setting.vocab).to(setting.device)
    names = [BASELINE, *(name for name in losses if name != BASELINE)]
    terms = {name: LossTerms.from_config(compose([f"loss={name}"]).loss, vocab) for name in names}
    parts = {part: loss_calls(setting, terms, part) for part in ("forward", "forward+backward", "number term")}
    parts["training step"] = step_calls(setting, terms)
    common = {**asdict(setting), "threads": torch.get_num_threads() if setting.device == "cpu" else None}
    for part, calls in parts.items():
        say(f"share {setting.share:g}, {part}: {rounds} turns of {len(calls)} losses")
        for row in measure(calls, setting.device, rounds):
            yield {**common, "part": part, "rounds": rounds, **{key: short(value) for key, value in row.items()}}


def _shape(text: str) -> tuple[int, int, int]:
    batch, length, vocab = (int(part) for part in text.split("x"))
    if min(batch, length) < 1 or vocab < 20:
        raise ValueError(text)
    return batch, length, vocab


def main(argv: Sequence[str] | None = None) -> None:
    """Print a line, or with ``--json`` an object, for each loss and part; ``--out`` writes the CSV of Figure 3."""
    default = Setting()
    parser = argparse.ArgumentParser(prog="benchmark_losses.py", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default.device)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default=default.dtype)
    parser.add_argument("--batch", type=int, default=default.batch)
    parser.add_argument("--length", type=int, default=default.length)
    parser.add_argument("--vocab", type=int, default=default.vocab)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.8, 0.015], help="of number labels")
    parser.add_argument("--losses", nargs="+", default=token_losses(), metavar="LOSS", help="default: all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, help="write a CSV here")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--implementations", action="store_true", help="compare ways to compute CE + NTL instead")
    parser.add_argument("--shapes", nargs="+", metavar="BxTxV", type=_shape, help="of --implementations")
    chosen = parser.parse_args(argv)
    rows: list[Row] = []
    for found in _implementations(chosen) if chosen.implementations else _losses(chosen):
        rows += found
        if chosen.out and rows:  # it takes long: what is measured is kept
            write_csv(chosen.out, rows)
    if chosen.json:
        print(json.dumps(rows, indent=1))


def _losses(chosen: argparse.Namespace) -> Iterator[list[Row]]:
    setting = Setting(chosen.device, chosen.dtype, chosen.batch, chosen.length, chosen.vocab)
    say = partial(print, file=sys.stderr, flush=True)
    for share in chosen.shares:
        for row in benchmark(replace(setting, share=share), chosen.losses, chosen.rounds, say):
            if not chosen.json:
                _show(row)
            yield [row]


def _implementations(chosen: argparse.Namespace) -> Iterator[list[Row]]:
    from ntl.training.implementation_benchmark import SHAPES, run_all

    return run_all(chosen.shapes or SHAPES, chosen.device, chosen.rounds)


def _show(row: Row) -> None:
    print(
        f"share {row['share']:<4g} {row['part']:<17} {row['loss']:<12} {1000 * row['seconds']:9.3f} ms  "
        f"{row['ratio']:6.3f} x CE  {row['peak_mib']:8.1f} MiB",
        flush=True,
    )
