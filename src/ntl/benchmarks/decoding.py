"""Our decoding against a bare loop of ``model.generate``: the same model, examples and batch size, side by side."""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ntl.benchmarks.timing import in_turns, remark
from ntl.config import compose
from ntl.decoding import decode
from ntl.training.decode import max_new_tokens
from ntl.training.parts import RunParts

Side = Callable[[], list[str]]


def ours(parts: RunParts, rows: int) -> Side:
    """The decoding of a run: stored token ids, batches of similar length, its collator, answers in order."""
    config = parts.config.decoding
    examples: Any = parts.encoded(parts.dataset.test_splits[0]).first(rows)

    def answer() -> list[str]:
        answers = decode(
            config,
            model=parts.model,
            tokenizer=parts.tokenizer,
            examples=examples,
            collate=parts.collator.prompts,
            max_new_tokens=max_new_tokens(parts),
        )
        return [answer.text for answer in answers]

    return answer


@torch.inference_mode()
def _bare(parts: RunParts, questions: list[list[int]]) -> list[str]:
    config, tokenizer, model = parts.config.decoding, parts.tokenizer, parts.model
    encoder_decoder = model.config.is_encoder_decoder
    model.eval()
    texts = []
    for start in range(0, len(questions), config.batch_size):
        batch = questions[start : start + config.batch_size]
        inputs: Any = tokenizer.pad(
            {"input_ids": batch}, return_tensors="pt", padding_side="right" if encoder_decoder else "left"
        )
        generated = model.generate(  # pyright: ignore[reportCallIssue]
            **inputs.to(model.device),
            num_beams=config.num_beams,
            do_sample=False,
            max_new_tokens=max_new_tokens(parts),
        )
        skipped = 0 if encoder_decoder else inputs["input_ids"].shape[1]
        texts += tokenizer.batch_decode(generated[:, skipped:], skip_special_tokens=True)
    return texts


def bare(parts: RunParts, rows: int) -> Side:
    """A minimal loop: pad the token ids, in the order of the examples, generate, decode."""
    examples = parts.encoded(parts.dataset.test_splits[0]).first(rows)
    questions = [examples[index]["question_ids"].tolist() for index in range(len(examples))]
    return lambda: _bare(parts, questions)


def seconds(decode: Side) -> float:
    """Wall time of one pass over the examples."""
    started = time.perf_counter()
    decode()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def compare(overrides: Sequence[str], *, rows: int, rounds: int) -> dict[str, Any]:
    """Time the two in turns.

    The model is untrained, so that nearly all answers have the maximal length, on both sides.
    """
    with tempfile.TemporaryDirectory() as folder:
        places = [f"data_dir={Path(folder) / 'data'}", f"output_dir={folder}", "tracking=none"]
        parts = RunParts(compose([*overrides, *places]), say=lambda line: None)
        sides = {"ours": ours(parts, rows), "bare": bare(parts, rows)}
        same = [a == b.strip() for a, b in zip(sides["ours"](), sides["bare"](), strict=True)]
        times = in_turns({name: partial(seconds, side) for name, side in sides.items()}, rounds)
    return {
        "overrides": list(overrides),
        "model": parts.config.model.name,
        "num_beams": parts.config.decoding.num_beams,
        "batch_size": parts.config.decoding.batch_size,
        "examples": len(same),
        "same_answers": sum(same),
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "examples_per_s": {name: len(same) / median(each) for name, each in times.items()},
        "speed_ratio": median(bare / ours for bare, ours in zip(times["bare"], times["ours"], strict=True)),
        "machine": remark("torch", "transformers"),
    }
