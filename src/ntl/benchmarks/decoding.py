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
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers import logging as transformers_logging

from ntl.benchmarks.timing import Row, clock, in_turns, ratios
from ntl.config.decoding import DecodingConfig
from ntl.config.loss import MTPConfig
from ntl.data.collate import pad_inputs
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.generation import generate, until_end
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


@torch.inference_mode()
def compare_decoding(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and number of heads. UserError for a setting that is not possible."""
    kind, most = stored_heads(given.folder)
    if wrong := [heads for heads in given.heads if not 1 <= heads <= most]:
        raise UserError(f"--heads {wrong[0]}: choose from 1 to the number of heads, {most}")
    transformers_logging.set_verbosity_error()  # it would list the heads as weights that it does not know
    tokenizer: Any = AutoTokenizer.from_pretrained(given.folder, padding_side="left")
    model: Any = AutoModelForCausalLM.from_pretrained(given.folder, dtype=getattr(torch, given.dtype))
    settings = MTPConfig(heads=most, kind=kind, variant=given.variant, keep_depth=True)
    add_heads(model, settings, str(given.folder)).to(given.device).eval()
    shape, ends, pad, tick = model.config, end_ids(model, tokenizer), pad_id(tokenizer), clock(given.device)
    with one_line_errors("read", given.questions), given.questions.open(encoding="utf-8") as stream:
        texts = [json.loads(line)["question"] for line, _ in zip(stream, range(given.count), strict=False)]
    said: Any = [[{"role": "user", "content": text}] for text in texts]
    template: Any = partial(tokenizer.apply_chat_template, add_generation_prompt=True, return_dict=False)
    asked = map(template, said) if tokenizer.chat_template else (tokenizer(text)["input_ids"] for text in texts)
    questions = [np.array(ids) for ids in sorted(asked, key=len, reverse=True)]
    plain = generate(DecodingConfig(name="greedy"), model=model, tokenizer=tokenizer, max_new_tokens=given.tokens)

    def batches(size: int) -> Iterator[dict[str, torch.Tensor]]:
        for at in range(0, len(questions), size):
            padded = pad_inputs(questions[at : at + size], pad, left=True)
            yield {name: each.to(given.device) for name, each in padded.items()}

    def bare(size: int, limit: int) -> Ids:
        options: Any = {"do_sample": False, "max_new_tokens": limit, "pad_token_id": pad}
        found = ((model.generate(**inputs, **options), inputs["input_ids"].shape[1]) for inputs in batches(size))
        return [until_end(ids, ends) for output, skipped in found for ids in output[:, skipped:].tolist()]

    def ours(size: int) -> Ids:
        return [answer.token_ids for inputs in batches(size) for answer in plain((), inputs)]

    def drafts(size: int, heads: int) -> tuple[Ids, list[Row], float, float]:
        """Also the counts of each answer, and the seconds of verifications and of drafts behind the first pass."""
        answers, verified, drafted = [], 0.0, 0.0
        with few_rows(model):
            for inputs in batches(size):
                rows = Rows(model, settings, heads, inputs, given.tokens, ends)
                rows.draft(*rows.verify())
                while len(rows):
                    before, found, between = tick(), rows.verify(), tick()
                    rows.draft(*found)
                    verified, drafted = verified + between - before, drafted + tick() - between
                answers += [rows.answers[row] for row in range(len(inputs["input_ids"]))]
        return [ids for ids, _ in answers], [counts for _, counts in answers], verified, drafted

    for size in given.batches:
        calls: dict[Any, Any] = {"bare": partial(bare, size, given.tokens), "prompt": partial(bare, size, 1)}
        calls |= {"ours": partial(ours, size), **{heads: partial(drafts, size, heads) for heads in given.heads}}
        times, turns = in_turns(calls, given.device, given.rounds)
        expected = turns["bare"][0]
        steps = _passes([len(ids) for ids in expected], size)
        step = [(whole - prompt) / steps for whole, prompt in zip(times["bare"], times["prompt"], strict=True)]
        for heads in given.heads:
            ids, counts, *_ = turns[heads][0]
            tokens, forwards = (sum(each[name] for each in counts) for name in ("tokens", "forwards"))
            passes = _passes([each["forwards"] for each in counts], size)
            costs = [
                median(spent[part] / passes / own for spent, own in zip(turns[heads], step, strict=True))
                for part in (2, 3)
            ]
            drafting = forwards - len(ids)  # passes with drafts
            drafted = range(2, heads + 1 if drafting else 0)
            kept = {head: sum(each["accepted"][head - 2] for each in counts) / drafting for head in drafted}
            same = [all(turn[0][at] == each for turn in turns[heads]) for at, each in enumerate(expected)]
            yield {
                **{"device": given.device, "kind": kind, "vocab": shape.vocab_size, "width": shape.hidden_size},
                **{"layers": shape.num_hidden_layers, "answers": len(ids), "tokens": tokens, "rounds": given.rounds},
                **{"batch": size, "heads": heads, "tokens_per_forward": tokens / forwards},
                **{f"accepted_head{head}": kept.get(head) for head in range(2, most + 1)},
                **{"same_answers": sum(same), "steps": steps, "passes": passes, "verify": costs[0], "draft": costs[1]},
                **{"bound": steps / passes / sum(costs), "seconds": median(times[heads])},
                **{"greedy_seconds": median(times["bare"]), **ratios(times["bare"], times[heads], "speedup")},
                **ratios(times["ours"], times["bare"], "plain"),
                "plain_same": sum(map(eq, turns["ours"][0], expected)),
            }


def _passes(lengths: list[int], size: int) -> int:
    """Return how many passes batches take behind those over their questions, at least 1: each those of its longest."""
    return max(sum(max(lengths[at : at + size]) - 1 for at in range(0, len(lengths), size)), 1)


# ---- searches of numbers

STATISTICS = ("mean", "q25", "median", "q75", "crps")


def old_search(model: Any, inputs: Any, tokens: NumberTokens, **limits: Any) -> list[NumberDistribution]:
    """Return the numbers that are read to their end among the likeliest prefixes of each length, (E,)."""
    found = [defaultdict[str, float](float) for _ in inputs["input_ids"]]
    for level in search(model, inputs, tokens, **limits):
        for masses, texts, ended_W in zip(found, level.texts, level.ended_EW.exp().tolist(), strict=True):
            for text, ended in zip(texts, ended_W, strict=False):
                masses[text] += ended
    return [NumberDistribution.of(masses) for masses in found]


def samples(model: Any, inputs: Any, tokens: NumberTokens, *, count: int, **limits: Any) -> list[NumberDistribution]:
    """Return the numbers of ``count`` random answers to one question, (1,)."""
    texts, found = dict(zip(tokens.ids.tolist(), tokens.pieces, strict=True)), Counter[str]()
    plain = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "eos_token_id": tokens.end_ids}
    plain |= {"max_new_tokens": limits["max_new_tokens"], "num_return_sequences": 250}
    for _ in range(0, count, 250):
        for answer in model.generate(**inputs, **plain)[:, inputs["input_ids"].shape[1] :].tolist():
            end = next((at for at, each in enumerate(answer) if each in tokens.end_ids), 0)
            found["".join(texts.get(each, "?") for each in answer[:end])] += 1
    return [NumberDistribution.of({text: number / found.total() for text, number in found.items()})]


@torch.inference_mode()
def compare_searches(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and search, the reference included, which always reads a question at a time.

    An error is the distance of a statistic from that of the reference, in % of the reference's standard deviation: its
    mean and its largest over the questions where that is not 0. Mean and standard deviation are trimmed as
    ``decoding=expectation`` does. Times are of an answer, ratios to ``old``. UserError for a setting that is not
    possible, or where no reference has a spread.
    """
    settings = ["decoding=median", f"decoding.num_beams={given.num_beams}", f"device={given.device}"]
    parts, _ = restore(given.folder, settings, say=lambda line: None)
    config: Any = parts.config.decoding
    split, model = parts.dataset.test_splits[0], parts.model.eval()
    rows, examples = parts.rows(split), parts.encoded(split)
    places = np.linspace(0, len(rows), min(given.count, len(rows)), endpoint=False, dtype=int).tolist()
    places.sort(key=lambda at: -len(examples[at]["question_ids"]))
    labels = [float(RULE.extract(rows[at]["answer"]) or 0) for at in places]
    ends = end_ids(model, parts.tokenizer, [parts.chat.end_id] if parts.chat else ())
    tokens = NumberTokens.from_tokenizer(parts.tokenizer, ends, model.device)
    limits = {"num_beams": config.num_beams, "max_new_tokens": max_new_tokens(parts), "tolerance": config.tolerance}

    def run(read: Callable[..., Any], size: int, **more: float) -> list[NumberDistribution]:
        found = []
        for at in range(0, len(places), size):
            prompts = parts.collator.prompts([examples[place] for place in places[at : at + size]])
            inputs = {name: each.to(model.device) for name, each in prompts.items()}
            found += read(model, inputs, tokens, **{**limits, **more})
        return found

    def statistics(each: NumberDistribution, label: float) -> list[float]:
        """With the standard deviation at the end."""
        if not each.represented:
            return [math.nan] * len(STATISTICS) + [0.0]
        mean, deviation = each.moments(config.trim)
        return [mean, *map(each.quantile, (0.25, 0.5, 0.75)), each.crps(label), deviation]

    read, more = (samples, {"count": given.samples}) if given.samples else (read_numbers, {"tolerance": 0.0})
    exact = {"reference": partial(run, read, 1, num_beams=given.reference, **more)}
    spent, reference = in_turns(exact, given.device, 1)
    right = np.array([*map(statistics, reference["reference"][0], labels)]).reshape(-1, len(STATISTICS) + 1)
    spread = right[:, -1] > 0
    if not spread.any():
        raise UserError(f"{given.folder}: of {len(places)} questions, none has two possible answers; raise --count")
    for size in given.batches:
        calls = {"old": partial(run, old_search, size, num_beams=100), "new": partial(run, read_numbers, size)}
        times, turns = in_turns(calls, given.device, given.rounds)
        times["reference"], turns["reference"] = spent["reference"] * given.rounds, reference["reference"]
        for name, turn in turns.items():
            found = np.array([*map(statistics, turn[0], labels)])
            errors = 100 * np.abs(found - right)[spread, :-1] / right[spread, -1:]
            yield {
                **{"task": parts.dataset.name, "device": given.device, "answers": len(places)},
                **{each: getattr(given, each) for each in ("num_beams", "reference", "samples", "rounds")},
                **{"batch": size, "search": name, "covered": float(np.mean([each.covered for each in turn[0]]))},
                "represented": float(np.mean([each.represented for each in turn[0]])),
                **{"seconds": median(times[name]) / len(places), **ratios(times[name], times["old"])},
                **dict(zip(STATISTICS, errors.mean(0).tolist(), strict=True)),
                **dict(zip([f"{each}_worst" for each in STATISTICS], errors.max(0).tolist(), strict=True)),
            }
