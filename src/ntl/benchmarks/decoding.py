"""``scripts/benchmark_decoding.py``: drafts of heads, and our decoding without, over transformers' greedy ``generate``.

All decode the same batches of questions, through the tokenizer's chat template where it has one, and take turns. A step
is a pass of ``generate`` behind the one over the questions. The cost of a verification, and of a draft, is its share of
the time behind that pass, by its number of passes, over a step. Steps over passes, over the sum of both costs, bound
the speed-up.

With ``--search``: the search of numbers (``new``), and one that reads on the ``--num-beams`` likeliest prefixes of each
length and loses the others (``old``), against one that reads so many that it is a reference.
"""

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from operator import eq
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers import logging as transformers_logging

from ntl.benchmarks.losses import check
from ntl.benchmarks.timing import Row, in_turns, now, rounded, summary
from ntl.config.decoding import DecodingConfig
from ntl.config.loss import MTPConfig
from ntl.data.collate import pad_inputs
from ntl.decoding import decode
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.generation import until_end
from ntl.decoding.speculative import Rows, few_rows
from ntl.decoding.tree import NumberTokens, read_numbers, search
from ntl.models.interface import end_ids, pad_id
from ntl.models.mtp import PARALLEL, SEQUENTIAL, add_heads
from ntl.system.errors import UserError, one_line_errors
from ntl.system.hub import weight_files
from ntl.training.decode import RULE, max_new_tokens
from ntl.training.predictor import restore

Ids = list[list[int]]  # of the answers, in the order of the questions


def stored_heads(folder: Path) -> tuple[str, int]:
    """Return the kind of the heads that are stored in a folder, and their number with the model's own."""
    files = [path for path in weight_files(folder) if path.suffix == ".safetensors"]
    names = {name for path in files for name in safe_open(path, framework="pt").keys()}  # noqa: SIM118
    for kind, prefix in (("parallel", PARALLEL), ("sequential", SEQUENTIAL)):
        if found := {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}:
            return kind, 1 + len(found)
    raise UserError(f"{folder}: no heads are stored there; train them with MultiToken")


class _Sides:
    """What decodes, a method each: it returns its seconds, and what it says of them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        kind, count = stored_heads(arguments.folder)
        transformers_logging.set_verbosity_error()  # it would list the heads as weights that it does not know
        self.device, self.limit = arguments.device, arguments.tokens
        self.tokenizer: Any = AutoTokenizer.from_pretrained(arguments.folder, padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=getattr(torch, arguments.dtype))
        self.settings = MTPConfig(heads=count, kind=kind, variant=arguments.variant, keep_depth=True)
        add_heads(self.model, self.settings, str(arguments.folder))
        self.model.to(self.device).eval()
        self.ends = end_ids(self.model, self.tokenizer)
        with one_line_errors("read", arguments.questions), arguments.questions.open(encoding="utf-8") as stream:
            asked = [json.loads(line)["question"] for line, _ in zip(stream, range(arguments.count), strict=False)]
        self.questions = sorted(map(self._encoded, asked), key=len, reverse=True)

    def _encoded(self, question: str) -> list[int]:
        if not self.tokenizer.chat_template:
            return self.tokenizer(question)["input_ids"]
        said = [{"role": "user", "content": question}]
        return self.tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)

    def inputs(self, questions: Ids) -> dict[str, Tensor]:
        padded = pad_inputs([*map(np.array, questions)], pad_id(self.tokenizer), left=True)
        return {name: each.to(self.device) for name, each in padded.items()}

    def batches(self, batch: int) -> list[dict[str, Tensor]]:
        return [self.inputs(self.questions[at : at + batch]) for at in range(0, len(self.questions), batch)]

    def bare(self, batch: int, limit: int = 0) -> tuple[float, Ids]:
        batches, found, started = self.batches(batch), [], now(self.device)
        for inputs in batches:
            output = self.model.generate(
                **inputs, do_sample=False, max_new_tokens=limit or self.limit, pad_token_id=pad_id(self.tokenizer)
            )
            found += [until_end(ids, self.ends) for ids in output[:, inputs["input_ids"].shape[1] :].tolist()]
        return now(self.device) - started, found

    def ours(self, batch: int) -> tuple[float, Ids]:
        started = now(self.device)
        answers = decode(
            DecodingConfig(name="greedy", batch_size=batch),
            model=self.model,
            tokenizer=self.tokenizer,
            examples=[{"question_ids": ids} for ids in self.questions],
            collate=lambda examples: self.inputs([example["question_ids"] for example in examples]),
            max_new_tokens=self.limit,
        )
        return now(self.device) - started, [answer.token_ids for answer in answers]

    def drafts(self, batch: int, heads: int) -> tuple[float, tuple[Ids, list[dict[str, Any]], float, float]]:
        """Also the counts of each answer, and the seconds of verifications and of drafts behind the first pass."""
        batches, answers, verified, drafted, started = self.batches(batch), [], 0.0, 0.0, now(self.device)
        with few_rows(self.model):
            for inputs in batches:
                rows = Rows(self.model, self.settings, heads, inputs, self.limit, self.ends)
                rows.draft(*rows.verify())
                while len(rows):
                    before = now(self.device)
                    found = rows.verify()
                    between = now(self.device)
                    rows.draft(*found)
                    verified, drafted = verified + between - before, drafted + now(self.device) - between
                answers += [rows.answers[row] for row in range(len(inputs["input_ids"]))]
        ids, counts = zip(*answers, strict=True)
        return now(self.device) - started, ([*ids], [*counts], verified, drafted)


@torch.inference_mode()
def compare_decoding(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and number of heads. UserError for a setting that is not possible."""
    check(arguments.device, arguments.rounds)
    sides = _Sides(arguments)
    most, shape = sides.settings.heads, sides.model.config
    if wrong := [heads for heads in arguments.heads if not 1 <= heads <= most]:
        raise UserError(f"--heads {wrong[0]}: choose from 1 to the number of heads, {most}")
    for batch in arguments.batches:
        calls: dict[Any, Any] = {"bare": partial(sides.bare, batch), "prompt": partial(sides.bare, batch, 1)}
        calls |= {"ours": partial(sides.ours, batch)}
        calls |= {heads: partial(sides.drafts, batch, heads) for heads in arguments.heads}
        turns = in_turns(calls, arguments.rounds)
        times = {name: [time for time, _ in turn] for name, turn in turns.items()}
        expected = turns["bare"][0][1]
        steps = _passes([len(ids) for ids in expected], batch)
        step_seconds = [(bare - prompt) / steps for bare, prompt in zip(times["bare"], times["prompt"], strict=True)]
        for heads in arguments.heads:
            found = [said for _, said in turns[heads]]
            ids, counts, *_ = found[0]
            tokens, forwards = (sum(each[name] for each in counts) for name in ("tokens", "forwards"))
            passes = _passes([each["forwards"] for each in counts], batch)
            verify, draft = (
                median(said[part] / passes / step for said, step in zip(found, step_seconds, strict=True))
                for part in (2, 3)
            )
            yield rounded(
                {
                    **{"device": arguments.device, "kind": sides.settings.kind, "vocab": shape.vocab_size},
                    **{"width": shape.hidden_size, "layers": shape.num_hidden_layers, "answers": len(ids)},
                    **{"tokens": tokens, "rounds": arguments.rounds, "batch": batch, "heads": heads},
                    "tokens_per_forward": tokens / forwards,
                    **{f"accepted_head{head}": _kept(counts, head) for head in range(2, most + 1)},
                    "same_answers": sum(all(said[0][at] == each for said in found) for at, each in enumerate(expected)),
                    **{"steps": steps, "passes": passes, "verify": verify, "draft": draft},
                    "bound": steps / passes / (verify + draft),
                    **{"seconds": median(times[heads]), "greedy_seconds": median(times["bare"])},
                    **_ratio("speedup", times["bare"], times[heads]),
                    **_ratio("plain", times["ours"], times["bare"]),
                    "plain_same": sum(map(eq, turns["ours"][0][1], expected)),
                }
            )


def _ratio(name: str, times: list[float], others: list[float]) -> Row:
    found = summary(times, others)
    return {name: found["ratio"], f"{name}_low": found["ratio_low"], f"{name}_high": found["ratio_high"]}


def _kept(counts: list[dict[str, Any]], head: int) -> float | None:
    """Return the share of the passes with drafts that kept the draft of a head; None for one that drafted nothing."""
    drafted = sum(each["forwards"] - 1 for each in counts)
    kept = [each["accepted"][head - 2] for each in counts if len(each["accepted"]) > head - 2]
    return sum(kept) / drafted if kept and drafted else None


def _passes(lengths: list[int], batch: int) -> int:
    """Return how many passes batches take behind those over their questions, at least 1: each those of its longest."""
    return max(sum(max(lengths[at : at + batch]) - 1 for at in range(0, len(lengths), batch)), 1)


# ---- searches of numbers

STATISTICS = ("mean", "q25", "median", "q75", "crps")


def old_search(model: Any, inputs: Any, tokens: NumberTokens, **limits: Any) -> list[NumberDistribution]:
    """Return the numbers that are read to their end among the likeliest 100 prefixes of each length, (E,)."""
    limits["num_beams"] = 100
    found = [defaultdict[str, float](float) for _ in inputs["input_ids"]]
    for level in search(model, inputs, tokens, **limits):
        for masses, texts, ended_W in zip(found, level.texts, level.ended_EW.exp().tolist(), strict=True):
            for text, ended in zip(texts, ended_W, strict=False):
                masses[text] += ended
    return [NumberDistribution.of(masses) for masses in found]


def samples(model: Any, inputs: Any, tokens: NumberTokens, *, count: int, **limits: Any) -> list[NumberDistribution]:
    """Return the numbers of ``count`` random answers to one question, (1,)."""
    texts, length = dict(zip(tokens.ids.tolist(), tokens.pieces, strict=True)), inputs["input_ids"].shape[1]
    plain = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": tokens.end_ids}
    plain |= {"max_new_tokens": limits["max_new_tokens"], "num_return_sequences": 250}
    found: Counter[str] = Counter()
    for _ in range(0, count, 250):
        for answer in model.generate(**inputs, **plain)[:, length:].tolist():
            end = next((at for at, each in enumerate(answer) if each in tokens.end_ids), 0)
            found["".join(texts.get(each, "?") for each in answer[:end])] += 1
    return [NumberDistribution.of({text: number / found.total() for text, number in found.items()})]


@torch.inference_mode()
def compare_searches(arguments: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and search, the reference included, which always reads a question at a time.

    An error is the distance of a statistic from that of the reference, in % of the reference's standard deviation: its
    mean and its largest over the questions where that is not 0. Mean and standard deviation are trimmed as
    ``decoding=expectation`` does. Times are of an answer, ratios to ``old``. UserError for a setting that is not
    possible, or where no reference has a spread.
    """
    check(arguments.device, arguments.rounds)
    settings = ["decoding=median", f"decoding.num_beams={arguments.num_beams}", f"device={arguments.device}"]
    parts, _ = restore(arguments.folder, settings, say=lambda line: None)
    config: Any = parts.config.decoding
    split, model = parts.dataset.test_splits[0], parts.model.eval()
    rows, examples = parts.rows(split), parts.encoded(split)
    places = np.linspace(0, len(rows), min(arguments.count, len(rows)), endpoint=False, dtype=int).tolist()
    places.sort(key=lambda at: -len(examples[at]["question_ids"]))
    labels = [float(RULE.extract(rows[at]["answer"]) or 0) for at in places]
    ends = end_ids(model, parts.tokenizer, [parts.chat.end_id] if parts.chat else ())
    tokens = NumberTokens.from_tokenizer(parts.tokenizer, ends, model.device)
    limits = {"num_beams": config.num_beams, "max_new_tokens": max_new_tokens(parts), "tolerance": config.tolerance}

    def run(read: Callable[..., Any], batch: int, **more: float) -> tuple[float, list[NumberDistribution]]:
        found, started = [], now(arguments.device)
        for at in range(0, len(places), batch):
            prompts = parts.collator.prompts([examples[place] for place in places[at : at + batch]])
            inputs = {name: each.to(model.device) for name, each in prompts.items()}
            found += read(model, inputs, tokens, **{**limits, **more})
        return now(arguments.device) - started, found

    def statistics(found: list[NumberDistribution]) -> np.ndarray:
        return np.array(
            [
                [each.moments(config.trim)[0], *map(each.quantile, (0.25, 0.5, 0.75)), each.crps(label)]
                if each.represented
                else [math.nan] * len(STATISTICS)
                for each, label in zip(found, labels, strict=True)
            ]
        )

    exact = partial(run, read_numbers, 1, num_beams=arguments.reference, tolerance=0.0)
    reference = run(partial(samples, count=arguments.samples), 1) if arguments.samples else exact()
    right = statistics(reference[1])
    spreads = np.array([each.moments(config.trim)[1] if each.represented else 0.0 for each in reference[1]])
    if not spreads.any():
        raise UserError(f"{arguments.folder}: of {len(places)} questions, none has two possible answers; raise --count")
    for batch in arguments.batches:
        calls = {"old": partial(run, old_search, batch), "new": partial(run, read_numbers, batch)}
        turns = {**in_turns(calls, arguments.rounds), "reference": [reference] * arguments.rounds}
        times = {name: [time / len(places) for time, _ in turn] for name, turn in turns.items()}
        for name, turn in turns.items():
            found = turn[0][1]
            errors = 100 * np.abs(statistics(found) - right)[spreads > 0] / spreads[spreads > 0, None]
            yield rounded(
                {
                    **{"task": parts.dataset.name, "device": arguments.device, "answers": len(places)},
                    **{name: getattr(arguments, name) for name in ("num_beams", "reference", "samples", "rounds")},
                    **{"batch": batch, "search": name, "covered": float(np.mean([each.covered for each in found]))},
                    "represented": float(np.mean([each.represented for each in found])),
                    **summary(times[name], times["old"]),
                    **{each: float(errors[:, at].mean()) for at, each in enumerate(STATISTICS)},
                    **{f"{each}_worst": float(errors[:, at].max()) for at, each in enumerate(STATISTICS)},
                }
            )
