"""``scripts/benchmark_speculative.py``: decoding with drafts against greedy decoding.

The model is a Llama that learns a text that it can predict in part: words of several tokens, each spelled in its one
way, in a random order. It is trained with as many heads as the most that are asked for, and decodes with fewer as well.
Plain greedy decoding is that of transformers (``decoding=greedy``); a row with one head is the same tokens by our loop
without drafts. All take turns, and ratios are taken within a turn.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ntl.benchmarks.implementations import check
from ntl.benchmarks.objectives import random_llama
from ntl.benchmarks.timing import Row, ratio_quartiles, rounded, times_in_turns
from ntl.config.decoding import DecodingConfig, SpeculativeConfig
from ntl.config.loss import MTPConfig
from ntl.decoding.batches import Answer, Read
from ntl.decoding.generation import generate
from ntl.decoding.speculative import SPECULATION, speculate
from ntl.evaluation.scores import speculation_metrics
from ntl.models.interface import lm_head
from ntl.models.mtp import Heads, add_heads
from ntl.system.errors import UserError

LONGEST_WORD, LEARNING_RATE = 12, 1e-3
PAD = 0


class _Tokenizer:
    """No end token, so that every answer is as long as it may be."""

    pad_token_id, eos_token_id = PAD, None

    def decode(self, ids: Sequence[int], **_: bool) -> str:
        return ""


class Text:
    """Words of 3 to 12 tokens in a random order; each token occurs at one place of one word, padding excepted."""

    def __init__(self, vocab: int) -> None:
        self._random = torch.Generator().manual_seed(0)
        self._words: list[Tensor] = []
        free = torch.arange(1, vocab)
        while len(free) >= LONGEST_WORD:
            length = self._below(3, LONGEST_WORD + 1)
            self._words.append(free[:length])
            free = free[length:]

    def _below(self, low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=self._random))

    def batch(self, rows: int, length: int) -> Tensor:
        """Return (rows, length) tokens; each row begins somewhere in a word."""
        count = length // 3 + LONGEST_WORD
        found = []
        for _ in range(rows):
            row = torch.cat([self._words[self._below(0, len(self._words))] for _ in range(count)])
            start = self._below(0, LONGEST_WORD)
            found.append(row[start : start + length])
        return torch.stack(found)


def model_of(arguments: argparse.Namespace, width: int) -> Any:
    """Return a Llama of random weights with heads for all that is asked for; its depth does not count them."""
    config = MTPConfig(heads=max(2, *arguments.heads), kind=arguments.kind, keep_depth=True)
    return add_heads(random_llama(arguments, width, PAD), config)


def train(model: Any, text: Text, arguments: argparse.Namespace, say: Callable[[str], object]) -> None:
    """Train on the text; the loss is the mean over heads of their cross entropies."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    config, head = model.mtp_config, lm_head(model)
    for step in range(arguments.steps):
        for group in optimizer.param_groups:  # a linear warm-up, and as long a decay
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / 20, (arguments.steps - step) / 20)
        ids = text.batch(8, 48).to(model.device)
        heads = Heads(model, config, ids, torch.ones_like(ids))
        losses = [
            cross_entropy(head.logits(heads.read(states))[:, : -1 - index].flatten(0, 1), ids[:, 1 + index :].flatten())
            for index, states in heads.states()
        ]
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 20 == 0:
            say(f"training step {step + 1}/{arguments.steps}  loss {loss.detach():.3f}")


def ways(model: Any, arguments: argparse.Namespace, prompts: Tensor) -> dict[str, Callable[[], list[Answer]]]:
    """Return "greedy" and each number of heads as a function that decodes the prompts, padded on the left."""
    given: Any = {"model": model.eval(), "tokenizer": _Tokenizer(), "max_new_tokens": arguments.tokens}
    reads: dict[str, Read] = {"greedy": generate(DecodingConfig(name="greedy"), **given)}
    for heads in arguments.heads:
        reads[str(heads)] = speculate(SpeculativeConfig(name="speculative", heads=heads), **given)
    mask = torch.ones_like(prompts)
    for row in range(len(prompts)):
        mask[row, : row % (prompts.shape[1] // 2)] = 0
    inputs = {"input_ids": prompts * mask, "attention_mask": mask}
    examples: Any = [{}] * len(prompts)
    return {name: torch.inference_mode()(partial(read, examples, inputs)) for name, read in reads.items()}


def compare_drafts(arguments: argparse.Namespace, say: Callable[[str], object]) -> Iterator[Row]:
    """Yield a row for each batch size and number of heads. Raises UserError for a setting that is not possible."""
    check(arguments.device, arguments.rounds)
    if wrong := [heads for heads in arguments.heads if heads < 1]:
        raise UserError(f"--heads {wrong[0]}: must be at least 1")
    text, model = Text(arguments.vocab), model_of(arguments, arguments.width)
    narrow = model_of(arguments, 16)
    train(model, text, arguments, say)
    for batch in arguments.batches:
        prompts = text.batch(batch, arguments.length).to(arguments.device)
        sides = ways(model, arguments, prompts)
        sides["narrow"] = ways(narrow, arguments, prompts)["greedy"]
        answers = {name: side() for name, side in sides.items()}
        times = times_in_turns(sides, arguments.device, arguments.rounds, time.perf_counter)
        settings = ("device", "kind", "vocab", "width", "layers", "length", "tokens", "steps", "rounds")
        for heads in map(str, arguments.heads):
            same = zip(answers[heads], answers["greedy"], strict=True)
            counted = speculation_metrics([each.about[SPECULATION] for each in answers[heads]])
            speedup = ratio_quartiles(times["greedy"], times[heads])
            drafting = range(2, max(2, *arguments.heads) + 1)
            row = {
                **{name: getattr(arguments, name) for name in settings},
                "batch": batch,
                "heads": int(heads),
                "tokens_per_forward": counted["tokens_per_forward"],
                **{f"accepted_head{head}": counted.get(f"accepted/head{head}", "") for head in drafting},
                "same_answers": sum(ours.token_ids == theirs.token_ids for ours, theirs in same),
                "seconds": median(times[heads]),
                "greedy_seconds": median(times["greedy"]),
                **{name.replace("ratio", "speedup"): value for name, value in speedup.items()},
                "overhead": ratio_quartiles(times["narrow"], times["greedy"])["ratio"],
            }
            yield rounded(row)
        say(f"batch {batch} done")
