"""``scripts/benchmark_decoding.py``: drafts of heads against transformers' greedy ``generate``; searches of numbers.

Drafts: all decode the same batches of questions, through the tokenizer's chat template where it has one.

With ``--search``: the search of numbers (``new``), and one that reads on the 100 likeliest prefixes of each length and
loses the others (``old``), against one that reads so many that it is a reference, or against random answers.
"""

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from ntl.benchmarks.timing import Row, clock, in_turns, ratios, tell
from ntl.config.decoding import SpeculativeConfig
from ntl.config.loss import MTPConfig
from ntl.data.chat import Chat
from ntl.data.encode import encode_rows
from ntl.decoding.checks import RULE, max_new_tokens
from ntl.decoding.distribution import NumberDistribution
from ntl.decoding.generation import until_end
from ntl.decoding.predictor import UNLIMITED, restore, stored
from ntl.decoding.speculative import SPECULATION, speculate
from ntl.decoding.tree import NumberTokens, read_numbers, search
from ntl.models.interface import end_ids, pad_id
from ntl.models.mtp import PARALLEL, SEQUENTIAL, add_heads
from ntl.runs.folder import MANIFEST
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError, one_line_errors
from ntl.system.files import sha256_of
from ntl.system.hub import weight_files


def stored_heads(folder: Path) -> tuple[str, int]:
    """Return the kind of the heads that are stored in a folder, and their number with the model's own."""
    files = [path for path in weight_files(folder) if path.suffix == ".safetensors"]
    names = {name for path in files for name in safe_open(path, framework="pt").keys()}  # noqa: SIM118
    for kind, prefix in (("parallel", PARALLEL), ("sequential", SEQUENTIAL)):
        if found := {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}:
            return kind, 1 + len(found)
    raise UserError(f"{folder}: no heads are stored there; train them with MultiToken")


def batches(parts: RunParts, examples: Sequence[Any], size: int) -> Iterator[Any]:
    """Yield the padded questions of the examples."""
    for at in range(0, len(examples), size):
        yield {name: each.to(parts.device) for name, each in parts.collator.prompts(examples[at : at + size]).items()}


@torch.inference_mode()
def compare_decoding(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and number of heads. UserError for a setting that is not possible."""
    kind, most = stored_heads(given.folder)
    if wrong := [heads for heads in given.heads if not 1 <= heads <= most]:
        raise UserError(f"--heads {wrong[0]}: choose from 1 to the number of heads, {most}")
    with one_line_errors("read", given.questions), given.questions.open(encoding="utf-8") as stream:
        asked = [json.loads(line) | {"answer": ""} for line, _ in zip(stream, range(given.count), strict=False)]
    parts = stored(str(given.folder), [f"device={given.device}"], say=lambda line: None).parts
    model: Any = parts.model
    settings = MTPConfig(heads=most, kind=kind, variant=given.variant, keep_depth=True)
    add_heads(model, settings, str(given.folder))
    model.to(parts.device, getattr(torch, given.dtype)).eval()
    tokenizer, shape, ends = parts.tokenizer, model.config, end_ids(model, parts.tokenizer)
    chat = Chat(tokenizer, str(given.folder)) if tokenizer.chat_template else None
    examples = list(encode_rows(asked, tokenizer, decoder_only=True, max_length=UNLIMITED, chat=chat))
    examples.sort(key=lambda each: -len(each["question_ids"]))

    def greedy(size: int) -> list[list[int]]:
        options: Any = {"do_sample": False, "max_new_tokens": given.tokens, "pad_token_id": pad_id(tokenizer)}
        read = batches(parts, examples, size)
        found = ((model.generate(**inputs, **options), inputs["input_ids"].shape[1]) for inputs in read)
        return [until_end(ids, ends) for output, skipped in found for ids in output[:, skipped:].tolist()]

    def drafts(size: int, heads: int) -> list[Any]:
        config = SpeculativeConfig(name="speculative", heads=heads)
        read = speculate(config, model=model, tokenizer=tokenizer, max_new_tokens=given.tokens)
        return [answer for inputs in batches(parts, examples, size) for answer in read(inputs["input_ids"], inputs)]

    for size in given.batches:
        calls: dict[Any, Callable[[], Any]] = {"greedy": partial(greedy, size)}
        calls |= {heads: partial(drafts, size, heads) for heads in given.heads}
        times, turns = in_turns(calls, given.device, given.rounds)
        for heads in given.heads:
            counts = [answer.about[SPECULATION] for answer in turns[heads][0]]
            tokens, forwards = (sum(each[name] for each in counts) for name in ("tokens", "forwards"))
            drafting = forwards - len(counts)  # passes with drafts
            accepted = zip(*(each["accepted"] for each in counts), strict=True)
            kept_of = {head: sum(each) / drafting for head, each in enumerate(accepted, 2) if drafting}
            pairs = zip(turns["greedy"][0], *turns[heads], strict=True)
            yield {
                **{"device": given.device, "kind": kind, "vocab": shape.vocab_size, "width": shape.hidden_size},
                **{"layers": shape.num_hidden_layers, "answers": len(counts), "tokens": tokens, "rounds": given.rounds},
                **{"batch": size, "heads": heads, "tokens_per_forward": tokens / forwards},
                **{f"accepted_head{head}": kept_of.get(head) for head in range(2, most + 1)},
                "same_answers": sum(all(turn.token_ids == ids for turn in answers) for ids, *answers in pairs),
                **{"seconds": median(times[heads]), "greedy_seconds": median(times["greedy"])},
                **ratios(times["greedy"], times[heads], "speedup"),
            }


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


def kept(file: Path | None, wanted: Sequence[Row], make: Callable[[Row], Row]) -> list[Row]:
    """Return the reference of each wanted question: those that a file has, and new ones, which are added one by one.

    A row has the seconds that it took when it was made. UserError for a file that cannot be read.
    """
    rows, lines = list[Row](), file.read_text(encoding="utf-8").splitlines() if file and file.is_file() else []
    try:
        known: list[Row] = [json.loads(line) for line in lines]
    except ValueError as error:
        raise UserError(f"{file}: not the lines of a reference ({error}); give another file") from error
    for number, question in enumerate(wanted, 1):
        row = next((each for each in known if question.items() <= each.items()), None)
        if row is None:
            row = question | make(question)
            tell(f"reference {number}/{len(wanted)}: {row['seconds']:.1f} s")
            if file:
                with one_line_errors("write", file):
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with file.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(row) + "\n")
        rows.append(row)
    return rows


@torch.inference_mode()
def compare_searches(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and search, the reference included, which always reads a question at a time.

    An error is the distance of a statistic from the reference's, in % of the reference's standard deviation: its
    mean and its largest over the questions where that is not 0. Mean and standard deviation are trimmed as
    ``decoding=expectation`` does. Times are of an answer, ratios to ``old``. UserError for a setting that is not
    possible, or where no reference has a spread.
    """
    settings = ["decoding=median", f"decoding.num_beams={given.num_beams}", f"device={given.device}"]
    parts, checkpoint = restore(given.folder, settings, say=lambda line: None)
    config: Any = parts.config.decoding
    split, model, tick = parts.dataset.test_splits[0], parts.model.eval(), clock(given.device)
    rows, examples = parts.rows(split), parts.encoded(split)
    places = np.linspace(0, len(rows), min(given.count, len(rows)), endpoint=False, dtype=int).tolist()
    places.sort(key=lambda at: -len(examples[at]["question_ids"]))
    ends = end_ids(model, parts.tokenizer, [parts.chat.end_id] if parts.chat else ())
    tokens = NumberTokens.from_tokenizer(parts.tokenizer, ends, model.device)
    limits = {"num_beams": config.num_beams, "max_new_tokens": max_new_tokens(parts), "tolerance": config.tolerance}

    def run(read: Callable[..., Any], places: Sequence[int], size: int, **more: Any) -> list[Row]:
        found: list[NumberDistribution] = []
        for inputs in batches(parts, [examples[place] for place in places], size):
            found += read(model, inputs, tokens, **{**limits, **more})
        return [statistics(*each) for each in zip(found, places, strict=True)]

    def statistics(each: NumberDistribution, place: int) -> Row:
        values, deviation = [math.nan] * len(STATISTICS), 0.0
        if each.represented:
            center, deviation = each.moments(config.trim)
            label = float(RULE.extract(rows[place]["answer"]) or 0)
            values = [center, *map(each.quantile, (0.25, 0.5, 0.75)), each.crps(label)]
        known = {"covered": each.covered, "represented": each.represented, "deviation": deviation}
        return dict(zip(STATISTICS, values, strict=True)) | known

    def reference(question: Row) -> Row:
        read, more = (samples, {"count": given.samples}) if given.samples else (read_numbers, {"tolerance": 0.0})
        torch.manual_seed(question["place"])
        started = tick()
        (row,) = run(read, [question["place"]], 1, num_beams=given.reference, **more)
        return row | {"seconds": tick() - started}

    shared = {"weights": sha256_of(checkpoint / MANIFEST), "samples": given.samples, "trim": config.trim}
    shared |= {"num_beams": 0 if given.samples else given.reference}
    exact = kept(given.reference_file, [shared | {"place": place} for place in places], reference)
    deviation = np.array([each["deviation"] for each in exact])
    spread = deviation > 0
    if not spread.any():
        raise UserError(f"{given.folder}: of {len(places)} questions, none has two possible answers; raise --count")
    for size in given.batches:
        calls = {"old": partial(run, old_search, places, size, num_beams=100)}
        calls |= {"new": partial(run, read_numbers, places, size)}
        times, turns = in_turns(calls, given.device, given.rounds)
        times["reference"] = [sum(each["seconds"] for each in exact)] * given.rounds
        for name, found in {**{name: turn[0] for name, turn in turns.items()}, "reference": exact}.items():
            errors = {}
            for each in STATISTICS:
                off = np.array([one[each] - right[each] for one, right in zip(found, exact, strict=True)])
                errors[each] = 100 * np.abs(off[spread]) / deviation[spread]
            yield {
                **{"task": parts.dataset.name, "device": given.device, "answers": len(places)},
                **{each: getattr(given, each) for each in ("num_beams", "reference", "samples", "rounds")},
                **{"batch": size, "search": name},
                **{share: mean(each[share] for each in found) for share in ("covered", "represented")},
                **{"seconds": median(times[name]) / len(places), **ratios(times[name], times["old"])},
                **{each: float(values.mean()) for each, values in errors.items()},
                **{f"{each}_worst": float(values.max()) for each, values in errors.items()},
            }
