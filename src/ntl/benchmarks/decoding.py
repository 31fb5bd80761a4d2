"""``scripts/benchmark_decoding.py``: drafts of heads against transformers' greedy ``generate``.

All decode the same batches of questions, through the tokenizer's chat template where it has one.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors import safe_open

from ntl.benchmarks.timing import Row, in_turns, ratios
from ntl.config.decoding import SpeculativeConfig
from ntl.config.loss import MTPConfig
from ntl.data.chat import Chat
from ntl.data.encode import encode_rows
from ntl.decoding.generation import until_end
from ntl.decoding.predictor import UNLIMITED, stored
from ntl.decoding.speculative import SPECULATION, speculate
from ntl.models.interface import end_ids, pad_id
from ntl.models.mtp import PARALLEL, SEQUENTIAL, add_heads
from ntl.runs.parts import RunParts
from ntl.system.errors import UserError, one_line_errors
from ntl.system.hub import weight_files


def stored_heads(folder: Path) -> tuple[str, int]:
    """Return the kind of the heads that are stored in a folder, and their number with the model's own."""
    files = [path for path in weight_files(folder) if path.suffix == ".safetensors"]
    names = {name for path in files for name in safe_open(path, framework="pt").keys()}  # noqa: SIM118
    for kind, prefix in (("parallel", PARALLEL), ("sequential", SEQUENTIAL)):
        if heads := {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}:
            return kind, 1 + len(heads)
    raise UserError(f"{folder}: no heads are stored there; train them with MultiToken")


def batches(parts: RunParts, examples: Sequence[Any], size: int) -> Iterator[Any]:
    """Yield the padded questions of the examples."""
    for at in range(0, len(examples), size):
        yield {name: value.to(parts.device) for name, value in parts.collator.prompts(examples[at : at + size]).items()}


@torch.inference_mode()
def compare_decoding(given: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each batch size and number of heads. UserError for a setting that is not possible."""
    kind, most = stored_heads(given.folder)
    if wrong := [heads for heads in given.heads if not 1 <= heads <= most]:
        raise UserError(f"--heads {wrong[0]}: choose from 1 to the number of heads, {most}")
    with one_line_errors("read", given.questions), given.questions.open(encoding="utf-8") as stream:
        asked = [json.loads(line) | {"answer": ""} for line, _ in zip(stream, range(given.count), strict=False)]
    parts = stored(str(given.folder), [f"device={given.device}"]).parts
    model: Any = parts.model
    settings = MTPConfig(heads=most, kind=kind, variant=given.variant, keep_depth=True)
    add_heads(model, settings, str(given.folder))
    model.to(parts.device, getattr(torch, given.dtype)).eval()
    tokenizer, shape, ends = parts.tokenizer, model.config, end_ids(model, parts.tokenizer)
    chat = Chat(tokenizer, str(given.folder)) if tokenizer.chat_template else None
    examples, _ = encode_rows(asked, tokenizer, decoder_only=True, max_length=UNLIMITED, chat=chat)
    examples.sort(key=lambda example: -len(example["question_ids"]))

    def greedy(size: int) -> list[list[int]]:
        options: Any = {"do_sample": False, "max_new_tokens": given.tokens, "pad_token_id": pad_id(tokenizer)}
        read = batches(parts, examples, size)
        outputs = ((model.generate(**inputs, **options), inputs["input_ids"].shape[1]) for inputs in read)
        return [until_end(ids, ends) for output, skipped in outputs for ids in output[:, skipped:].tolist()]

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
            tokens, forwards = (sum(count[name] for count in counts) for name in ("tokens", "forwards"))
            drafting = forwards - len(counts)  # passes with drafts
            accepted = zip(*(count["accepted"] for count in counts), strict=True)
            kept_of = {head: sum(flags) / drafting for head, flags in enumerate(accepted, 2) if drafting}
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
